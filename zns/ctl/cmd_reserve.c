/* SPDX-License-Identifier: GPL-2.0-only */
/* reserve, release: keep groups for normal I/O */
#include <string.h>
#include "expose.h"

/* The existing reservation of @name; NULL: none. */
static const ZnsPb__Reservation *reserved(const char *dev, const char *name, ZnsPb__Response **st,
					  struct zns_err *err)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;

	req.has_status = req.status = 1;
	if (ctl_call(dev, &req, st, err))
		return NULL;
	for (size_t i = 0; (*st)->status && i < (*st)->status->n_reservations; i++) {
		const ZnsPb__Reservation *r = (*st)->status->reservations[i];

		if (!strcmp(r->container, name) && r->explicit_)
			return r;
	}
	zns_fail(err, -ENOENT, "nothing is reserved for %s: give --groups N or --channels N, too",
		 name);
	return NULL;
}

static int say(const ZnsPb__Reservation *r, const char *node, bool json)
{
	if (json) {
		struct json_object *o = ctl_json(r, "container groups");

		if (*node)
			json_object_object_add(o, "device", json_object_new_string(node));
		return ctl_print_json(o);
	}
	printf("%s holds groups", ctl_text(r->container));
	for (size_t i = 0; i < r->n_groups; i++)
		printf(" %u", r->groups[i]);
	printf("%s%s\n", *node ? ", as " : "", node);
	return CTL_OK;
}

static int cmd_reserve(const struct ctl_cmd *cmd, int argc, char **argv)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ZnsPb__Reserve q = ZNS_PB__RESERVE__INIT;
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	cleanup_answer ZnsPb__Response *r = NULL;
	const ZnsPb__Reservation *got;
	uint64_t groups = 0, channels = 0;
	struct zns_registered reg;
	bool exposed = false;
	char node[160] = "";
	const struct ctl_opt opts[] = {
		CTL_NUMBER("groups", &groups, 1, UINT32_MAX, "\"%s\" is no number"),
		CTL_NUMBER("channels", &channels, 1, UINT32_MAX, "\"%s\" is no number"),
		CTL_FLAG("expose", &exposed), CTL_DEV, CTL_OPTS_END
	};

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (args.argc > 1)
		ctl_take_dev(&args);
	if (args.argc != 1)
		return ctl_usage(cmd, "give one name");
	q.has_groups = groups > 0;
	q.groups = (uint32_t)groups;
	q.has_channels = channels > 0;
	q.channels = (uint32_t)channels;
	if (q.has_groups + q.has_channels > 1 || (!exposed && !q.has_groups && !q.has_channels))
		return ctl_usage(cmd, "give --groups N or --channels N, not both");
	if (exposed &&
	    (zns_resolve_device(args.dev, &reg, &err) || expose_check(&reg, args.argv[0], &err)))
		return ctl_fail(cmd, &err);
	q.container = args.argv[0];
	req.reserve = &q;
	if (!q.has_groups && !q.has_channels)
		got = reserved(args.dev, q.container, &r, &err);
	else
		got = ctl_call(args.dev, &req, &r, &err) ? NULL : r->reservation;
	if (!got || (exposed && expose(&reg, q.container, got, node, sizeof(node), &err)))
		return ctl_fail(cmd, &err);
	return say(got, node, args.json);
}

const struct ctl_cmd command_reserve = {
	"reserve",
	"[DEV] NAME --groups N|--channels N [--expose] | NAME --expose",
	"keep groups for normal I/O: no dump gets them",
	"  --groups N      so many groups\n  --channels N    all groups of so many channels\n"
	"  --expose        their zones as a zoned block device, for a file system\n" CTL_DEV_HELP,
	cmd_reserve,
};

static int cmd_release(const struct ctl_cmd *cmd, int argc, char **argv)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	struct zns_registered reg;
	const struct ctl_opt opts[] = { CTL_DEV, CTL_OPTS_END };

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (args.argc > 1)
		ctl_take_dev(&args);
	if (args.argc != 1)
		return ctl_usage(cmd, "give one name");
	req.release = args.argv[0];
	if (zns_resolve_device(args.dev, &reg, &err) || expose_end(&reg, args.argv[0], &err))
		return ctl_fail(cmd, &err);
	if (ctl_call(args.dev, &req, NULL, &err))
		return ctl_fail(cmd, &err);
	if (args.json)
		return ctl_print_list("released", json_object_new_string(args.argv[0]));
	printf("released %s\n", args.argv[0]);
	return CTL_OK;
}

const struct ctl_cmd command_release = {
	"release", "[DEV] NAME", "end a reservation", CTL_DEV_HELP, cmd_release,
};
