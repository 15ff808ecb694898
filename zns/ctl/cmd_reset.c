/* SPDX-License-Identifier: GPL-2.0-only */
/* reset: zones without live data */
#include <string.h>
#include "lib/ctl.h"

enum { OPT_ZONE = OPT_OWN, OPT_GARBAGE, OPT_DRY_RUN };

struct list {
	uint32_t *v;
	size_t n;
};

static int list_add(struct list *l, uint32_t zone)
{
	uint32_t *v = realloc(l->v, (l->n + 1) * sizeof(*v));

	if (!v)
		return -ENOMEM;
	l->v = v;
	l->v[l->n++] = zone;
	return 0;
}

/* Shows what the broker would reset now. A real request decides again. */
static int preview(const ZnsPb__Response *r, const struct list *ask, struct list *out,
		   struct zns_err *err)
{
	size_t i, k;

	for (i = 0; i < r->n_zones; i++) {
		const ZnsPb__ZoneLine *z = r->zones[i];
		bool free_of = !z->owner && !z->live && z->state != ZNS_ZONE_READ_ONLY &&
			       z->state != ZNS_ZONE_OFFLINE;

		for (k = 0; k < ask->n && ask->v[k] != z->index; k++)
			;
		if (ask->n && k == ask->n)
			continue;
		if (ask->n && !free_of)
			return zns_fail(err, -EBUSY,
					"zone %u is %s, in use by %s: it cannot be reset", z->index,
					zns_zone_state_name(z->state),
					z->owner ? z->owner : "nobody");
		if (free_of && z->state != ZNS_ZONE_EMPTY && list_add(out, z->index))
			return zns_fail(err, -ENOMEM, "no memory for a list of zones");
	}
	for (k = 0; k < ask->n; k++)
		if (ask->v[k] >= r->n_zones)
			return zns_fail(err, -EINVAL, "no zone %u: the device has %zu", ask->v[k],
					r->n_zones);
	return 0;
}

static int print(const struct ctl_args *args, bool dry_run, const uint32_t *zones, size_t n)
{
	size_t i;

	if (args->json)
		return ctl_print_json(
			ctl_obj(J("reset", ctl_json_u32s(zones, n)), J("dry_run", dry_run)));
	printf(dry_run ? "would reset %zu zones" : "reset %zu zones", n);
	for (i = 0; i < n; i++)
		printf("%s %u", i ? "" : ":", zones[i]);
	printf("\n");
	return CTL_OK;
}

static int cmd_reset(const struct ctl_cmd *cmd, int argc, char **argv)
{
	static const struct option opts[] = {
		{ "zone", required_argument, NULL, OPT_ZONE },
		{ "all-garbage", no_argument, NULL, OPT_GARBAGE },
		{ "dry-run", no_argument, NULL, OPT_DRY_RUN },
		CTL_DEV_OPTION,
		CTL_COMMON_OPTIONS,
		CTL_END_OPTIONS,
	};
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ZnsPb__ZonesReset q = ZNS_PB__ZONES_RESET__INIT;
	struct list ask = { 0 }, would = { 0 };
	struct zns_err err = ZNS_ERR_INIT;
	bool garbage = false, dry_run = false;
	struct ctl_args args = { 0 };
	cleanup_answer ZnsPb__Response *r = NULL;
	uint64_t n;
	int c, ret = CTL_OK;

	while ((c = ctl_getopt(cmd, argc, argv, opts, &args)) >= 0) {
		if (c == OPT_ZONE && zns_parse_number(optarg, 0, UINT32_MAX, &n)) {
			ret = ctl_usage(cmd, "\"%s\" is no number of a zone", optarg);
			goto out;
		}
		if (c == OPT_ZONE && list_add(&ask, n)) {
			ret = ctl_oom(cmd);
			goto out;
		}
		garbage |= c == OPT_GARBAGE;
		dry_run |= c == OPT_DRY_RUN;
	}
	if (c == -2) {
		ret = args.code;
		goto out;
	}
	if (!args.dev && args.argc == 1)
		args.dev = *args.argv++, args.argc--;
	if (args.argc || garbage == (ask.n > 0)) {
		ret = ctl_usage(cmd,
				"give --zone N or --all-garbage, not both, and one device at most");
		goto out;
	}
	if (dry_run) {
		req.has_zones = req.zones = 1;
	} else {
		q.zones = ask.v;
		q.n_zones = ask.n;
		req.reset = &q;
	}
	if (ctl_call(args.dev, &req, &r, &err) || (dry_run && preview(r, &ask, &would, &err)))
		ret = ctl_fail(cmd, &err);
	else if (dry_run)
		ret = print(&args, true, would.v, would.n);
	else
		ret = print(&args, false, r->reset_zones, r->n_reset_zones);
out:
	free(ask.v);
	free(would.v);
	return ret;
}

const struct ctl_cmd command_reset = {
	"reset",
	"[DEV] --zone N...|--all-garbage",
	"reset zones that hold nothing live",
	"  --zone N        this zone; may be given several times\n  --all-garbage   all zones without live data\n"
	"  --dry-run       only say which would be reset\n" CTL_DEV_HELP,
	cmd_reset,
};
