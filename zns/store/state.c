/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The catalogue in memory. Every change has three steps: first what may fail (memory, checks), then
 * the log record, then the change itself, which cannot fail. Reading the log and live changes use
 * the same functions, so that both give the same result.
 */
#include <assert.h>
#include <string.h>
#include "store_int.h"
#include "zns/fsck.h"

/* ---- keys ---- */

static bool eq_ckpt(const void *val, const void *key)
{
	return !memcmp(((const struct zns_ent *)val)->ckpt->id.data, key, ZNS_UUID_LEN);
}

static bool eq_tomb(const void *val, const void *key)
{
	return !memcmp(((const struct zns_ent *)val)->tomb->id.data, key, ZNS_UUID_LEN);
}

static bool eq_owner(const void *val, const void *key)
{
	return !strcmp(((const struct zns_owner *)val)->name, key);
}

int zns_version_cmp(const ZnsPb__Checkpoint *a, const ZnsPb__Checkpoint *b)
{
	if (a->moved != b->moved)
		return a->moved < b->moved ? -1 : 1;
	return a->moved_ns < b->moved_ns ? -1 : a->moved_ns > b->moved_ns;
}

struct zns_ent *zns_state_find(const struct zns_state *st, const uint8_t *id)
{
	return zns_map_find(&st->by_id, zns_hash(id, ZNS_UUID_LEN), eq_ckpt, id);
}

struct zns_ent *zns_state_find_dead(const struct zns_state *st, const uint8_t *id)
{
	return zns_map_find(&st->dead, zns_hash(id, ZNS_UUID_LEN), eq_tomb, id);
}

struct zns_owner *zns_state_owner(const struct zns_state *st, const char *container)
{
	return zns_map_find(&st->owners, zns_hash(container, strlen(container)), eq_owner,
			    container);
}

/* ---- creation and end of a state ---- */

static_assert(offsetof(struct zns_state, by_id) - offsetof(struct zns_state, lists) ==
		      sizeof(((struct zns_state *)0)->lists),
	      "lists[] has all of the named ones");

int zns_state_init(struct zns_state *st, const struct zns_geometry *geo, uint32_t nr_meta,
		   struct zns_err *err)
{
	*st = (struct zns_state){
		.lim = { .nr_zones = geo->nr_zones,
			 .nr_meta = nr_meta,
			 .block = geo->block_size,
			 .zone_capacity = geo->zone_capacity,
			 .resizable = zns_geo_is_disk(geo) },
		.block = zns_geo_log_block(geo),
	};
	st->live = calloc(geo->nr_zones, sizeof(*st->live));
	st->zone_owner = calloc(geo->nr_zones, sizeof(*st->zone_owner));
	st->zone_shared = calloc(geo->nr_zones, sizeof(*st->zone_shared));
	st->packed = calloc(geo->nr_zones, sizeof(*st->packed));
	st->memory = calloc(geo->nr_zones, sizeof(*st->memory));
	st->places = calloc(geo->nr_zones, sizeof(struct zns_zone_place *));
	if (st->places && st->live && st->packed && st->memory && st->zone_owner &&
	    st->zone_shared && !zns_state_room(st, NULL))
		return 0;
	zns_state_fini(st);
	return zns_fail(err, -ENOMEM, "no memory for %u zones", geo->nr_zones);
}

void zns_state_fini(struct zns_state *st)
{
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(st->lists); i++)
		zns_list_fini(&st->lists[i]);
	for (size_t i = 0; i < st->owners.cap; i++)
		free(st->owners.slots[i].val);
	zns_map_fini(&st->owners);
	zns_map_fini(&st->by_id);
	zns_map_fini(&st->dead);
	free(st->live);
	free(st->packed);
	free(st->memory);
	free(st->places);
	free(st->zone_owner);
	free(st->zone_shared);
	*st = (struct zns_state){ 0 };
}

/* Resizes the array @v from @had to @nr entries; new entries are 0. */
static bool array_follow(void *v, uint32_t had, uint32_t nr, size_t each)
{
	void *old, *new;

	memcpy(&old, v, sizeof(old));
	new = realloc(old, nr * each);
	if (!new)
		return false;
	if (nr > had)
		memset((char *)new + had *each, 0, (nr - had) * each);
	memcpy(v, &new, sizeof(new));
	return true;
}

int zns_state_follow(struct zns_state *st, uint32_t nr, struct zns_err *err)
{
	uint32_t had = st->lim.nr_zones;

	/* if a later call fails, the arrays that were resized are only longer than needed */
	if (nr > had && (!array_follow(&st->live, had, nr, sizeof(*st->live)) ||
			 !array_follow(&st->zone_owner, had, nr, sizeof(*st->zone_owner)) ||
			 !array_follow(&st->zone_shared, had, nr, sizeof(*st->zone_shared)) ||
			 !array_follow(&st->packed, had, nr, sizeof(*st->packed)) ||
			 !array_follow(&st->memory, had, nr, sizeof(*st->memory)) ||
			 !array_follow(&st->places, had, nr, sizeof(*st->places))))
		return zns_fail(err, -ENOMEM, "no memory for %u zones", nr);
	st->lim.nr_zones = nr;
	return 0;
}

int zns_state_room(struct zns_state *st, struct zns_err *err)
{
	int ret = zns_map_room(&st->by_id) || zns_map_room(&st->dead) || zns_map_room(&st->owners);

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(st->lists); i++)
		ret |= zns_list_room(&st->lists[i]);
	return ret ? zns_fail(err, -ENOMEM, "no memory for the catalogue") : 0;
}

size_t zns_state_rec(const struct zns_state *st, const ProtobufCMessage *msg)
{
	return zns_frame_size(protobuf_c_message_get_packed_size(msg), st->block);
}

bool zns_state_key(const ZnsPb__Checkpoint *c, ZnsPb__KeyLine *out)
{
	if (!c->crypt || !c->crypt->has_wrapped)
		return false;
	zns_pb__key_line__init(out);
	out->checkpoint = c->id;
	out->crypt = c->crypt;
	return true;
}

size_t zns_state_key_rec(const struct zns_state *st, const ZnsPb__Checkpoint *c)
{
	ZnsPb__KeyLine k;

	return zns_state_key(c, &k) ? zns_state_rec(st, &k.base) : 0;
}

static struct zns_owner *owner_get(struct zns_state *st, const char *name)
{
	struct zns_owner *o = zns_state_owner(st, name);
	size_t n = strlen(name);

	if (o)
		return o;
	if (zns_map_room(&st->owners))
		return NULL;
	o = calloc(1, sizeof(*o) + n + 1);
	if (!o)
		return NULL;
	memcpy(o->name, name, n);
	o->hash = zns_hash(name, n);
	zns_map_add(&st->owners, o->hash, o);
	return o;
}

static void owner_put(struct zns_state *st, struct zns_owner *o)
{
	if (!o || o->nr_checkpoints || o->reservation || o->retention)
		return;
	zns_map_del(&st->owners, o->hash, o);
	free(o);
}

struct zns_ent *zns_state_ent(struct zns_state *st, ProtobufCMessage *msg, const char *container,
			      struct zns_err *err)
{
	struct zns_ent *e = NULL;
	bool is_checkpoint = msg && msg->descriptor == &zns_pb__checkpoint__descriptor;

	if (msg)
		e = calloc(1, sizeof(*e));
	if (e && is_checkpoint) {
		e->msg = msg;
		e->places = calloc(e->ckpt->n_zones + 1, sizeof(*e->places));
	}
	if (e && container && (!is_checkpoint || e->places))
		e->owner = owner_get(st, container);
	if (!e || (container && !e->owner) || (is_checkpoint && !e->places)) {
		if (e)
			free(e->places);
		free(e);
		if (msg)
			protobuf_c_message_free_unpacked(msg, NULL);
		zns_fail(err, -ENOMEM, "no memory for a catalogue entry");
		return NULL;
	}
	e->msg = msg;
	e->rec = zns_state_rec(st, msg);
	if (is_checkpoint)
		e->rec += zns_state_key_rec(st, e->ckpt);
	return e;
}

void zns_state_ent_drop(struct zns_state *st, struct zns_ent *e)
{
	struct zns_owner *o = e ? e->owner : NULL;

	zns_ent_free(e);
	owner_put(st, o);
}

void zns_state_compact(struct zns_state *st)
{
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(st->lists); i++)
		zns_list_compact(&st->lists[i]);
}

/* ---- checkpoints and zones ---- */

/*
 * Adds or subtracts the bytes that belong to this checkpoint alone, not those that others may refer
 * to as well.
 */
static void add_live(struct zns_state *st, const ZnsPb__Checkpoint *c, bool add)
{
	for (size_t i = 0; i < c->n_zones; i++) {
		const ZnsPb__ZoneUse *u = c->zones[i];

		if (!u->has_memory)
			st->live[u->zone] += add ? u->len : -u->len;
	}
}

/* Checks that each zone has room for the live bytes of the checkpoint: adds them, compares, and
 * subtracts them again. Sums cannot overflow: a use is at most the capacity, and the uses of a
 * checkpoint do not overlap. */
static int fits(struct zns_state *st, const ZnsPb__Checkpoint *c, int code, struct zns_err *err)
{
	int ret = 0;

	add_live(st, c, true);
	for (size_t i = 0; i < c->n_zones && !ret; i++) {
		const ZnsPb__ZoneUse *u = c->zones[i], *o = st->memory[u->zone];
		uint64_t sum = st->live[u->zone] +
			       zns_max(o ? o->len : 0, u->has_memory ? u->len : 0);

		if (u->has_memory && o && !zns_use_shares(u, o))
			ret = zns_fail(err, code, "zone %u belongs to another memory context",
				       u->zone);
		else if (sum > st->lim.zone_capacity)
			ret = zns_fail(
				err, code,
				"zone %u would hold %llu live bytes, more than its capacity of %llu",
				u->zone, (unsigned long long)sum,
				(unsigned long long)st->lim.zone_capacity);
	}
	add_live(st, c, false);
	return ret;
}

/* Refuses a checkpoint that is its own ancestor, since walks from child to parent must end. */
static int no_circle(const struct zns_state *st, const ZnsPb__Checkpoint *c, int code,
		     struct zns_err *err)
{
	const ZnsPb__Checkpoint *up = c;
	const struct zns_ent *e;
	char id[ZNS_UUID_STR];

	while (up->has_parent && memcmp(up->parent.data, c->id.data, ZNS_UUID_LEN)) {
		e = zns_state_find(st, up->parent.data);
		if (!e)
			return 0;
		up = e->ckpt;
	}
	return up->has_parent ? zns_fail(err, code, "checkpoint %s is among its own parents",
					 zns_uuid_format(c->id.data, id)) :
				0;
}

int zns_state_may_add(struct zns_state *st, const ZnsPb__Checkpoint *c, int code,
		      struct zns_err *err)
{
	char id[ZNS_UUID_STR];

	if (zns_state_find(st, c->id.data))
		return zns_fail(err, code == -EINVAL ? -EEXIST : code,
				"checkpoint %s is in the catalogue already",
				zns_uuid_format(c->id.data, id));
	return no_circle(st, c, code, err) ? code : fits(st, c, code, err);
}

/* Does @c complete the checkpoint @old, which had only pages so far? All bytes of @old must still
 * be at their places. */
static bool completes(const ZnsPb__Checkpoint *c, const ZnsPb__Checkpoint *old)
{
	if (!old->pages_only || c->pages_only)
		return false;
	for (size_t i = 0; i < old->n_zones; i++) {
		const ZnsPb__ZoneUse *o = old->zones[i];
		bool in = false;

		for (size_t k = 0; k < c->n_zones && !in; k++) {
			const ZnsPb__ZoneUse *u = c->zones[k];

			in = u->zone == o->zone && u->start <= o->start &&
			     u->start + u->len >= o->start + o->len;
		}
		if (!in)
			return false;
	}
	return true;
}

static bool names_memory(const ZnsPb__Checkpoint *c)
{
	for (size_t i = 0; i < c->n_zones; i++)
		if (c->zones[i]->has_memory)
			return true;
	return false;
}

/* Is @c the flattened version of @old? It has no parent. @old had one, or it referred to units of a
 * memory context, or it had copies of pages that later ones superseded. */
static bool is_flat(const ZnsPb__Checkpoint *c, const ZnsPb__Checkpoint *old)
{
	return !c->has_parent && c->pages_only == old->pages_only &&
	       (old->has_parent ||
		(!old->pages_only && (c->bytes <= old->bytes || names_memory(old))));
}

int zns_state_may_replace(struct zns_state *st, const ZnsPb__Checkpoint *c, int code,
			  struct zns_err *err)
{
	const struct zns_ent *old = zns_state_find(st, c->id.data);
	char id[ZNS_UUID_STR];
	int ret;

	if (!old)
		return zns_fail(err, code == -EINVAL ? -ENOENT : code,
				"no checkpoint %s in the store", zns_uuid_format(c->id.data, id));
	if (strcmp(old->ckpt->container, c->container) || old->ckpt->created_ns != c->created_ns ||
	    ((old->ckpt->bytes != c->bytes || old->ckpt->pages_only != c->pages_only) &&
	     !completes(c, old->ckpt) && !is_flat(c, old->ckpt)))
		return zns_fail(err, code,
				"checkpoint %s differs in more than its place, so this is no move",
				zns_uuid_format(c->id.data, id));
	if (zns_version_cmp(c, old->ckpt) <= 0)
		return zns_fail(err, code == -EINVAL ? -ESTALE : code,
				"checkpoint %s was moved %u times, not %u",
				zns_uuid_format(c->id.data, id), old->ckpt->moved, c->moved - 1);
	if (no_circle(st, c, code, err))
		return code;
	add_live(st, old->ckpt, false);
	ret = fits(st, c, code, err);
	add_live(st, old->ckpt, true);
	return ret;
}

static void zones_add(struct zns_state *st, struct zns_ent *e)
{
	const ZnsPb__Checkpoint *c = e->ckpt;

	for (size_t i = 0; i < c->n_zones; i++) {
		const ZnsPb__ZoneUse *u = c->zones[i];
		uint32_t z = u->zone;

		if (zns_state_live(st, z) && st->zone_owner[z] != e->owner)
			st->zone_shared[z] = 1;
		st->zone_owner[z] = e->owner;
		e->places[i] = (struct zns_zone_place){ st->places[z], u, e };
		st->places[z] = &e->places[i];
		if (u->has_memory) {
			if (!st->memory[z] || st->memory[z]->len < u->len)
				st->memory[z] = u;
			continue;
		}
		st->live[z] += u->len;
		if (c->packed)
			st->packed[z] += u->len;
	}
}

static void tomb_del(struct zns_state *st, struct zns_ent *t)
{
	zns_map_del(&st->dead, t->hash, t);
	zns_list_del(&st->tombstones, t);
}

void zns_state_add(struct zns_state *st, struct zns_ent *e)
{
	const ZnsPb__Checkpoint *c = e->ckpt;
	struct zns_ent *t = zns_state_find_dead(st, c->id.data);

	if (t)
		tomb_del(st, t); /* a checkpoint that was removed is imported again under its id */
	e->hash = zns_hash(c->id.data, ZNS_UUID_LEN);
	zns_map_add(&st->by_id, e->hash, e);
	zns_list_add(&st->checkpoints, e);
	e->owner->nr_checkpoints++;
	zones_add(st, e);
}

/* One of the containers that share a zone has lost its last data there. The zone's owner is now the
 * container of the latest remaining checkpoint. */
static void zone_find_owner(struct zns_state *st, uint32_t zone)
{
	const struct zns_zone_place *p = st->places[zone], *last = p;

	st->zone_shared[zone] = 0;
	for (; p; p = p->next) {
		st->zone_shared[zone] |= p->ent->owner != last->ent->owner;
		if (p->ent->pos > last->ent->pos)
			last = p;
	}
	st->zone_owner[zone] = last ? last->ent->owner : NULL;
}

/* Finds the longest remaining use of the zone for a context's memory. */
static void zone_find_memory(struct zns_state *st, uint32_t zone)
{
	st->memory[zone] = NULL;
	for (const struct zns_zone_place *p = st->places[zone]; p; p = p->next) {
		const ZnsPb__ZoneUse *o = st->memory[zone];

		if (p->use->has_memory && (!o || o->len < p->use->len))
			st->memory[zone] = p->use;
	}
}

static void place_del(struct zns_state *st, const struct zns_zone_place *place)
{
	struct zns_zone_place **p = &st->places[place->use->zone];

	while (*p != place)
		p = &(*p)->next;
	*p = place->next;
}

static void zones_del(struct zns_state *st, const struct zns_ent *e)
{
	for (size_t i = 0; i < e->ckpt->n_zones; i++) {
		const ZnsPb__ZoneUse *u = e->ckpt->zones[i];
		uint32_t z = u->zone;

		place_del(st, &e->places[i]);
		if (u->has_memory) {
			if (st->memory[z] == u)
				zone_find_memory(st, z);
		} else {
			st->live[z] -= u->len;
			if (e->ckpt->packed)
				st->packed[z] -= u->len;
		}
		if (!zns_state_live(st, z)) {
			st->zone_owner[z] = NULL;
			st->zone_shared[z] = 0;
		} else if (st->zone_shared[z]) {
			zone_find_owner(st, z);
		}
	}
}

void zns_state_replace(struct zns_state *st, struct zns_ent *e)
{
	struct zns_ent *old = zns_state_find(st, e->ckpt->id.data);

	zns_map_del(&st->by_id, old->hash, old);
	e->hash = old->hash;
	zns_map_add(&st->by_id, e->hash, e);
	zns_list_replace(&st->checkpoints, old, e);
	e->mark = old->mark;
	e->first = old->first;
	zones_del(st, old);
	zones_add(st, e);
	/* The owner of a shared zone is the container that committed there last, not the one whose
	 * checkpoint was moved last. Reading the log applies the same rule. */
	for (size_t i = 0; i < e->ckpt->n_zones; i++)
		if (st->zone_shared[e->ckpt->zones[i]->zone])
			zone_find_owner(st, e->ckpt->zones[i]->zone);
	zns_ent_free(old);
}

void zns_state_bury(struct zns_state *st, struct zns_ent *tomb)
{
	struct zns_ent *e = zns_state_find(st, tomb->tomb->id.data);
	struct zns_ent *t = zns_state_find_dead(st, tomb->tomb->id.data);
	struct zns_owner *o = e ? e->owner : NULL;

	if (t)
		tomb_del(st, t);
	tomb->hash = zns_hash(tomb->tomb->id.data, ZNS_UUID_LEN);
	zns_map_add(&st->dead, tomb->hash, tomb);
	zns_list_add(&st->tombstones, tomb);
	if (!e)
		return;
	zns_map_del(&st->by_id, e->hash, e);
	zns_list_take(&st->checkpoints, e);
	zones_del(st, e);
	if (e->mark)
		zns_list_del(&st->marks, e->mark);
	if (e->first)
		zns_list_del(&st->firsts, e->first);
	zns_ent_free(e);
	/* An implicit reservation ends with the container's last checkpoint. */
	if (!--o->nr_checkpoints && o->reservation && !o->reservation->resv->explicit_)
		zns_state_release(st, o);
	else
		owner_put(st, o);
}

void zns_state_forget(struct zns_state *st, size_t nr)
{
	zns_list_compact(&st->tombstones);
	for (size_t i = 0; i < nr && i < st->tombstones.nr; i++)
		tomb_del(st, st->tombstones.v[i]);
	zns_list_compact(&st->tombstones);
}

/* ---- reservations and profile ---- */

void zns_state_reserve(struct zns_state *st, struct zns_ent *e)
{
	struct zns_ent *old = e->owner->reservation;

	if (old) {
		/* The reservation keeps its place in the order of first reservations. */
		zns_list_replace(&st->reservations, old, e);
		zns_ent_free(old);
	} else {
		zns_list_add(&st->reservations, e);
	}
	e->owner->reservation = e;
}

void zns_state_release(struct zns_state *st, struct zns_owner *o)
{
	zns_list_del(&st->reservations, o->reservation);
	o->reservation = NULL;
	owner_put(st, o);
}

/* ---- retention, marks, first pages ---- */

void zns_state_retain(struct zns_state *st, struct zns_ent *e)
{
	struct zns_owner *o = e->owner;
	struct zns_ent *old = o->retention;

	if (old) {
		zns_list_del(&st->retentions, old);
		o->retention = NULL;
	}
	if (e->retn->keep || e->retn->ttl_s) {
		zns_list_add(&st->retentions, e);
		o->retention = e;
	} else {
		zns_ent_free(e);
		owner_put(st, o);
	}
}

void zns_state_mark(struct zns_state *st, struct zns_ent *e)
{
	struct zns_ent *c = zns_state_find(st, e->markm->checkpoint.data);

	if (c->mark) {
		zns_list_del(&st->marks, c->mark);
		c->mark = NULL;
	}
	if (e->markm->pinned || e->markm->has_gone_ns || e->markm->has_damaged_ns) {
		zns_list_add(&st->marks, e);
		c->mark = e;
	} else {
		zns_ent_free(e);
	}
}

void zns_state_first(struct zns_state *st, struct zns_ent *e)
{
	struct zns_ent *c = zns_state_find(st, e->firstp->checkpoint.data);

	if (c->first) {
		zns_list_del(&st->firsts, c->first);
		c->first = NULL;
	}
	if (e->firstp->runs.len) {
		zns_list_add(&st->firsts, e);
		c->first = e;
	} else {
		zns_ent_free(e);
	}
}

void zns_state_set_profile(struct zns_state *st, struct zns_ent *e)
{
	struct zns_list *l = &st->reservations;

	zns_ent_free(zns_list_swap(&st->profile, e));
	st->lim.nr_groups = ((ZnsPb__Profile *)e->msg)->n_groups;
	/* Drop reservations that name groups which do not exist any more. */
	for (size_t i = 0; i < l->nr; i++)
		if (l->v[i] && zns_check_reservation(l->v[i]->resv, &st->lim, -EINVAL, NULL))
			zns_state_release(st, l->v[i]->owner);
}

void zns_state_set_mount(struct zns_state *st, struct zns_ent *e)
{
	zns_ent_free(zns_list_swap(&st->mount, e));
}

void zns_state_set_encryption(struct zns_state *st, struct zns_ent *e)
{
	zns_ent_free(zns_list_swap(&st->encryption, e));
}
