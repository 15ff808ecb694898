/* SPDX-License-Identifier: GPL-2.0-only */
/* reserve, release: keep groups free of dumps, for normal I/O */
#include "lib/ctl.h"

static int cmd_reserve(const struct ctl_cmd *cmd, int argc, char **argv)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ZnsPb__Reserve q = ZNS_PB__RESERVE__INIT;
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	cleanup_answer ZnsPb__Response *r = NULL;
	uint64_t groups = 0, channels = 0;
	const struct ctl_opt opts[] = {
		CTL_NUMBER("groups", &groups, 1, UINT32_MAX, "\"%s\" is no number"),
		CTL_NUMBER("channels", &channels, 1, UINT32_MAX, "\"%s\" is no number"), CTL_DEV,
		CTL_OPTS_END
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
	if (q.has_groups == q.has_channels)
		return ctl_usage(cmd, "give --groups N or --channels N, not both");
	q.container = args.argv[0];
	req.reserve = &q;
	if (ctl_call(args.dev, &req, &r, &err))
		return ctl_fail(cmd, &err);
	if (args.json)
		return ctl_print_json(ctl_json(r->reservation, "container groups"));
	printf("%s holds groups", ctl_text(r->reservation->container));
	for (size_t i = 0; i < r->reservation->n_groups; i++)
		printf(" %u", r->reservation->groups[i]);
	printf("\n");
	return CTL_OK;
}

const struct ctl_cmd command_reserve = {
	"reserve",
	"[DEV] NAME --groups N|--channels N",
	"keep groups for normal I/O: no dump gets them",
	"  --groups N      so many groups\n  --channels N    all groups of so many channels\n" CTL_DEV_HELP,
	cmd_reserve,
};

static int cmd_release(const struct ctl_cmd *cmd, int argc, char **argv)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	const struct ctl_opt opts[] = { CTL_DEV, CTL_OPTS_END };

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (args.argc > 1)
		ctl_take_dev(&args);
	if (args.argc != 1)
		return ctl_usage(cmd, "give one name");
	req.release = args.argv[0];
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
