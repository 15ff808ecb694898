/* SPDX-License-Identifier: GPL-2.0-only */
/* ls: lists the checkpoints of a device */
#include <string.h>
#include "lib/ctl.h"

/* One letter for each flag. The help and the manual explain the letters. */
static void flags_of(const void *row, const void *arg, char *out, size_t len)
{
	const ZnsPb__Checkpoint *c = row;
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
	if (ctl_pinned(arg, c))
		out[n++] = 'p';
	if (ctl_damaged(arg, c))
		out[n++] = 'd';
	if (!n)
		out[n++] = '-';
	out[n] = 0;
}

static void rates(const void *row, const void *arg, char *buf, size_t len)
{
	const ZnsPb__Checkpoint *c = row;
	char asked[16] = "-", got[16] = "-";

	if (c->has_qos_requested_mibps && c->qos_requested_mibps)
		snprintf(asked, sizeof(asked), "%u", c->qos_requested_mibps);
	if (c->has_qos_achieved_mibps)
		snprintf(got, sizeof(got), "%.0f", c->qos_achieved_mibps);
	snprintf(buf, len, "%s/%s", asked, got);
}

static void nr_zones(const void *row, const void *arg, char *buf, size_t len)
{
	snprintf(buf, len, "%zu", ((const ZnsPb__Checkpoint *)row)->n_zones);
}

static void nr_groups(const void *row, const void *arg, char *buf, size_t len)
{
	snprintf(buf, len, "%zu", ((const ZnsPb__Checkpoint *)row)->n_groups);
}

/* The name and all remarks, without a limit of the width. */
static void wide_name(const void *row, const void *arg, char *buf, size_t len)
{
	const ZnsPb__Checkpoint *c = row;
	const ZnsPb__Origin *o = c->origin;
	char name[CTL_NAME], id[ZNS_UUID_STR];
	FILE *f = fmemopen(buf, len, "w");

	if (!f)
		return;
	fprintf(f, "%s", ctl_name(c->container, name, sizeof(name)));
	if (o && o->container_id)
		fprintf(f, "  id %.12s", ctl_name(o->container_id, name, sizeof(name)));
	if (o && o->image)
		fprintf(f, "  image %s", ctl_name(o->image, name, sizeof(name)));
	if (c->has_parent && c->parent.len == ZNS_UUID_LEN)
		fprintf(f, "  on %s", zns_uuid_format(c->parent.data, id));
	fprintf(f, "%s", ctl_marks(c, arg, name, sizeof(name)));
	fclose(f);
}

/*
 * The columns before the name fit into 80 together with a name of usual length. The name is last,
 * since it may have any length.
 */
static const struct ctl_column narrow[] = {
	{ "id", 0, "id", NULL },
	{ "created", -20, "created_ns:time", NULL },
	{ "size", 10, "bytes:size", NULL },
	{ "MiB/s", 9, NULL, rates },
	{ "flags", -5, NULL, flags_of },
	{ "container", 0, "container:name", NULL },
	CTL_COLUMNS_END,
};
static const struct ctl_column wide[] = {
	{ "id", -36, "id", NULL },           { "created", -20, "created_ns:time", NULL },
	{ "size", 10, "bytes:size", NULL },  { "MiB/s", 9, NULL, rates },
	{ "zones", 5, NULL, nr_zones },      { "groups", 6, NULL, nr_groups },
	{ "container", 0, NULL, wide_name }, CTL_COLUMNS_END,
};

/* For an ordinary disk: without the columns about zones, which mean nothing to its user. */
static const struct ctl_column of_disk[] = {
	{ "id", -36, "id", NULL },
	{ "created", -20, "created_ns:time", NULL },
	{ "size", 10, "bytes:size", NULL },
	{ "MiB/s", 9, NULL, rates },
	{ "flags", -5, NULL, flags_of },
	{ "container", 0, NULL, wide_name },
	CTL_COLUMNS_END,
};

#define FIRST 3 /* with two lines for each entry: number of columns in the first line */
#define TWO_LINES 110 /* columns; in a narrower terminal each entry of -v takes two lines */

static void print_wide(const struct ctl_column *c, const void *row, const void *arg)
{
	struct ctl_column first[FIRST + 1] = { 0 };
	struct ctl_fold fold = { 0 };
	char line[CTL_ROW];

	if (ctl_room() >= TWO_LINES) {
		puts(ctl_row(c, "  ", row, arg, line));
		return;
	}
	memcpy(first, c, FIRST * sizeof(*c));
	puts(ctl_row(first, "  ", row, arg, line));
	ctl_fold_begin(&fold);
	printf("    %s\n", ctl_row(c + FIRST, "  ", row, arg, line));
	ctl_fold_end(&fold, 4);
}

/*
 * Was @c selected? Both lists have the catalogue's order. *k: index of the next selected
 * checkpoint.
 */
static bool wanted(const struct ctl_pick *p, size_t *k, const ZnsPb__Checkpoint *c)
{
	if (*k == p->nr || c->id.len != ZNS_UUID_LEN ||
	    memcmp(p->ids[*k], c->id.data, ZNS_UUID_LEN))
		return false;
	(*k)++;
	return true;
}

static void print_all(const struct ctl_pick *p, bool all)
{
	const ZnsPb__Response *r = p->ls;
	struct ctl_column columns[ZNS_ARRAY_SIZE(narrow)];
	bool disk = zns_spec_on_disk(p->reg.path);
	const struct ctl_column *c = !all ? columns : disk ? of_disk : wide;
	char line[CTL_ROW];
	size_t k = 0;

	memcpy(columns, narrow, sizeof(narrow));
	columns[0].width = -ctl_id_width(r);
	if (!p->nr)
		puts("no checkpoints");
	else if (all)
		print_wide(c, NULL, NULL);
	else
		puts(ctl_row(c, "  ", NULL, NULL, line));
	for (size_t i = 0; i < r->n_checkpoints; i++) {
		if (!wanted(p, &k, r->checkpoints[i]))
			continue;
		if (all)
			print_wide(c, r->checkpoints[i], r);
		else
			ctl_print_cut(ctl_row(c, "  ", r->checkpoints[i], r, line));
	}
}

static void print_json(const struct ctl_pick *p)
{
	struct ctl_list list;
	size_t k = 0;

	ctl_list_begin(&list, "checkpoints");
	for (size_t i = 0; i < p->ls->n_checkpoints; i++) {
		const ZnsPb__Checkpoint *c = p->ls->checkpoints[i];

		if (!wanted(p, &k, c))
			continue;
		ctl_list_add(&list, c, ctl_checkpoint_fields, "pinned", ctl_pinned(p->ls, c),
			     "damaged", ctl_damaged(p->ls, c), NULL);
	}
	ctl_list_end(&list);
}

/*
 * Fails if a selected id is not in the list. Other commands pass the id of a removed checkpoint to
 * the broker, which knows when it was removed. ls has nothing to show for it.
 */
static int all_listed(const struct ctl_pick *p, struct zns_err *err)
{
	char id[ZNS_UUID_STR];

	for (size_t i = 0; p->by_id && i < p->nr; i++)
		if (!ctl_listed(p->ls, p->ids[i]))
			return zns_fail(err, -ENOENT, "no checkpoint and no registered device %s",
					zns_uuid_format(p->ids[i], id));
	return 0;
}

static int cmd_ls(const struct ctl_cmd *cmd, int argc, char **argv)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	struct ctl_pick p = { 0 };
	bool verbose = false;
	int ret;
	const struct ctl_opt opts[] = { CTL_PICKS(&p), CTL_FLAG("verbose", &verbose), CTL_DEV,
					CTL_OPTS_END };

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	ctl_take_dev(&args);
	p.all |= !args.argc && !p.container && !p.pattern;
	ret = ctl_pick_open(cmd, &args, &p, 1);
	if (!ret && all_listed(&p, &err))
		ret = ctl_fail(cmd, &err);
	if (!ret && args.json)
		print_json(&p);
	else if (!ret)
		print_all(&p, verbose);
	ctl_pick_end(&p);
	return ret;
}

const struct ctl_cmd command_ls = {
	"ls",
	"[DEV] [" CTL_PICK "] [-v]",
	"checkpoints",
	CTL_PICK_HELP
	"  -v, --verbose   whole ids, parents, zones, groups, the engine's id and image\n"
	"  Flags: i incremental, m pre-dump (memory only), o pages only, l post-copy\n"
	"  (dump --lazy-pages), e encrypted, p pinned, d damaged (by verify).\n"
	"  MiB/s: asked for/achieved.\n" CTL_DEV_HELP,
	cmd_ls,
};
