/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * compact --defrag: moves data whose present place makes restores slow, if the gain is worth the
 * moved bytes.
 */
#include <string.h>
#include "defrag.h"
#include "zns/store.h"

struct one {
	const ZnsPb__Checkpoint *c;
	struct zns_scatter_plan plan;
	struct layout l;
	double worth; /* bandwidth gained for each byte moved */
	bool moved;
};

struct defrag {
	struct compact *x;
	ZnsPb__Response *profile, *status;
	uint64_t *room; /* by group: bytes that a container without a reservation may write there */
	struct one *v;
	size_t nr;
};

static int ask(struct zns_broker *b, bool profile, ZnsPb__Response **out, struct zns_err *err)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;

	req.has_profile = req.profile = profile;
	req.has_status = req.status = !profile;
	return zns_broker_call(b, &req, out, err);
}

static int look(struct defrag *f, struct zns_err *err)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	struct compact *x = f->x;
	int ret = ctl_ls(&x->s.broker, &x->ls, err);
	uint32_t nr;

	req.has_zones = req.zones = 1;
	if (!ret)
		ret = zns_broker_call(&x->s.broker, &req, &x->zones, err);
	if (!ret)
		ret = ask(&x->s.broker, true, &f->profile, err);
	if (!ret)
		ret = ask(&x->s.broker, false, &f->status, err);
	if (ret)
		return ret;
	nr = (uint32_t)x->zones->n_zones;
	x->zone_group = calloc(nr + 1, sizeof(*x->zone_group));
	x->victims = calloc(nr + 1, sizeof(*x->victims));
	f->room = calloc(f->profile->profile->n_groups + 1, sizeof(*f->room));
	if (!x->zone_group || !x->victims || !f->room)
		return zns_fail(err, -ENOMEM, "no memory for %u zones", nr);
	for (uint32_t i = 0; i < nr; i++) {
		const ZnsPb__ZoneLine *z = x->zones->zones[i];

		x->zone_group[i] = z->group;
		if (z->state == ZNS_ZONE_EMPTY && !z->owner && !z->suspect &&
		    z->group < f->profile->profile->n_groups)
			f->room[z->group] += z->capacity;
	}
	return 0;
}

/*
 * Sets the room of groups that another container has reserved to 0, so that nothing is written
 * there.
 */
static void leave_reserved(const struct defrag *f, const char *container, uint64_t *room)
{
	const ZnsPb__Status *s = f->status->status;

	for (size_t i = 0; i < s->n_reservations; i++) {
		const ZnsPb__Reservation *r = s->reservations[i];

		for (size_t k = 0; k < r->n_groups && strcmp(r->container, container); k++)
			if (r->groups[k] < f->profile->profile->n_groups)
				room[r->groups[k]] = 0;
	}
}

static void drop_plan(struct one *o)
{
	zns_scatter_plan_fini(&o->plan);
	layout_fini(&o->l);
}

static void fix_memory(struct one *o)
{
	for (size_t i = 0; i < o->c->n_zones; i++)
		for (uint32_t k = 0; k < o->l.s.nr_zones; k++)
			o->l.zones[k].fixed |= o->c->zones[i]->has_memory &&
					       o->c->zones[i]->zone == o->l.zones[k].zone;
}

/*
 * Plans the moves of one checkpoint with the room that is free now. If that fails, the earlier plan
 * stays.
 */
static int plan_one(const struct defrag *f, struct one *o, struct zns_err *err)
{
	struct one fresh = { .c = o->c };
	const ZnsPb__Profile *p = f->profile->profile;
	cleanup_free uint64_t *room = calloc(p->n_groups + 1, sizeof(*room));
	ZnsPb__Manifest *m = NULL;
	int ret;

	if (!room)
		return zns_fail(err, -ENOMEM, "no memory for a list of groups");
	memcpy(room, f->room, p->n_groups * sizeof(*room));
	leave_reserved(f, o->c->container, room);
	ret = zns_manifest_read(f->x->s.dev, o->c, &m, err);
	if (!ret)
		ret = layout_of(m, p, &fresh.l, err);
	if (m)
		zns_pb__manifest__free_unpacked(m, NULL);
	if (ret)
		return ret;
	fix_memory(&fresh);
	ret = zns_scatter_plan_make(&fresh.l.s, room, DEFRAG_PAYS, DEFRAG_MOST, &fresh.plan, err);
	if (!ret && fresh.plan.bytes)
		fresh.worth = (fresh.plan.after - fresh.plan.before) / (double)fresh.plan.bytes;
	if (ret) {
		layout_fini(&fresh.l);
		return ret;
	}
	drop_plan(o);
	*o = fresh;
	return 0;
}

/*
 * Skips a checkpoint that was removed, moved or damaged meanwhile (`verify` tells which). The moves
 * of other checkpoints go on.
 */
static void pass_over(struct compact *x, const struct one *o, struct zns_err *err)
{
	char id[ZNS_UUID_STR];

	if (!x->given_up++)
		snprintf(x->why, sizeof(x->why),
			 "checkpoint %s was removed, moved or damaged meanwhile: %.150s",
			 zns_uuid_format(o->c->id.data, id), err->msg);
	*err = (struct zns_err)ZNS_ERR_INIT;
}

static int cmp_worth(const void *a, const void *b)
{
	const struct one *x = a, *y = b;

	return (x->worth < y->worth) - (x->worth > y->worth);
}

static bool meant(const ZnsPb__Checkpoint *c, const char *what, const uint8_t *id)
{
	return !what || !strcmp(c->container, what) ||
	       (id && !memcmp(c->id.data, id, ZNS_UUID_LEN));
}

static int plan_all(struct defrag *f, const char *what, struct zns_err *err)
{
	const ZnsPb__Response *ls = f->x->ls;
	struct zns_err e = ZNS_ERR_INIT;
	uint8_t id[ZNS_UUID_LEN];
	bool by_id = what && !zns_broker_resolve_id(&f->x->s.broker, what, id, &e);

	f->v = calloc(ls->n_checkpoints + 1, sizeof(*f->v));
	if (!f->v)
		return zns_fail(err, -ENOMEM, "no memory for %zu checkpoints", ls->n_checkpoints);
	for (size_t i = 0; i < ls->n_checkpoints; i++) {
		struct one *o = &f->v[f->nr];
		int ret;

		if (!meant(ls->checkpoints[i], what, by_id ? id : NULL) ||
		    !ls->checkpoints[i]->manifest)
			continue;
		o->c = ls->checkpoints[i];
		f->nr++;
		ret = plan_one(f, o, err);
		if (ret == -ENOMEM)
			return ret;
		if (ret) {
			pass_over(f->x, o, err);
			f->nr--;
			*o = (struct one){ 0 };
		}
	}
	if (what && !f->nr && !f->x->given_up)
		return zns_fail(err, -ENOENT, "%s has no checkpoint or container %.100s",
				f->x->s.reg.path, what);
	qsort(f->v, f->nr, sizeof(*f->v), cmp_worth);
	return 0;
}

static int move_one(struct defrag *f, struct one *o, struct zns_bucket *bucket, struct zns_err *err)
{
	cleanup_free uint32_t *to = calloc((size_t)o->plan.nr + 1, sizeof(*to));
	struct compact *x = f->x;
	int ret;

	if (!to)
		return zns_fail(err, -ENOMEM, "no memory for %u moves", o->plan.nr);
	x->nr_victims = o->plan.nr;
	for (uint32_t i = 0; i < o->plan.nr; i++) {
		x->victims[i] = o->l.zones[o->plan.v[i].at].zone;
		to[i] = o->plan.v[i].group;
	}
	ret = compact_move(x, o->c, bucket, to, false, err);
	switch (ret) {
	case 0:
		o->moved = true;
		x->moved++;
		for (uint32_t i = 0; i < o->plan.nr; i++)
			f->room[to[i]] -= zns_min(f->room[to[i]],
						  o->l.zones[o->plan.v[i].at].bytes + MIB(1));
		return 0;
	case -ESTALE:
	case -ENOENT:
	case -ENODATA:
	case -EBUSY:
	case -ECANCELED:
	case -ENOSPC:
		if (!x->given_up++)
			snprintf(x->why, sizeof(x->why), "%s", err->msg);
		return 0;
	}
	return ret;
}

/*
 * Runs the moves. The move that gains most for its bytes comes first. It takes room with which the
 * other moves were planned, so these are planned again.
 */
static int run(struct defrag *f, struct zns_err *err)
{
	struct compact *x = f->x;
	struct zns_bucket *bucket = zns_bucket_new();
	uint64_t all = 0;
	int ret = 0;

	if (!bucket)
		return zns_fail(err, -ENOMEM, "no memory for a token bucket");
	zns_bucket_set(bucket, x->rate_mibps);
	zns_dev_close(x->s.dev);
	x->s.dev = NULL;
	ret = zns_dev_open(x->s.reg.path, ZNS_DEV_SERVED, &x->s.dev, err);
	for (size_t i = 0; i < f->nr; i++)
		all += f->v[i].plan.bytes;
	ctl_progress_start(&x->prog, "defragmenting", all);
	for (size_t i = 0; i < f->nr && !ret; i++) {
		if (!f->v[i].plan.nr)
			continue;
		if (x->moved)
			ret = plan_one(f, &f->v[i], err);
		if (ret && ret != -ENOMEM) {
			pass_over(x, &f->v[i], err);
			ret = 0;
			continue;
		}
		if (!ret && f->v[i].plan.nr)
			ret = move_one(f, &f->v[i], bucket, err);
	}
	ctl_progress_end(&x->prog);
	zns_bucket_free(bucket);
	return ret;
}

static void print(const struct defrag *f)
{
	char id[ZNS_UUID_STR], size[16], name[CTL_NAME];
	uint32_t n = 0;

	for (size_t i = 0; i < f->nr; i++) {
		const struct one *o = &f->v[i];

		if (!o->plan.nr)
			continue;
		n++;
		printf("%s %s, %s: %s, from %.0f %% to %.0f %% of what its groups give\n",
		       zns_uuid_format(o->c->id.data, id),
		       ctl_name(o->c->container, name, sizeof(name)),
		       zns_format_size(o->c->bytes, size, sizeof(size)),
		       o->moved      ? "moved" :
		       f->x->dry_run ? "would be moved" :
				       "not moved",
		       100 * o->plan.before, 100 * o->plan.after);
		for (uint32_t k = 0; k < o->plan.nr; k++) {
			const struct zns_scatter_zone *z = &o->l.zones[o->plan.v[k].at];

			printf("  %9s of zone %u, group %u to %u: %.0f %%\n",
			       zns_format_size(z->bytes, size, sizeof(size)), z->zone, z->group,
			       o->plan.v[k].group, 100 * o->plan.v[k].after);
		}
	}
	if (!n)
		printf("no move would pay\n");
	else if (!f->x->dry_run)
		printf("%u checkpoint%s moved, %s written\n", f->x->moved,
		       f->x->moved == 1 ? "" : "s",
		       zns_format_size(f->x->moved_bytes, size, sizeof(size)));
	if (f->x->given_up)
		printf("%u checkpoint%s left alone: %s\n", f->x->given_up,
		       f->x->given_up == 1 ? "" : "s", f->x->why);
}

static struct json_object *to_json(const struct defrag *f)
{
	struct json_object *list = json_object_new_array();

	for (size_t i = 0; i < f->nr; i++) {
		const struct one *o = &f->v[i];
		struct json_object *moves = json_object_new_array();
		char id[ZNS_UUID_STR];

		for (uint32_t k = 0; k < o->plan.nr; k++) {
			const struct zns_scatter_zone *z = &o->l.zones[o->plan.v[k].at];

			json_object_array_add(moves,
					      ctl_obj(J("zone", z->zone), J("group", z->group),
						      J("to_group", o->plan.v[k].group),
						      J("bytes", z->bytes),
						      J("of_best", o->plan.v[k].after)));
		}
		json_object_array_add(
			list,
			ctl_obj(J("checkpoint", (const char *)zns_uuid_format(o->c->id.data, id)),
				J("container", o->c->container), J("bytes", o->c->bytes),
				J("move_bytes", o->plan.bytes), J("of_best_before", o->l.rate),
				J("of_best_after", o->plan.nr ? o->plan.after : o->l.rate),
				JB("moved", o->moved), J("moves", moves)));
	}
	return ctl_obj(J("checkpoints", list), J("moved_checkpoints", f->x->moved),
		       J("moved_bytes", f->x->moved_bytes), J("given_up", f->x->given_up),
		       J("why", f->x->given_up ? (const char *)f->x->why : NULL),
		       J("waited_s", (double)f->x->waited_ns / 1e9), JB("dry_run", f->x->dry_run));
}

static void forget(struct defrag *f)
{
	for (size_t i = 0; i < f->nr; i++)
		drop_plan(&f->v[i]);
	free(f->v);
	free(f->room);
	if (f->profile)
		zns_pb__response__free_unpacked(f->profile, NULL);
	if (f->status)
		zns_pb__response__free_unpacked(f->status, NULL);
}

int defrag_all(struct compact *x, const char *spec, const char *what, struct zns_err *err)
{
	struct defrag f = { .x = x };
	int ret = ctl_session_open(&x->s, spec, ZNS_READS, err);

	if (!ret)
		ret = look(&f, err);
	if (!ret)
		ret = plan_all(&f, what, err);
	if (!ret && !x->dry_run)
		ret = run(&f, err);
	if (f.v && x->json)
		ctl_print_json(to_json(&f));
	else if (f.v)
		print(&f);
	if (!ret && x->given_up && !x->moved && !x->dry_run)
		ret = zns_fail(err, -EBUSY, "nothing was moved: %s", x->why);
	forget(&f);
	return ret;
}
