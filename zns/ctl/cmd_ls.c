// SPDX-License-Identifier: GPL-2.0-only
/* ls: the checkpoints of a device */
#include <string.h>
#include "ctl.h"

enum { OPT_CONTAINER = OPT_OWN };

/* By the name it has on the device, or the engine's name or id of it (12 digits of the id are enough). */
static bool is_of(const ZnsPb__Checkpoint *c, const char *container)
{
	const ZnsPb__Origin *o = c->origin;

	return !strcmp(container, c->container) || (o && o->container_name && !strcmp(container, o->container_name)) ||
	       (o && o->container_id && strlen(container) >= 12 && !strncmp(container, o->container_id, strlen(container)));
}

static void print_line(const ZnsPb__Checkpoint *c, bool pinned)
{
	char id[ZNS_UUID_STR], size[16], when[32], asked[16] = "-", got[16] = "-";
	const ZnsPb__Origin *o = c->origin;

	if (c->has_qos_requested_mibps && c->qos_requested_mibps)
		snprintf(asked, sizeof(asked), "%u", c->qos_requested_mibps);
	if (c->has_qos_achieved_mibps)
		snprintf(got, sizeof(got), "%.0f", c->qos_achieved_mibps);
	printf("%s  %-20s  %s  %11s  %5zu  %6zu  %6s/%-6s", c->id.len == ZNS_UUID_LEN ? zns_uuid_format(c->id.data, id) : "?",
	       ctl_text(c->container), zns_format_time(c->created_ns, when, sizeof(when)),
	       zns_format_size(c->bytes, size, sizeof(size)), c->n_zones, c->n_groups, asked, got);
	if (o && o->container_id)
		printf("  %.12s  %s", ctl_text(o->container_id), o->image ? ctl_text(o->image) : "-");
	if (c->has_parent && c->parent.len == ZNS_UUID_LEN)
		printf("  on %.8s", zns_uuid_format(c->parent.data, id));
	printf("%s%s%s%s%s\n", c->pre_dump ? "  pre-dump" : "", c->pages_only ? "  pages only" : "",
	       c->post_copy ? "  post-copy" : "", c->crypt ? "  encrypted" : "", pinned ? "  pinned" : "");
}

static struct json_object *with_pin(const ZnsPb__Response *r, const ZnsPb__Checkpoint *c)
{
	struct json_object *j = ctl_json_checkpoint(c);

	json_object_object_add(j, "pinned", json_object_new_boolean(ctl_pinned(r, c)));
	return j;
}

int cmd_ls(const struct ctl_cmd *cmd, int argc, char **argv)
{
	static const struct option opts[] = {
		{ "container", required_argument, NULL, OPT_CONTAINER },
		CTL_DEV_OPTION, CTL_COMMON_OPTIONS, CTL_END_OPTIONS,
	};
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	struct json_object *list, *j;
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	const char *container = NULL;
	ZnsPb__Response *r;
	size_t i, n = 0;
	int c;

	while ((c = ctl_getopt(cmd, argc, argv, opts, &args)) >= 0)
		container = optarg;
	if (c == -2)
		return args.code;
	if (ctl_only_dev(cmd, &args))
		return CTL_USAGE;
	req.has_ls = req.ls = 1;
	if (ctl_call(args.dev, &req, &r, &err))
		return ctl_fail(cmd, &err);
	list = json_object_new_array();
	for (i = 0; i < r->n_checkpoints; i++) {
		if (container && !is_of(r->checkpoints[i], container))
			continue;
		if (args.json)
			json_object_array_add(list, with_pin(r, r->checkpoints[i]));
		else if (!n)
			printf("%-36s  %-20s  %-20s  %11s  zones  groups  MiB/s asked/achieved  of (id, image)\n", "id", "container", "created",
			       "size");
		if (!args.json)
			print_line(r->checkpoints[i], ctl_pinned(r, r->checkpoints[i]));
		n++;
	}
	if (args.json) {
		j = json_object_new_object();
		json_object_object_add(j, "checkpoints", list);
		ctl_print_json(j);
	} else {
		json_object_put(list);
		if (!n)
			printf("no checkpoints\n");
	}
	zns_pb__response__free_unpacked(r, NULL);
	return CTL_OK;
}
