// SPDX-License-Identifier: GPL-2.0-only
/* compact: empty zones that hold little live data, by moving it together */
#include <string.h>
#include "compaction.h"

enum { OPT_DRY_RUN = OPT_OWN, OPT_BELOW, OPT_RATE, OPT_BACKGROUND, OPT_NO_WAIT };

static int cmd_compact(const struct ctl_cmd *cmd, int argc, char **argv)
{
	static const struct option opts[] = {
		{ "dry-run", no_argument, NULL, OPT_DRY_RUN },
		{ "below", required_argument, NULL, OPT_BELOW },
		{ "rate", required_argument, NULL, OPT_RATE },
		{ "background", no_argument, NULL, OPT_BACKGROUND },
		{ "no-wait", no_argument, NULL, OPT_NO_WAIT },
		CTL_DEV_OPTION, CTL_COMMON_OPTIONS, CTL_END_OPTIONS,
	};
	struct compact x = { .below = COMPACT_BELOW };
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	bool blocked, planned;
	uint64_t n;
	int c, ret;

	while ((c = ctl_getopt(cmd, argc, argv, opts, &args)) >= 0) {
		x.dry_run |= c == OPT_DRY_RUN;
		x.background |= c == OPT_BACKGROUND;
		x.rude |= c == OPT_NO_WAIT;
		if (c == OPT_BELOW) {
			if (zns_parse_number(optarg, 1, 100, &n))
				return ctl_usage(cmd, "--below \"%.20s\": 1 to 100 per cent of a zone", optarg);
			x.below = (uint32_t)n;
		}
		if (c == OPT_RATE && zns_parse_mibps(optarg, &x.rate_mibps))
			return ctl_usage(cmd, "--rate \"%.20s\" is no rate: 100, 100MiB/s, 1GiB/s", optarg);
	}
	if (c == -2)
		return args.code;
	if (ctl_only_dev(cmd, &args))
		return CTL_USAGE;
	x.json = args.json;
	ret = compact_all(&x, args.dev, &err);
	planned = x.zones != NULL;
	blocked = !ret && x.plan.nr && !x.nr_victims;
	if (planned && x.json)
		ctl_print_json(compact_json(&x));
	else if (planned)
		compact_print(&x);
	if (blocked)
		ret = zns_fail(&err, -ENOSPC, "%s has no empty zone to begin with, and no partly filled one with room: remove a checkpoint first",
			       x.s.reg.path);
	else if (!ret && x.given_up && !x.moved)
		ret = zns_fail(&err, -EBUSY, "nothing was moved: %s", x.why);
	if (ret)
		ctl_fail(cmd, &err);
	compact_free(&x);
	return ret ? CTL_FAILED : CTL_OK;
}

const struct ctl_cmd command_compact = {
	"compact", "[DEV] [--dry-run] [--below PERCENT] [--rate MIBPS] [--no-wait]", "empty zones with little live data by moving it together",
	"  --below PERCENT empty zones that are live to this part at most (default 25)\n"
	"  --rate MIBPS    go no faster than this\n"
	"  --no-wait       do not wait for dumps and restores on the same dies, but slow them down\n"
	"  --dry-run       only list which zones, and how many would be free\n" CTL_DEV_HELP,
	cmd_compact,
};
