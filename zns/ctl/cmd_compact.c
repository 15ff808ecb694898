/* SPDX-License-Identifier: GPL-2.0-only */
/* compact: moves live data together, so that zones with little live data become empty */
#include <string.h>
#include "compact/compaction.h"
#include "zns/config.h"

int weight_option(const char *text, uint32_t *weight, struct zns_err *err)
{
	uint64_t n = 0;

	*weight = 0;
	if (!text || !strcmp(text, "owner"))
		return 0;
	if (zns_parse_number(text, ZNS_WEIGHT_MIN, ZNS_WEIGHT_MAX, &n))
		return zns_fail(err, -EINVAL,
				"--weight \"%.20s\" must be owner, or a number from %u to %u", text,
				ZNS_WEIGHT_MIN, ZNS_WEIGHT_MAX);
	*weight = (uint32_t)n;
	return 0;
}

int compact_weight(struct compact *x, const char *text, struct zns_err *err)
{
	x->charged = text != NULL;
	return weight_option(text, &x->weight, err);
}

int compact_command(const struct ctl_cmd *cmd, int argc, char **argv, compact_defrag_fn defrag_all)
{
	struct compact x = { 0 };
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	bool blocked, planned;
	uint64_t below = COMPACT_BELOW;
	const char *weight = NULL, *what = NULL;
	bool defrag = false;
	int ret;
	const struct ctl_opt opts[] = {
		CTL_FLAG("dry-run", &x.dry_run),
		CTL_NUMBER("below", &below, 1, 100,
			   "--below \"%.20s\": 1 to 100 per cent of a zone"),
		{ .name = "rate",
		  .kind = CTL_O_RATE,
		  .rate = &x.rate_mibps,
		  .wrong = "--rate \"%.20s\" is no rate: 100, 100MiB/s, 1GiB/s" },
		CTL_TEXT("weight", &weight),
		CTL_FLAG("defrag", &defrag),
		CTL_TEXT("of", &what),
		CTL_FLAG("no-wait", &x.rude),
		CTL_DEV,
		CTL_OPTS_END
	};

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (defrag && !defrag_all)
		return ctl_become(cmd, "znsctl-defrag", argv);
	x.below = (uint32_t)below;
	if (compact_weight(&x, weight, &err)) {
		ctl_fail(cmd, &err);
		return CTL_USAGE;
	}
	if (ctl_only_dev(cmd, &args))
		return CTL_USAGE;
	x.json = args.json;
	if (what && !defrag) {
		zns_fail(
			&err, -EINVAL,
			"--of works only with --defrag: other compaction goes by zones, not by containers");
		ctl_fail(cmd, &err);
		return CTL_USAGE;
	}
	if (defrag) {
		ret = defrag_all(&x, args.dev, what, &err);
		if (ret)
			ctl_fail(cmd, &err);
		compact_free(&x);
		return ret ? CTL_FAILED : CTL_OK;
	}
	ret = compact_all(&x, args.dev, &err);
	planned = x.zones != NULL;
	blocked = !ret && x.plan.nr && !x.nr_victims;
	if (planned && x.json)
		ctl_print_json(compact_json(&x));
	else if (planned)
		compact_print(&x);
	if (blocked)
		ret = zns_fail(
			&err, -ENOSPC,
			"%s has no empty zone to begin with, and no partly filled one with room: remove a checkpoint first",
			x.s.reg.path);
	else if (!ret && x.given_up && !x.moved)
		ret = zns_fail(&err, -EBUSY, "nothing was moved: %s", x.why);
	if (ret)
		ctl_fail(cmd, &err);
	compact_free(&x);
	return ret ? CTL_FAILED : CTL_OK;
}

static int cmd_compact(const struct ctl_cmd *cmd, int argc, char **argv)
{
	return compact_command(cmd, argc, argv, NULL);
}

const struct ctl_cmd command_compact = {
	"compact",
	"[DEV] [--dry-run] [--below PERCENT] [--rate MIBPS] [--weight owner|N] [--no-wait] [--defrag [--of WHAT]]",
	"empty zones with little live data by moving it together",
	"  --below PERCENT empty zones with at most so much live data (default 25)\n"
	"  --rate MIBPS    move at most so much per second\n"
	"  --weight owner  do not wait, but use the bandwidth of the owner\n"
	"                  (criu-zns(8))\n"
	"  --weight N      do not wait, but take a share of its own, 100 to 10000\n"
	"  --defrag        instead: move what makes restores slow, where that pays\n"
	"  --of WHAT       with --defrag: of this container or checkpoint (id) alone\n"
	"  --no-wait       do not wait for dumps and restores on the same dies, but slow\n"
	"                  them down\n"
	"  --dry-run       only list which zones, and how many would be free\n" CTL_DEV_HELP,
	cmd_compact,
};
