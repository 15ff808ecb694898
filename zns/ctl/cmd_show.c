/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * show: one checkpoint, or all of a container, from the device; for a handle's directory, also its
 * plain copies
 */
#include <fcntl.h>
#include <string.h>
#include "lib/ctl.h"
#include "show.h"
#include "zns/crypt.h"
#include "zns/handle.h"
#include "zns/image_map.h"
#include "zns/store.h"

struct handle_info {
	const ZnsPb__Handle *h; /* the handle; NULL: none was given */
	int differ; /* number of copies that differ */
	struct zns_err which;
};

/* Checks the plain copies beside a handle: are they as they were written? */
static void check_copies(const char *dir, const ZnsPb__Handle *h, struct handle_info *hi)
{
	cleanup_close int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return;
	hi->h = h;
	hi->differ = zns_handle_check_copies(fd, h, &hi->which);
}

/* The places of all data of the checkpoint, including padding, footer and manifest. */
static const char places[] = "zone_uses=zones{zone start len} manifest?{zone start len}";
static const char image[] =
	"name beside! part! size unit segments{off len extents{zone start weight!}}";

/* The JSON of an image. A composed image has no place of its own; its parts are shown instead. */
static struct json_object *image_json(const ZnsPb__Manifest *m, const ZnsPb__Image *im)
{
	struct json_object *j = ctl_json(im, image), *from;

	if (!im->map)
		return j;
	from = json_object_new_array();
	for (size_t f = 0; f < im->map->n_from; f++)
		json_object_array_add(from,
				      json_object_new_string(m->images[im->map->from[f]]->name));
	return ctl_json_join(j, ctl_obj(J("composed_of", from), J("runs", zns_map_runs(im->map))));
}

/*
 * The pages to fetch first, for restores. Of an encrypted checkpoint they can only be read with its
 * key.
 */
static struct json_object *first_json(const ZnsPb__FirstPages *f)
{
	char when[32];

	return f ? ctl_obj(J("recorded", zns_format_time(f->recorded_ns, when, sizeof(when))),
			   J("recorded_ns", f->recorded_ns), J("record_bytes", f->runs.len)) :
		   NULL;
}

static struct json_object *to_json(const ZnsPb__Checkpoint *c, const ZnsPb__Response *answer,
				   const ZnsPb__Manifest *m, const struct zns_registered *reg,
				   const struct handle_info *hi)
{
	struct json_object *j = ctl_json_checkpoint(c), *images = json_object_new_array();
	const ZnsPb__RestoreStat *last = answer->restore;

	for (size_t i = 0; i < m->n_images; i++)
		json_object_array_add(images, image_json(m, m->images[i]));
	json_object_object_add(j, "images", images);
	ctl_json_add(j, c->base.descriptor, c, places);
	json_object_object_add(j, "device", ctl_json_uuid(reg->uuid));
	json_object_object_add(j, "path", json_object_new_string(reg->path));
	json_object_object_add(j, "last_restore", last ? ctl_json(last, ctl_restore_fields) : NULL);
	json_object_object_add(j, "first_pages", first_json(answer->first_pages));
	if (hi->h)
		json_object_object_add(j, "handle",
				       ctl_obj(J("copies", hi->h->n_copies),
					       J("differ", hi->differ),
					       J("which", hi->differ ? hi->which.msg : NULL)));
	return j;
}

static void print_composed(const ZnsPb__Manifest *m, const ZnsPb__Image *im)
{
	int at = printf("    composed of %u runs of", zns_map_runs(im->map));

	for (size_t f = 0; f < im->map->n_from; f++)
		ctl_print_word(ctl_text(m->images[im->map->from[f]]->name), 7, &at);
	printf("\n");
}

static void print_image(const ZnsPb__Manifest *m, const ZnsPb__Image *im, bool disk)
{
	char size[16], one[64], weight[16];
	size_t s, e;
	int at;

	printf("  %-32s %11s", ctl_text(im->name), zns_format_size(im->size, size, sizeof(size)));
	if (im->map) {
		printf("\n");
		print_composed(m, im);
		return;
	}
	printf("  unit %u KiB%s\n", im->unit >> 10, im->part ? ", part of others" : "");
	for (s = 0; s < im->n_segments && !disk; s++) {
		const ZnsPb__Segment *seg = im->segments[s];

		at = printf("    bytes %llu+%llu in zones", (unsigned long long)seg->off,
			    (unsigned long long)seg->len);
		for (e = 0; e < seg->n_extents; e++) {
			snprintf(weight, sizeof(weight), seg->extents[e]->weight == 1 ? "" : "x%u",
				 seg->extents[e]->weight);
			snprintf(one, sizeof(one), "%u@%llu%s", seg->extents[e]->zone,
				 (unsigned long long)seg->extents[e]->start, weight);
			ctl_print_word(one, 7, &at);
		}
		printf("\n");
	}
}

/* Prints the places as "zone@start+bytes". */
static void print_uses(const ZnsPb__Checkpoint *c)
{
	char one[80];
	int at = printf("zones      ");

	for (size_t i = 0; i < c->n_zones; i++) {
		snprintf(one, sizeof(one), "%u@%llu+%llu", c->zones[i]->zone,
			 (unsigned long long)c->zones[i]->start,
			 (unsigned long long)c->zones[i]->len);
		ctl_print_word(one, 11, &at);
	}
	printf("\n");
}

static void print_places(const ZnsPb__Checkpoint *c)
{
	printf("%-11s", c->n_groups == 1 ? "group" : "groups");
	for (size_t i = 0; i < c->n_groups; i++)
		printf("%s %u", i ? "," : "", c->groups[i]);
	if (c->shared_groups)
		printf(" (%u of %zu shared)", c->shared_groups, c->n_groups);
	else
		printf(" (not shared)");
	for (size_t i = 0; i < c->n_metadata_groups; i++)
		printf("%s%u", i ? ", " : "; metadata on ", c->metadata_groups[i]);
	printf("%s\n", c->packed ? ", small: zones shared with others" : "");
	print_uses(c);
}

static void print_live(const ZnsPb__Live *l)
{
	uint64_t sum = 0;
	char text[32];

	for (size_t i = 0; i < l->n_rounds; i++)
		sum += l->rounds[i]->bytes;
	printf("live        tracker %s, %s copied in %zu rounds while it ran%s\n",
	       ctl_text(l->tracker), zns_format_size(sum, text, sizeof(text)), l->n_rounds,
	       l->not_converging ? "; it wrote faster than it was copied" : "");
	for (size_t i = 0; i < l->n_rests; i++) {
		printf("            %s in the freeze: %s",
		       zns_format_size(l->rests[i]->bytes, text, sizeof(text)),
		       ctl_text(l->rests[i]->why));
		if (l->rests[i]->has_pid)
			printf(" (task %u)", l->rests[i]->pid);
		printf("\n");
	}
}

static int print_text(const ZnsPb__Checkpoint *c, const ZnsPb__Response *ls,
		      const ZnsPb__Response *answer, const ZnsPb__Manifest *m,
		      const struct zns_registered *reg, const struct handle_info *hi)
{
	char id[ZNS_UUID_STR], when[32], size[16], pages[16], name[CTL_NAME];
	const ZnsPb__RestoreStat *last = answer->restore;
	bool disk = zns_spec_on_disk(reg->path);
	const ZnsPb__Checkpoint *child;
	size_t i, at;

	printf("checkpoint  %s\n", zns_uuid_format(c->id.data, id));
	printf("container   %s\n", ctl_name(c->container, name, sizeof(name)));
	if (c->origin && c->origin->container_id)
		printf("            id %s, name %s, image %s%s%s\n",
		       ctl_text(c->origin->container_id),
		       c->origin->container_name ? ctl_text(c->origin->container_name) : "-",
		       c->origin->image ? ctl_text(c->origin->image) : "-",
		       c->origin->checkpoint_name ? ", checkpoint " : "",
		       c->origin->checkpoint_name ? ctl_text(c->origin->checkpoint_name) : "");
	printf("device      %s\n", reg->path);
	printf("created     %s\n", zns_format_time(c->created_ns, when, sizeof(when)));
	if (c->origin && c->origin->kind)
		printf("made by     %s%s%s%s%s\n", ctl_text(c->origin->kind),
		       c->origin->host ? " on " : "",
		       c->origin->host ? ctl_text(c->origin->host) : "",
		       c->origin->image_dir ? " into " : "",
		       c->origin->image_dir ? ctl_text(c->origin->image_dir) : "");
	if (c->origin && c->origin->claimed)
		printf("retention   does not count it: the import named no container (--as)\n");
	if (c->has_parent && c->parent.len == ZNS_UUID_LEN) {
		printf("parent      %s", zns_uuid_format(c->parent.data, id));
		if (c->has_parent_bytes)
			printf(", which has %s of its memory pages",
			       zns_format_size(c->parent_bytes, size, sizeof(size)));
		printf("\n");
	}
	if (c->pre_dump)
		printf("            a pre-dump: memory only, a parent for others\n");
	for (at = 0; ls && (child = ctl_next_child(ls, c, &at));)
		printf("child       %s\n", zns_uuid_format(child->id.data, id));
	if (c->crypt && c->crypt->has_wrapped)
		printf("encrypted   AES-256-GCM, key %s\n",
		       zns_key_id_format(c->crypt->key_id.data, id));
	else if (c->crypt)
		printf("encrypted   its key is gone: the data cannot be read any more\n");
	printf("size        %s in %u images, %s of it memory pages\n",
	       zns_format_size(c->bytes, size, sizeof(size)), c->nr_images,
	       zns_format_size(c->page_bytes, pages, sizeof(pages)));
	if (c->memory_bytes)
		printf("%s %s of it, as memory of a context: not written by the dump\n",
		       disk ? "on disk    " : "on zones   ",
		       zns_format_size(c->memory_bytes, pages, sizeof(pages)));
	if (c->pages_only)
		printf("            pages only, from a page server: `znsctl import --join` adds the other images\n");
	if (c->post_copy)
		printf("            without the pages that dump --lazy-pages left to be fetched\n");
	printf("bandwidth   ");
	if (c->has_qos_requested_mibps && c->qos_requested_mibps)
		printf("%u MiB/s asked, ", c->qos_requested_mibps);
	if (c->has_qos_max_mibps)
		printf("at most %u, ", c->qos_max_mibps);
	if (c->has_qos_achieved_mibps)
		printf("%.0f MiB/s achieved", c->qos_achieved_mibps);
	else
		printf("too short to rate");
	if (c->has_data_phase_us)
		printf(", data phase %.2f s", (double)c->data_phase_us / 1e6);
	printf("\n");
	if (c->has_frozen_us)
		printf("frozen      %.1f ms\n", c->frozen_us / 1000.0);
	if (c->live)
		print_live(c->live);
	if (!disk)
		print_places(c);
	if (last) {
		printf("restored    ");
		if (last->checkpoint.len != ZNS_UUID_LEN ||
		    memcmp(last->checkpoint.data, c->id.data, ZNS_UUID_LEN))
			printf("(another checkpoint of %s) ", ctl_text(c->container));
		ctl_print_restore(last);
	}
	if (answer->first_pages)
		printf("first pages recorded %s: a lazy restore brings them first\n",
		       zns_format_time(answer->first_pages->recorded_ns, when, sizeof(when)));
	if (hi->h && hi->differ)
		printf("handle      %d of %zu plain copies are not as written (%s); the device is authoritative\n",
		       hi->differ, hi->h->n_copies, hi->which.msg);
	else if (hi->h)
		printf("handle      %zu plain copies, all as written\n", hi->h->n_copies);
	printf("images\n");
	for (i = 0; i < m->n_images; i++)
		print_image(m, m->images[i], disk);
	return CTL_OK;
}

/* Shows one checkpoint, named by its id or its handle. */
static int show_one(const char *dev, const uint8_t *uuid, const char *dir,
		    const ZnsPb__Handle *handle, const ZnsPb__Response *ls, bool json,
		    struct zns_err *err)
{
	struct handle_info hi = { .h = NULL };
	char id[ZNS_UUID_STR];
	struct ctl_fold fold;
	struct ctl_hold h;
	int ret = ctl_hold_open(&h, dev, zns_uuid_format(uuid, id), err);

	if (!ret && handle) {
		ret = zns_handle_agrees(handle, h.c, err);
		if (!ret)
			ret = zns_crypt_check_handle(NULL, handle, h.m, err);
		if (ret)
			ctl_hold_close(&h);
	}
	if (ret)
		return ret;
	if (handle)
		check_copies(dir, handle, &hi);
	if (json) {
		ctl_print_json(to_json(h.c, h.answer, h.m, &h.s.reg, &hi));
	} else {
		ctl_fold_begin(&fold);
		print_text(h.c, ls, h.answer, h.m, &h.s.reg, &hi);
		ctl_fold_end(&fold, 0);
	}
	ctl_hold_close(&h);
	return 0;
}

struct tree {
	const char *dev;
	const ZnsPb__Response *ls;
	struct json_object *list; /* output for JSON; NULL: print text */
	int width;
	bool verbose;
};

static int show_leaf(const struct tree *t, const ZnsPb__Checkpoint *c, struct zns_err *err)
{
	const struct handle_info none = { .h = NULL };
	char id[ZNS_UUID_STR];
	struct ctl_hold h;
	int ret = ctl_hold_open(&h, t->dev, zns_uuid_format(c->id.data, id), err);

	if (ret == -ESTALE) /* it was removed meanwhile */
		ret = err->code = 0;
	else if (!ret && t->list)
		json_object_array_add(t->list, to_json(h.c, h.answer, h.m, &h.s.reg, &none));
	else if (!ret)
		show_branch(h.c, h.m, t->ls, t->width, t->verbose, !zns_spec_on_disk(h.s.reg.path));
	if (!ret)
		ctl_hold_close(&h);
	return ret;
}

/* Shows containers in the order of their first checkpoint, and the checkpoints of each by time. */
static int show_tree(const struct tree *t, const struct ctl_pick *p, struct zns_err *err)
{
	cleanup_free const ZnsPb__Checkpoint **v = calloc(p->nr + 1, sizeof(*v));
	size_t n = 0;
	int ret = 0;

	if (!v)
		return zns_fail(err, -ENOMEM, "no memory for a list of checkpoints");
	for (size_t i = 0; i < t->ls->n_checkpoints; i++)
		if (n < p->nr && !memcmp(p->ids[n], t->ls->checkpoints[i]->id.data, ZNS_UUID_LEN))
			v[n++] = t->ls->checkpoints[i];
	for (size_t i = 0; i < n && !ret; i++) {
		const char *container = v[i] ? v[i]->container : NULL;

		if (container && !t->list)
			show_container(v + i, n - i);
		for (size_t k = i; container && k < n && !ret; k++) {
			if (!v[k] || strcmp(v[k]->container, container))
				continue;
			ret = show_leaf(t, v[k], err);
			v[k] = NULL;
		}
	}
	if (!t->list && !ret && !n)
		printf("no checkpoints\n");
	return ret;
}

int show_command(const struct ctl_cmd *cmd, int argc, char **argv, show_layout_fn show_layouts)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	struct json_object *list;
	struct ctl_pick p = { 0 };
	bool verbose = false, layout = false;
	int ret;
	const struct ctl_opt opts[] = { CTL_PICKS(&p), CTL_FLAG("verbose", &verbose),
					CTL_FLAG("layout", &layout), CTL_DEV, CTL_OPTS_END };

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (layout && !show_layouts)
		return ctl_become(cmd, "znsctl-defrag", argv);
	ret = ctl_pick_open(cmd, &args, &p, 1);
	if (ret) {
		ctl_pick_end(&p);
		return ret;
	}
	/* close this connection: each checkpoint is read with a lease on a connection of its own */
	zns_broker_close(&p.broker);
	list = args.json ? json_object_new_array() : NULL;
	if (layout)
		ret = show_layouts(args.dev, &p, list, &err);
	else if (p.by_id)
		ret = show_one(args.dev, p.ids[0], p.argv[0], p.handle[0], p.ls, args.json, &err);
	else
		ret = show_tree(&(struct tree){ args.dev, p.ls, list, ctl_id_width(p.ls), verbose },
				&p, &err);
	if (!ret && (!p.by_id || layout) && list)
		ctl_print_list("checkpoints", json_object_get(list));
	json_object_put(list);
	ctl_pick_end(&p);
	return ret ? ctl_fail(cmd, &err) : CTL_OK;
}

static int cmd_show(const struct ctl_cmd *cmd, int argc, char **argv)
{
	return show_command(cmd, argc, argv, NULL);
}

const struct ctl_cmd command_show = {
	"show",
	"[DEV] " CTL_PICK " [-v|--layout]",
	"one checkpoint, its images and their places; or a container's tree",
	CTL_PICK_HELP
	"  -v, --verbose   of a tree: each image\n"
	"  --layout        how fast it can be read as it lies, of what its groups give\n" CTL_DEV_HELP,
	cmd_show,
};
