/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * gc: removes checkpoints that runtimes have left behind, applies retention rules, resets garbage
 * zones
 */
#include <string.h>
#include "compact/compaction.h"
#include "gc.h"
#include "zns/retention.h"

#define GRACE_S 3600

enum verdict { V_KEEP, V_REMOVE, V_MARK, V_UNMARK };

struct item {
	const ZnsPb__Checkpoint *c;
	const ZnsPb__Mark *mark;
	enum verdict v;
	bool swept; /* a sweep may remove it, by its origin (gc.h) */
	char why[200];
	bool failed;
};

struct gc {
	struct zns_broker b;
	struct item *item;
	size_t nr;
	uint64_t grace_s;
	/*
	 * s; checkpoints that have pages only are removed if they are older than this; UINT64_MAX:
	 * none is removed
	 */
	uint64_t unjoined_s;
	bool dry_run, json;
	ZnsPb__Response *ls;
	/*
	 * zones that are reset, or would be in a dry run: garbage zones, and zones whose data all
	 * belong to checkpoints that are removed
	 */
	uint32_t *zones;
	size_t nr_zones;
	bool disk;
	uint64_t unit; /* for an ordinary disk: size of a zone in bytes */
	/* the compaction's result; NULL: not requested or not done */
	const struct compact *compacted;
};

/*
 * Decides by the checkpoint's origin. Its owner must be found gone twice, at least a grace period
 * apart.
 */
static void judge_origin(struct gc *g, struct item *i, int64_t now)
{
	char since[32];
	enum gc_life l;

	if (!gc_swept(i->c))
		return;
	i->swept = true;
	l = gc_life(i->c, i->why, sizeof(i->why));
	if (l == GC_NEEDED && i->mark && i->mark->has_gone_ns)
		i->v = V_UNMARK;
	if (l != GC_GONE)
		return;
	if (!i->mark || !i->mark->has_gone_ns) {
		i->v = g->grace_s ? V_MARK : V_REMOVE;
	} else if (now >= i->mark->gone_ns &&
		   (uint64_t)(now - i->mark->gone_ns) / 1000000000 >= g->grace_s) {
		i->v = V_REMOVE;
		snprintf(i->why + strlen(i->why), sizeof(i->why) - strlen(i->why),
			 ", missed since %s",
			 zns_format_time(i->mark->gone_ns, since, sizeof(since)));
	}
}

/*
 * Decides about a checkpoint that has pages only. A migration may complete it later, or never: only
 * the user knows, who sets the age.
 */
static void judge_pages(const struct gc *g, struct item *i, int64_t now)
{
	i->swept = true;
	snprintf(
		i->why, sizeof(i->why),
		"has pages only: `znsctl import --join` adds the other images, `znsctl rm` removes it");
	if (now >= i->c->created_ns &&
	    (uint64_t)(now - i->c->created_ns) / 1000000000 >= g->unjoined_s)
		i->v = V_REMOVE;
}

/*
 * Decides by a retention rule. This also marks parents whose children stay: keep_parents() corrects
 * that later.
 */
static void judge_rule(struct gc *g, const ZnsPb__Retention *rule, int64_t now)
{
	cleanup_free struct zns_ruled *v = calloc(g->nr + 1, sizeof(*v));
	char text[CTL_RULE];

	for (size_t i = 0; v && i < g->nr; i++)
		v[i] = (struct zns_ruled){ .c = g->item[i].c,
					   .pinned = g->item[i].mark && g->item[i].mark->pinned };
	if (!v || zns_retention_rule(rule, v, g->nr, now) < 0)
		return;
	for (size_t i = 0; i < g->nr; i++) {
		struct item *it = &g->item[i];

		if (!(v[i].due || v[i].held) || it->v == V_REMOVE)
			continue;
		it->v = V_REMOVE;
		snprintf(it->why, sizeof(it->why), "retention of its container: %s",
			 ctl_rule(rule, text, sizeof(text)));
	}
}

/*
 * A checkpoint that stays needs its parents, so they stay too. In the list children come after
 * their parents.
 */
static void keep_parents(struct gc *g)
{
	char id[ZNS_UUID_STR];

	for (size_t i = g->nr; i-- > 0;) {
		const ZnsPb__Checkpoint *c = g->item[i].c;

		if (g->item[i].v == V_REMOVE || !c->has_parent)
			continue;
		for (size_t k = i; k-- > 0;) {
			struct item *p = &g->item[k];

			if (p->c->id.len != c->parent.len ||
			    memcmp(p->c->id.data, c->parent.data, c->parent.len))
				continue;
			if (p->v == V_REMOVE) {
				p->v = V_KEEP;
				snprintf(p->why, sizeof(p->why), "%s is built on it",
					 zns_uuid_format(c->id.data, id));
			}
			break;
		}
	}
}

static int judge(struct gc *g, struct zns_err *err)
{
	int64_t now = zns_now_ns();
	int ret = ctl_ls(&g->b, &g->ls, err);

	if (ret)
		return ret;
	g->nr = g->ls->n_checkpoints;
	g->item = calloc(g->nr + 1, sizeof(*g->item));
	if (!g->item)
		return zns_fail(err, -ENOMEM, "no memory for a list of checkpoints");
	for (size_t i = 0; i < g->nr; i++) {
		struct item *it = &g->item[i];

		it->c = g->ls->checkpoints[i];
		it->mark = ctl_mark_of(g->ls, it->c);
		if (it->mark && it->mark->pinned)
			continue;
		if (it->c->pages_only)
			judge_pages(g, it, now);
		else
			judge_origin(g, it, now);
	}
	for (size_t i = 0; i < g->ls->n_retentions; i++)
		judge_rule(g, g->ls->retentions[i], now);
	keep_parents(g);
	return 0;
}

static int set_mark(struct gc *g, struct item *i, struct zns_err *err)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ZnsPb__Mark m = ZNS_PB__MARK__INIT;

	m.checkpoint = i->c->id;
	m.has_gone_ns = 1;
	m.gone_ns = i->v == V_MARK ? zns_now_ns() : 0;
	req.mark = &m;
	return ctl_tell(&g->b, &req, err);
}

static int remove_item(struct gc *g, struct item *i, struct zns_err *err)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ZnsPb__Rm rm = ZNS_PB__RM__INIT;
	ProtobufCBinaryData id = i->c->id;
	char by[200];

	snprintf(by, sizeof(by), "znsctl gc (%.150s)", i->why);
	rm.checkpoints = &id;
	rm.n_checkpoints = 1;
	rm.by = by;
	req.rm = &rm;
	return ctl_tell(&g->b, &req, err);
}

/*
 * Removes the checkpoints, with one request for each: if one was pinned meanwhile, the others are
 * still removed.
 */
static int apply(struct gc *g, struct zns_err *err)
{
	int first = 0;

	/* from the end, to remove children before their parents */
	for (size_t i = g->nr; i-- > 0;) {
		struct zns_err e = ZNS_ERR_INIT;
		struct item *it = &g->item[i];
		int ret = 0;

		if (it->v == V_REMOVE)
			ret = remove_item(g, it, &e);
		else if (it->v != V_KEEP)
			ret = set_mark(g, it, &e);
		if (!ret)
			continue;
		it->failed = true;
		if (ret == -EPIPE || !first) {
			first = ret;
			*err = e;
		}
		if (ret == -EPIPE)
			return ret;
	}
	return first;
}

static int ask_zones(struct gc *g, ZnsPb__Response **r, struct zns_err *err)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;

	req.has_zones = req.zones = 1;
	return zns_broker_call(&g->b, &req, r, err);
}

static bool is_garbage(const ZnsPb__ZoneLine *z)
{
	return !z->owner && !z->live && z->state != ZNS_ZONE_EMPTY &&
	       z->state != ZNS_ZONE_READ_ONLY && z->state != ZNS_ZONE_OFFLINE;
}

/*
 * Lists zones that are garbage now, and zones whose live data belong only to checkpoints that will
 * be removed. Call it before the removal: the broker resets many of them right after it.
 */
static int find_zones(struct gc *g, struct zns_err *err)
{
	cleanup_free uint64_t *goes = NULL;
	cleanup_answer ZnsPb__Response *r = NULL;
	int ret = ask_zones(g, &r, err);

	if (ret)
		return ret;
	if (g->disk && r->n_zones)
		g->unit = r->zones[r->n_zones - 1]->capacity;
	goes = calloc(r->n_zones + 1, sizeof(*goes));
	g->zones = calloc(r->n_zones + 1, sizeof(*g->zones));
	for (size_t i = 0; goes && i < g->nr; i++) {
		const ZnsPb__Checkpoint *c = g->item[i].c;

		for (size_t k = 0; g->item[i].v == V_REMOVE && k < c->n_zones; k++)
			if (c->zones[k]->zone < r->n_zones)
				goes[c->zones[k]->zone] += c->zones[k]->len;
	}
	/*
	 * data of a memory context may belong to several checkpoints: their zone stays as long as
	 * one of these stays
	 */
	for (size_t i = 0; goes && i < g->nr; i++) {
		const ZnsPb__Checkpoint *c = g->item[i].c;

		for (size_t k = 0; g->item[i].v != V_REMOVE && k < c->n_zones; k++)
			if (c->zones[k]->zone < r->n_zones && c->zones[k]->has_memory)
				goes[c->zones[k]->zone] = 0;
	}
	for (size_t i = 0; goes && g->zones && i < r->n_zones; i++) {
		const ZnsPb__ZoneLine *z = r->zones[i];

		if (is_garbage(z) ||
		    (z->live && z->index < r->n_zones && goes[z->index] >= z->live))
			g->zones[g->nr_zones++] = z->index;
	}
	return goes && g->zones ? 0 : zns_fail(err, -ENOMEM, "no memory for a list of zones");
}

/*
 * Resets garbage zones, and lists those that could not be reset: a restore reads them, or their
 * checkpoint could not be removed.
 */
static int reset_garbage(struct gc *g, struct zns_err *err)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ZnsPb__ZonesReset z = ZNS_PB__ZONES_RESET__INIT;
	cleanup_answer ZnsPb__Response *r = NULL;
	size_t n = 0;
	int ret;

	if (g->dry_run)
		return 0;
	req.reset = &z;
	ret = ctl_tell(&g->b, &req, err);
	if (ret) {
		g->nr_zones = 0;
		return ret;
	}
	ret = ask_zones(g, &r, err);
	for (size_t i = 0; !ret && i < g->nr_zones; i++) {
		const ZnsPb__ZoneLine *now = g->zones[i] < r->n_zones ? r->zones[g->zones[i]] :
									NULL;

		if (now && !now->live && !is_garbage(now))
			g->zones[n++] = g->zones[i];
	}
	g->nr_zones = n;
	return ret;
}

static const char *action(const struct gc *g, const struct item *i)
{
	if (i->failed)
		return "not removed";
	switch (i->v) {
	case V_REMOVE:
		return g->dry_run ? "would remove" : "removed";
	case V_MARK:
		return "missed from now on";
	case V_UNMARK:
		return "needed again";
	default:
		return "kept";
	}
}

static uint64_t remove_bytes(const struct gc *g, uint32_t *nr)
{
	uint64_t bytes = 0;

	*nr = 0;
	for (size_t i = 0; i < g->nr; i++)
		if (g->item[i].v == V_REMOVE && !g->item[i].failed) {
			bytes += g->item[i].c->bytes;
			++*nr;
		}
	return bytes;
}

static void print_text(const struct gc *g)
{
	char id[ZNS_UUID_STR], size[16], name[CTL_NAME];
	int width = ctl_id_width(g->ls);
	size_t zones = g->nr_zones;
	struct ctl_fold fold = { 0 };
	uint64_t bytes;
	uint32_t nr;

	ctl_fold_begin(&fold);
	for (size_t i = 0; i < g->nr; i++) {
		const struct item *it = &g->item[i];

		if (it->v != V_KEEP || it->swept)
			printf("%.*s  %-12s  %-18s  %s\n", width,
			       zns_uuid_format(it->c->id.data, id),
			       ctl_name(it->c->container, name, sizeof(name)), action(g, it),
			       ctl_text(it->why));
	}
	ctl_fold_end(&fold, 4);
	bytes = remove_bytes(g, &nr);
	printf("%u checkpoint%s, %s %s; ", nr, nr == 1 ? "" : "s",
	       zns_format_size(bytes, size, sizeof(size)),
	       g->dry_run ? "would be removed" : "removed");
	if (g->disk)
		printf("%s of the disk %s\n", zns_format_size(zones * g->unit, size, sizeof(size)),
		       g->dry_run ? "to be freed" : "freed");
	else
		printf("%zu zone%s %s\n", zones, zones == 1 ? "" : "s",
		       g->dry_run ? "to be reset" : "reset");
	if (g->compacted)
		compact_print(g->compacted);
}

static int print_json(const struct gc *g)
{
	static const char *const names[] = { "keep", "remove", "missed", "needed" };
	struct json_object *j, *list = json_object_new_array();
	uint64_t bytes;
	uint32_t nr;

	for (size_t i = 0; i < g->nr; i++) {
		const struct item *it = &g->item[i];

		if (it->v != V_KEEP || it->swept)
			json_object_array_add(list, ctl_obj(J("id", ctl_json_uuid(it->c->id.data)),
							    J("container", it->c->container),
							    J("action", names[it->v]),
							    JB("done", !g->dry_run && !it->failed),
							    J("why", (const char *)it->why)));
	}
	bytes = remove_bytes(g, &nr);
	j = ctl_obj(J("checkpoints", list), J("removed", g->dry_run ? 0 : nr), J("bytes", bytes),
		    J("zones", ctl_json_u32s(g->zones, g->nr_zones)), J("dry_run", g->dry_run));
	if (g->compacted)
		json_object_object_add(j, "compaction", compact_json(g->compacted));
	return ctl_print_json(j);
}

static int cmd_gc(const struct ctl_cmd *cmd, int argc, char **argv)
{
	struct gc g = { .b = { .fd = -1 }, .grace_s = GRACE_S, .unjoined_s = UINT64_MAX };
	struct zns_err err = ZNS_ERR_INIT, late = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	struct compact x = { .s = ZNS_SESSION_INIT, .below = COMPACT_BELOW };
	struct zns_registered reg;
	bool judged, compact = false, no_programs = false;
	const char *weight = NULL;
	int ret;
	const struct ctl_opt opts[] = { CTL_FLAG("dry-run", &g.dry_run),
					CTL_DURATION("grace", &g.grace_s, 0),
					CTL_FLAG("compact", &compact),
					CTL_FLAG("no-programs", &no_programs),
					CTL_TEXT("weight", &weight),
					CTL_DURATION("unjoined", &g.unjoined_s, 0),
					CTL_DEV,
					CTL_OPTS_END };

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (ctl_only_dev(cmd, &args))
		return CTL_USAGE;
	if (weight && !compact)
		return ctl_usage(
			cmd,
			"--weight works only with --compact: it sets the share of bandwidth that compaction takes");
	if (compact_weight(&x, weight, &err)) {
		ctl_fail(cmd, &err);
		return CTL_USAGE;
	}
	if (no_programs)
		gc_life_without_programs();
	g.json = args.json;
	ret = ctl_connect(args.dev, &reg, &g.b, &err);
	g.disk = !ret && zns_spec_on_disk(reg.path);
	if (!ret && !g.dry_run)
		zns_swept_note(reg.uuid);
	if (!ret)
		ret = judge(&g, &err);
	if (!ret)
		ret = find_zones(&g, &err);
	judged = !ret;
	if (!ret && !g.dry_run)
		ret = apply(&g, &err);
	if (judged && reset_garbage(&g, &late) && !ret) {
		ret = late.code;
		err = late;
	}
	if (!ret && compact) {
		x.dry_run = g.dry_run;
		ret = compact_all(&x, args.dev, &err);
		g.compacted = x.zones ? &x : NULL;
	}
	if (judged && g.json)
		print_json(&g);
	else if (judged)
		print_text(&g);
	if (ret)
		ctl_fail(cmd, &err);
	zns_broker_close(&g.b);
	if (g.ls)
		zns_pb__response__free_unpacked(g.ls, NULL);
	compact_free(&x);
	free(g.item);
	free(g.zones);
	return ret ? CTL_FAILED : CTL_OK;
}

const struct ctl_cmd command_gc = {
	"gc",
	"[DEV] [--dry-run] [--grace TIME] [--compact [--weight owner|N]] [--unjoined TIME] [--no-programs]",
	"sweep what runtimes left, apply retention, reset garbage zones",
	"  --grace TIME    remove what a runtime has left only after its owner was\n"
	"                  missing this long (default 1h; 90, 30m, 12h, 7d)\n"
	"  --compact       afterwards do what `znsctl compact` does\n"
	"  --weight WHOSE  with --compact: as there\n"
	"  --unjoined TIME also remove pages that a page server received this long ago\n"
	"                  and that nobody joined\n"
	"  --no-programs   ask no program of gc.d: what only it could tell stays\n"
	"  --dry-run       only list what and why\n" CTL_DEV_HELP,
	cmd_gc,
};
