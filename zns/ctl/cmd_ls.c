// SPDX-License-Identifier: GPL-2.0-only
/* ls: the checkpoints of a device */
#include <string.h>
#include "ctl.h"

/* One letter each; the help and the manual say what they mean. */
static void flags_of(const ZnsPb__Checkpoint *c, bool pinned, char out[8])
{
	size_t n = 0;

	if (c->has_parent)
		out[n++] = 'i';
	if (c->pre_dump)
		out[n++] = 'm';
	if (c->pages_only)
		out[n++] = 'o';
	if (c->post_copy)
		out[n++] = 'l';
	if (c->crypt)
		out[n++] = 'e';
	if (pinned)
		out[n++] = 'p';
	if (!n)
		out[n++] = '-';
	out[n] = 0;
}

static void rates(const ZnsPb__Checkpoint *c, char *buf, size_t len)
{
	char asked[16] = "-", got[16] = "-";

	if (c->has_qos_requested_mibps && c->qos_requested_mibps)
		snprintf(asked, sizeof(asked), "%u", c->qos_requested_mibps);
	if (c->has_qos_achieved_mibps)
		snprintf(got, sizeof(got), "%.0f", c->qos_achieved_mibps);
	snprintf(buf, len, "%s/%s", asked, got);
}

/* A fixed part that fits 80 columns with a name of usual length behind it, which is last since it may be of any length. */
static void print_line(const ZnsPb__Checkpoint *c, bool pinned, int id_width)
{
	char id[ZNS_UUID_STR] = "?", size[16], when[32], rate[40], flags[8], name[CTL_NAME], line[CTL_NAME + 128];

	if (c->id.len == ZNS_UUID_LEN)
		zns_uuid_format(c->id.data, id);
	rates(c, rate, sizeof(rate));
	flags_of(c, pinned, flags);
	snprintf(line, sizeof(line), "%-*.*s  %s  %10s  %9s  %-5s  %s", id_width, id_width, id,
		 zns_format_time(c->created_ns, when, sizeof(when)), zns_format_size(c->bytes, size, sizeof(size)), rate, flags,
		 ctl_name(c->container, name, sizeof(name)));
	ctl_print_cut(line);
}

/* Whole ids and what else there is to say, on lines as long as it takes. */
static void print_wide(const ZnsPb__Checkpoint *c, bool pinned)
{
	char id[ZNS_UUID_STR] = "?", size[16], when[32], rate[40], name[CTL_NAME];
	const ZnsPb__Origin *o = c->origin;

	if (c->id.len == ZNS_UUID_LEN)
		zns_uuid_format(c->id.data, id);
	rates(c, rate, sizeof(rate));
	printf("%-36s  %s  %10s  %9s  %5zu  %6zu  %s", id, zns_format_time(c->created_ns, when, sizeof(when)),
	       zns_format_size(c->bytes, size, sizeof(size)), rate, c->n_zones, c->n_groups,
	       ctl_name(c->container, name, sizeof(name)));
	if (o && o->container_id)
		printf("  id %.12s", ctl_name(o->container_id, name, sizeof(name)));
	if (o && o->image)
		printf("  image %s", ctl_name(o->image, name, sizeof(name)));
	if (c->has_parent && c->parent.len == ZNS_UUID_LEN)
		printf("  on %s", zns_uuid_format(c->parent.data, id));
	printf("%s%s%s%s%s\n", c->pre_dump ? "  pre-dump" : "", c->pages_only ? "  pages only" : "",
	       c->post_copy ? "  post-copy" : "", c->crypt ? "  encrypted" : "", pinned ? "  pinned" : "");
}

static struct json_object *with_pin(const ZnsPb__Response *r, const ZnsPb__Checkpoint *c)
{
	struct json_object *j = ctl_json_checkpoint(c);

	json_object_object_add(j, "pinned", json_object_new_boolean(ctl_pinned(r, c)));
	return j;
}

/* Both are in the catalogue's order: *k is the next one that is wanted. */
static bool wanted(const struct ctl_pick *p, size_t *k, const ZnsPb__Checkpoint *c)
{
	if (*k == p->nr || c->id.len != ZNS_UUID_LEN || memcmp(p->ids[*k], c->id.data, ZNS_UUID_LEN))
		return false;
	(*k)++;
	return true;
}

static void print_all(const struct ctl_pick *p, bool wide)
{
	const ZnsPb__Response *r = p->ls;
	int width = ctl_id_width(r);
	size_t k = 0;

	if (!p->nr)
		printf("no checkpoints\n");
	else if (wide)
		printf("%-36s  %-20s  %10s  %9s  zones  groups  container\n", "id", "created", "size", "MiB/s");
	else
		printf("%-*s  %-20s  %10s  %9s  flags  container\n", width, "id", "created", "size", "MiB/s");
	for (size_t i = 0; i < r->n_checkpoints; i++) {
		const ZnsPb__Checkpoint *c = r->checkpoints[i];

		if (!wanted(p, &k, c))
			continue;
		if (wide)
			print_wide(c, ctl_pinned(r, c));
		else
			print_line(c, ctl_pinned(r, c), width);
	}
}

static void print_json(const struct ctl_pick *p)
{
	const ZnsPb__Response *r = p->ls;
	struct json_object *j = json_object_new_object(), *list = json_object_new_array();
	size_t k = 0;

	for (size_t i = 0; i < r->n_checkpoints; i++)
		if (wanted(p, &k, r->checkpoints[i]))
			json_object_array_add(list, with_pin(r, r->checkpoints[i]));
	json_object_object_add(j, "checkpoints", list);
	ctl_print_json(j);
}

/* The others take a removed one's whole id to the broker, which knows when it went; here there is just nothing to list. */
static int all_listed(const struct ctl_pick *p, struct zns_err *err)
{
	char id[ZNS_UUID_STR];

	for (size_t i = 0; p->by_id && i < p->nr; i++)
		if (!ctl_listed(p->ls, p->ids[i]))
			return zns_fail(err, -ENOENT, "no checkpoint and no registered device %s", zns_uuid_format(p->ids[i], id));
	return 0;
}

static int cmd_ls(const struct ctl_cmd *cmd, int argc, char **argv)
{
	static const struct option opts[] = {
		CTL_PICK_OPTIONS, CTL_VERBOSE_OPTION, CTL_DEV_OPTION, CTL_COMMON_OPTIONS, CTL_END_OPTIONS,
	};
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	struct ctl_pick p = { 0 };
	bool wide = false;
	int c, ret;

	while ((c = ctl_getopt(cmd, argc, argv, opts, &args)) >= 0)
		if (!ctl_pick_option(&p, c))
			wide |= c == OPT_VERBOSE;
	if (c == -2)
		return args.code;
	ctl_take_dev(&args);
	p.all |= !args.argc && !p.container && !p.pattern;
	ret = ctl_pick_open(cmd, &args, &p, 1);
	if (!ret && all_listed(&p, &err))
		ret = ctl_fail(cmd, &err);
	if (!ret && args.json)
		print_json(&p);
	else if (!ret)
		print_all(&p, wide);
	ctl_pick_end(&p);
	return ret;
}

const struct ctl_cmd command_ls = {
	"ls", "[DEV] [" CTL_PICK "] [-v]", "checkpoints",
	CTL_PICK_HELP
	"  -v, --verbose   whole ids, zones and groups, the engine's id and image, parents\n"
	"  Flags: i incremental, m pre-dump (memory only), o pages only, l post-copy (dump --lazy-pages), e encrypted,\n"
	"  p pinned. MiB/s: asked for/achieved.\n" CTL_DEV_HELP,
	cmd_ls,
};
