// SPDX-License-Identifier: GPL-2.0-only
/* gc: sweep what runtimes left behind, apply retention rules, reset garbage zones */
#include <string.h>
#include "compact.h"
#include "gc.h"
#include "zns/retention.h"

#define GRACE_S 3600

enum { OPT_DRY_RUN = OPT_OWN, OPT_GRACE, OPT_COMPACT, OPT_UNJOINED };

enum verdict { V_KEEP, V_REMOVE, V_MARK, V_UNMARK };

struct item {
	const ZnsPb__Checkpoint *c;
	const ZnsPb__Mark *mark;
	enum verdict v;
	bool swept;		/* looked at because of its origin */
	char why[200];
	bool failed;
};

struct gc {
	struct zns_broker b;
	struct item *item;
	size_t nr;
	uint64_t grace_s;
	bool unjoined;		/* pages only, older than unjoined_s, go */
	uint64_t unjoined_s;
	bool dry_run, json;
	ZnsPb__Response *ls, *reset;
	uint32_t *garbage;
	size_t nr_garbage;
	const struct compact *compacted;	/* NULL: not asked for, or not done */
};

static const ZnsPb__Mark *mark_of(const ZnsPb__Response *ls, const ZnsPb__Checkpoint *c)
{
	for (size_t i = 0; i < ls->n_marks; i++)
		if (ls->marks[i]->checkpoint.len == c->id.len && !memcmp(ls->marks[i]->checkpoint.data, c->id.data, c->id.len))
			return ls->marks[i];
	return NULL;
}

/* Gone must be seen twice, at least a grace period apart. */
static void judge_origin(struct gc *g, struct item *i, int64_t now)
{
	const ZnsPb__Origin *o = i->c->origin;
	gc_life_fn life = o ? gc_life_of(o->kind) : NULL;
	char host[64] = "", since[32];
	enum gc_life l;

	if (!life)
		return;
	i->swept = true;
	gethostname(host, sizeof(host) - 1);
	if (!o->host || strcmp(o->host, host)) {
		snprintf(i->why, sizeof(i->why), "made on another host (%.60s): nothing is known here", o->host ? o->host : "unknown");
		return;
	}
	l = life(i->c, i->why, sizeof(i->why));
	if (l == GC_NEEDED && i->mark && i->mark->has_gone_ns)
		i->v = V_UNMARK;
	if (l != GC_GONE)
		return;
	if (!i->mark || !i->mark->has_gone_ns) {
		i->v = g->grace_s ? V_MARK : V_REMOVE;
	} else if (now >= i->mark->gone_ns && (uint64_t)(now - i->mark->gone_ns) / 1000000000 >= g->grace_s) {
		i->v = V_REMOVE;
		snprintf(i->why + strlen(i->why), sizeof(i->why) - strlen(i->why), ", missed since %s",
			 zns_format_time(i->mark->gone_ns, since, sizeof(since)));
	}
}

/* What a migration began and has not ended yet, or never will: only its user can tell. */
static void judge_pages(const struct gc *g, struct item *i, int64_t now)
{
	i->swept = true;
	snprintf(i->why, sizeof(i->why), "pages only, not joined with the other images: `znsctl import --join`, or rm");
	if (g->unjoined && now >= i->c->created_ns && (uint64_t)(now - i->c->created_ns) / 1000000000 >= g->unjoined_s)
		i->v = V_REMOVE;
}

static void judge_rule(struct gc *g, const ZnsPb__Retention *rule, int64_t now)
{
	cleanup_free struct zns_retained *v = calloc(g->nr + 1, sizeof(*v));
	cleanup_free size_t *at = calloc(g->nr + 1, sizeof(*at));
	size_t n = 0;

	for (size_t i = 0; v && at && i < g->nr; i++) {
		if (strcmp(g->item[i].c->container, rule->container) || g->item[i].c->pages_only)
			continue;
		v[n] = (struct zns_retained){ .created_ns = g->item[i].c->created_ns,
					      .pinned = g->item[i].mark && g->item[i].mark->pinned,
					      .pre_dump = g->item[i].c->pre_dump };
		at[n++] = i;
	}
	if (!n || !zns_retention(v, n, rule->keep, rule->ttl_s, now))
		return;
	for (size_t i = 0; i < n; i++) {
		struct item *it = &g->item[at[i]];

		if (!v[i].due || it->v == V_REMOVE)
			continue;
		it->v = V_REMOVE;
		snprintf(it->why, sizeof(it->why), "retention of its container: keep %u, ttl %llu s", rule->keep,
			 (unsigned long long)rule->ttl_s);
	}
}

/* What stays keeps its parents; children come after them. */
static void keep_parents(struct gc *g)
{
	char id[ZNS_UUID_STR];

	for (size_t i = g->nr; i-- > 0;) {
		const ZnsPb__Checkpoint *c = g->item[i].c;

		if (g->item[i].v == V_REMOVE || !c->has_parent)
			continue;
		for (size_t k = i; k-- > 0;) {
			struct item *p = &g->item[k];

			if (p->c->id.len != c->parent.len || memcmp(p->c->id.data, c->parent.data, c->parent.len))
				continue;
			if (p->v == V_REMOVE) {
				p->v = V_KEEP;
				snprintf(p->why, sizeof(p->why), "%s is built on it", zns_uuid_format(c->id.data, id));
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
		return zns_fail_sys(err, -ENOMEM, "list of checkpoints");
	for (size_t i = 0; i < g->nr; i++) {
		struct item *it = &g->item[i];

		it->c = g->ls->checkpoints[i];
		it->mark = mark_of(g->ls, it->c);
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
	ZnsPb__Response *r;
	int ret;

	m.checkpoint = i->c->id;
	m.has_gone_ns = 1;
	m.gone_ns = i->v == V_MARK ? zns_now_ns() : 0;
	req.mark = &m;
	ret = zns_broker_call(&g->b, &req, &r, err);
	if (!ret)
		zns_pb__response__free_unpacked(r, NULL);
	return ret;
}

static int remove_item(struct gc *g, struct item *i, struct zns_err *err)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ZnsPb__Rm rm = ZNS_PB__RM__INIT;
	ProtobufCBinaryData id = i->c->id;
	char by[200];
	ZnsPb__Response *r;
	int ret;

	snprintf(by, sizeof(by), "znsctl gc (%.150s)", i->why);
	rm.checkpoints = &id;
	rm.n_checkpoints = 1;
	rm.by = by;
	req.rm = &rm;
	ret = zns_broker_call(&g->b, &req, &r, err);
	if (!ret)
		zns_pb__response__free_unpacked(r, NULL);
	return ret;
}

/* One by one: what was pinned meanwhile stays, the rest goes on. */
static int apply(struct gc *g, struct zns_err *err)
{
	int first = 0;

	for (size_t i = g->nr; i-- > 0;) {	/* children before their parents */
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

static int find_garbage(struct gc *g, struct zns_err *err)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ZnsPb__Response *r;
	int ret;

	req.has_zones = req.zones = 1;
	ret = zns_broker_call(&g->b, &req, &r, err);
	if (ret)
		return ret;
	g->garbage = calloc(r->n_zones + 1, sizeof(*g->garbage));
	for (size_t i = 0; g->garbage && i < r->n_zones; i++) {
		const ZnsPb__ZoneLine *z = r->zones[i];

		if (!z->owner && !z->live && z->state != ZNS_ZONE_EMPTY && z->state != ZNS_ZONE_READ_ONLY &&
		    z->state != ZNS_ZONE_OFFLINE)
			g->garbage[g->nr_garbage++] = z->index;
	}
	zns_pb__response__free_unpacked(r, NULL);
	return 0;
}

static int reset_garbage(struct gc *g, struct zns_err *err)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ZnsPb__ZonesReset z = ZNS_PB__ZONES_RESET__INIT;

	if (g->dry_run)
		return find_garbage(g, err);
	req.reset = &z;
	return zns_broker_call(&g->b, &req, &g->reset, err);
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
	size_t zones = g->dry_run ? g->nr_garbage : g->reset ? g->reset->n_reset_zones : 0;
	char id[ZNS_UUID_STR], size[16];
	uint64_t bytes;
	uint32_t nr;

	for (size_t i = 0; i < g->nr; i++) {
		const struct item *it = &g->item[i];

		if (it->v != V_KEEP || it->swept)
			printf("%s  %-20s  %-18s  %s\n", zns_uuid_format(it->c->id.data, id), ctl_text(it->c->container), action(g, it),
			       ctl_text(it->why));
	}
	bytes = remove_bytes(g, &nr);
	printf("%u checkpoint%s, %s %s; %zu zone%s %s\n", nr, nr == 1 ? "" : "s", zns_format_size(bytes, size, sizeof(size)),
	       g->dry_run ? "would be removed" : "removed", zones, zones == 1 ? "" : "s", g->dry_run ? "to be reset" : "reset");
	if (g->compacted)
		compact_print(g->compacted);
}

static int print_json(const struct gc *g)
{
	struct json_object *j = json_object_new_object(), *list = json_object_new_array(), *o;
	uint64_t bytes;
	uint32_t nr;

	for (size_t i = 0; i < g->nr; i++) {
		const struct item *it = &g->item[i];
		static const char *const names[] = { "keep", "remove", "missed", "needed" };

		if (it->v == V_KEEP && !it->swept)
			continue;
		o = json_object_new_object();
		json_object_object_add(o, "id", ctl_json_uuid(&it->c->id));
		json_object_object_add(o, "container", json_object_new_string(it->c->container));
		json_object_object_add(o, "action", json_object_new_string(names[it->v]));
		json_object_object_add(o, "done", json_object_new_boolean(!g->dry_run && !it->failed));
		json_object_object_add(o, "why", json_object_new_string(it->why));
		json_object_array_add(list, o);
	}
	bytes = remove_bytes(g, &nr);
	json_object_object_add(j, "checkpoints", list);
	json_object_object_add(j, "removed", json_object_new_int64(g->dry_run ? 0 : nr));
	json_object_object_add(j, "bytes", json_object_new_int64(bytes));
	json_object_object_add(j, "zones", g->dry_run ? ctl_json_u32s(g->garbage, g->nr_garbage) :
			       ctl_json_u32s(g->reset ? g->reset->reset_zones : NULL, g->reset ? g->reset->n_reset_zones : 0));
	json_object_object_add(j, "dry_run", json_object_new_boolean(g->dry_run));
	if (g->compacted)
		json_object_object_add(j, "compaction", compact_json(g->compacted));
	return ctl_print_json(j);
}

int cmd_gc(const struct ctl_cmd *cmd, int argc, char **argv)
{
	static const struct option opts[] = {
		{ "dry-run", no_argument, NULL, OPT_DRY_RUN },
		{ "grace", required_argument, NULL, OPT_GRACE },
		{ "compact", no_argument, NULL, OPT_COMPACT },
		{ "unjoined", required_argument, NULL, OPT_UNJOINED },
		CTL_DEV_OPTION, CTL_COMMON_OPTIONS, CTL_END_OPTIONS,
	};
	struct gc g = { .b = { .fd = -1 }, .grace_s = GRACE_S };
	struct zns_err err = ZNS_ERR_INIT, late = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	struct compact x = { .s = { .broker = { .fd = -1 }, .lock = -1 }, .below = COMPACT_BELOW };
	struct zns_registered reg;
	bool judged, compact = false;
	int c, ret;

	while ((c = ctl_getopt(cmd, argc, argv, opts, &args)) >= 0) {
		g.dry_run |= c == OPT_DRY_RUN;
		compact |= c == OPT_COMPACT;
		g.unjoined |= c == OPT_UNJOINED;
		if ((c == OPT_GRACE && ctl_duration(optarg, &g.grace_s)) || (c == OPT_UNJOINED && ctl_duration(optarg, &g.unjoined_s)))
			return ctl_usage(cmd, "\"%s\" is no time: 90, 30m, 12h or 7d", optarg);
	}
	if (c == -2)
		return args.code;
	if (ctl_only_dev(cmd, &args))
		return CTL_USAGE;
	g.json = args.json;
	ret = ctl_connect(args.dev, &reg, &g.b, &err);
	if (!ret)
		ret = judge(&g, &err);
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
	if (g.reset)
		zns_pb__response__free_unpacked(g.reset, NULL);
	compact_free(&x);
	free(g.item);
	free(g.garbage);
	return ret ? CTL_FAILED : CTL_OK;
}
