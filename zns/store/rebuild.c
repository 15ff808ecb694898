/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Writes a new generation of the catalogue, from the readable records of the old one and from the
 * footers in the data zones. */
#include <string.h>
#include "kinds.h"
#include "salvage.h"
#include "zns/fsck.h"
#include "zns/grow.h"
#include "zns/pbcopy.h"

struct verdict {
	uint8_t id[ZNS_UUID_LEN];
	enum zns_rebuild_source from;
	bool taken;
	char name[ZNS_NAME_LEN_MAX + 1], why[200];
};

struct rebuild {
	const struct zns_salvage *sv;
	const struct zns_rebuild_params *p;
	/* what to report about each checkpoint at the end; a later verdict replaces an earlier
	 * one */
	struct verdict *verdict;
	size_t nr_verdicts;
	/* found checkpoints that were not accepted; the scan does not skip the bytes that they
	 * claim */
	struct zns_dead *dead;
	size_t nr_dead;
	/* records of the log that were left out; a later version of their checkpoints may still be
	 * found */
	struct zns_dead *left;
	size_t nr_left;
	/* copies of the encrypted ones of those records, since a later version has the same key */
	ZnsPb__Checkpoint **keys;
	size_t nr_keys;
	struct zns_rebuild_result *r;
	struct zns_store *s;
	struct zns_zone *zones;
};

static void tell(struct rebuild *b, const uint8_t *id, const char *container,
		 enum zns_rebuild_source from, bool taken, const char *why)
{
	struct verdict *v;
	size_t i;

	for (i = 0; i < b->nr_verdicts && memcmp(b->verdict[i].id, id, ZNS_UUID_LEN); i++)
		;
	if (i == b->nr_verdicts) {
		if (zns_grow_by_one(b->verdict, i))
			return; /* without memory only the report of this checkpoint is lost */
		b->nr_verdicts++;
		memcpy(b->verdict[i].id, id, ZNS_UUID_LEN);
		b->verdict[i].from = from;
	}
	v = &b->verdict[i];
	v->taken = taken;
	snprintf(v->name, sizeof(v->name), "%s", container);
	snprintf(v->why, sizeof(v->why), "%s", why);
}

static bool is_dead(const struct rebuild *b, const uint8_t *id, int64_t created_ns,
		    int64_t moved_ns)
{
	for (size_t i = 0; i < b->nr_dead; i++)
		if (zns_dead_is(&b->dead[i], id, created_ns, moved_ns))
			return true;
	return false;
}

static bool append(struct zns_dead **list, size_t *nr, const uint8_t *id, int64_t created_ns,
		   int64_t moved_ns)
{
	struct zns_dead *d;

	if (zns_grow_by_one(*list, *nr))
		return false;
	d = &(*list)[(*nr)++];
	*d = (struct zns_dead){ .created_ns = created_ns, .moved_ns = moved_ns };
	memcpy(d->id, id, ZNS_UUID_LEN);
	return true;
}

/* Adds a version to the list of versions that do not count. True: it was not in the list. */
static bool add_dead(struct rebuild *b, const uint8_t *id, int64_t created_ns, int64_t moved_ns)
{
	return !is_dead(b, id, created_ns, moved_ns) &&
	       append(&b->dead, &b->nr_dead, id, created_ns, moved_ns);
}

/* Adds all versions from before a removal to that list. */
static bool add_removed(struct rebuild *b, const uint8_t *id, int64_t created_ns,
			int64_t deleted_ns)
{
	for (size_t i = 0; i < b->nr_dead; i++)
		if (b->dead[i].removed && zns_dead_is(&b->dead[i], id, created_ns, deleted_ns))
			return false;
	if (!append(&b->dead, &b->nr_dead, id, created_ns, deleted_ns))
		return false;
	b->dead[b->nr_dead - 1].removed = true;
	return true;
}

/* Has this run left out the checkpoint's record? Then the tombstone in the state was made by this
 * run, and does not mean that the checkpoint was removed. */
static bool was_left_out(const struct rebuild *b, const uint8_t *id)
{
	for (size_t i = 0; i < b->nr_left; i++)
		if (!memcmp(b->left[i].id, id, ZNS_UUID_LEN))
			return true;
	return false;
}

static void drop(struct zns_state *st, struct zns_ent *e)
{
	ZnsPb__Tombstone *t = calloc(1, sizeof(*t));
	uint8_t *id = malloc(ZNS_UUID_LEN);
	char *by = strdup("znsctl fsck");
	struct zns_ent *tomb;

	if (!t || !id || !by) {
		free(t);
		free(id);
		free(by);
		return;
	}
	zns_pb__tombstone__init(t);
	memcpy(id, e->ckpt->id.data, ZNS_UUID_LEN);
	t->id = (ProtobufCBinaryData){ ZNS_UUID_LEN, id };
	t->deleted_ns = zns_now_ns();
	t->by = by;
	t->container = strdup(e->ckpt->container);
	tomb = zns_state_ent(st, &t->base, NULL, NULL);
	if (tomb)
		zns_state_bury(st, tomb);
}

/* Were the zones of the checkpoint reset since it was written? Then it was removed, and the record
 * of the removal is lost. */
static bool data_gone(const struct rebuild *b, const ZnsPb__Checkpoint *c, char *why, size_t len)
{
	for (size_t i = 0; i < c->n_zones; i++) {
		const ZnsPb__ZoneUse *u = c->zones[i];
		const struct zns_zone *z = &b->zones[u->zone];

		if (z->state != ZNS_ZONE_OFFLINE && u->start + u->len > z->wp) {
			snprintf(why, len, "zone %u was reset since", u->zone);
			return true;
		}
	}
	return false;
}

static bool overlaps(const ZnsPb__Checkpoint *c, const ZnsPb__Checkpoint *o)
{
	for (size_t i = 0; i < c->n_zones; i++)
		for (size_t k = 0; k < o->n_zones; k++) {
			const ZnsPb__ZoneUse *x = c->zones[i], *y = o->zones[k];

			if (x->zone == y->zone && x->start < y->start + y->len &&
			    y->start < x->start + x->len && !zns_use_shares(x, y))
				return true;
		}
	return false;
}

static int64_t written_ns(const ZnsPb__Checkpoint *c)
{
	return zns_max(c->moved_ns, c->created_ns);
}

/* Does another checkpoint claim the same bytes? They belong to the one that was written or moved
 * last. */
static bool overwritten(const struct rebuild *b, const ZnsPb__Checkpoint *c, char *why, size_t len)
{
	const struct zns_list *l = &b->s->st.checkpoints;
	char id[ZNS_UUID_STR];

	for (size_t i = 0; i < l->nr; i++) {
		const ZnsPb__Checkpoint *o = l->v[i] ? l->v[i]->ckpt : NULL;

		if (o && memcmp(o->id.data, c->id.data, ZNS_UUID_LEN) &&
		    written_ns(o) >= written_ns(c) && overlaps(c, o)) {
			snprintf(why, len, "checkpoint %s has its bytes",
				 zns_uuid_format(o->id.data, id));
			return true;
		}
	}
	return false;
}

static void keep_key(struct rebuild *b, const ZnsPb__Checkpoint *c)
{
	if (!c->crypt || zns_grow_by_one(b->keys, b->nr_keys))
		return;
	b->keys[b->nr_keys] = zns_pb_copy(&c->base, NULL);
	b->nr_keys += b->keys[b->nr_keys] != NULL;
}

/* Takes a record out of the state. The other records keep their positions until the list is
 * compacted. */
static void leave_out(struct rebuild *b, struct zns_ent *e, const char *why)
{
	cleanup_free char *name = strdup(e->ckpt->container);
	uint8_t id[ZNS_UUID_LEN];
	int64_t created_ns = e->ckpt->created_ns, moved_ns = e->ckpt->moved_ns;

	memcpy(id, e->ckpt->id.data, ZNS_UUID_LEN);
	keep_key(b, e->ckpt);
	drop(&b->s->st, e);
	add_dead(b, id, created_ns, moved_ns);
	append(&b->left, &b->nr_left, id, created_ns, moved_ns);
	tell(b, id, name ? name : "?", ZNS_FROM_LOG, false, why);
}

/* Accepts records of the log unless the state of their zones contradicts them. */
static void check_records(struct rebuild *b)
{
	struct zns_list *l = &b->s->st.checkpoints;
	size_t nr = l->nr;
	char why[128];

	for (size_t i = 0; i < nr; i++) {
		struct zns_ent *e = l->v[i];

		if (!e || zns_state_room(&b->s->st, NULL))
			continue;
		if (data_gone(b, e->ckpt, why, sizeof(why)) ||
		    overwritten(b, e->ckpt, why, sizeof(why)))
			leave_out(b, e, why);
	}
	zns_state_compact(&b->s->st);
}

static const ZnsPb__Tombstone *dead_in_zones(const struct zns_scan *s, const uint8_t *id,
					     int64_t created_ns, int64_t moved_ns)
{
	for (size_t i = 0; i < s->nr_dead; i++)
		if (zns_tombstone_of(s->dead[i], id, created_ns, moved_ns))
			return s->dead[i];
	return NULL;
}

static void how_removed(const ZnsPb__Tombstone *t, char *why, size_t len)
{
	char when[32];

	snprintf(why, len, "was removed at %s by %.100s",
		 zns_format_time(t->deleted_ns, when, sizeof(when)), t->by);
}

static bool has_manifest(const struct rebuild *b, const ZnsPb__Checkpoint *c)
{
	ZnsPb__Manifest *m;

	if (zns_manifest_read(b->s->dev, c, &m, NULL))
		return false;
	zns_pb__manifest__free_unpacked(m, NULL);
	return true;
}

/* Checks the records against what the scan found: removals that the log has lost, and newer
 * checkpoints at the same place. */
static void settle_records(struct rebuild *b)
{
	const struct zns_scan *sc = &b->r->scan;
	struct zns_list *l = &b->s->st.checkpoints;
	size_t nr = l->nr;

	for (size_t i = 0; i < nr; i++) {
		struct zns_ent *e = l->v[i];
		const ZnsPb__Tombstone *t;
		bool whole, over = false;
		char why[200] = "";

		if (!e || zns_state_room(&b->s->st, NULL))
			continue;
		t = dead_in_zones(sc, e->ckpt->id.data, e->ckpt->created_ns, e->ckpt->moved_ns);
		whole = has_manifest(b, e->ckpt);
		for (size_t k = 0; !whole && k < sc->nr; k++)
			over |= sc->v[k].c && memcmp(sc->v[k].id, e->ckpt->id.data, ZNS_UUID_LEN) &&
				written_ns(sc->v[k].c) >= written_ns(e->ckpt) &&
				overlaps(e->ckpt, sc->v[k].c);
		if (t) {
			how_removed(t, why, sizeof(why));
			add_removed(b, e->ckpt->id.data, e->ckpt->created_ns, t->deleted_ns);
			leave_out(b, e, why);
		} else if (over) {
			leave_out(b, e, "its zones were written anew");
		} else {
			tell(b, e->ckpt->id.data, e->ckpt->container, ZNS_FROM_LOG, true,
			     whole ? "" : "its manifest is damaged");
		}
	}
	zns_state_compact(&b->s->st);
}

/* Adds a checkpoint that the scan found to the state. An error says why it was not accepted. */
static int take(struct rebuild *b, const struct zns_found *f, bool *key_lost, struct zns_err *err)
{
	struct zns_state *st = &b->s->st;
	/* True: the catalogue has this checkpoint already, in an older version, since the record of
	 * its move is lost. The version that was found replaces it. */
	bool replace = zns_state_find(st, f->id);
	struct zns_limits lim = st->lim;
	ZnsPb__Manifest *m = NULL;
	ZnsPb__Checkpoint *copy;
	struct zns_ent *e;
	char why[128];
	int ret;

	if (f->why.code) {
		*err = f->why;
		return f->why.code;
	}
	lim.nr_groups = lim.nr_zones;
	ret = zns_check_checkpoint(f->c, &lim, -EBADMSG, err);
	if (!ret &&
	    (data_gone(b, f->c, why, sizeof(why)) || overwritten(b, f->c, why, sizeof(why))))
		ret = zns_fail(err, -ESTALE, "%s", why);
	if (!ret)
		ret = (replace ? zns_state_may_replace : zns_state_may_add)(st, f->c, -EBADMSG,
									    err);
	if (!ret)
		ret = zns_manifest_read(b->s->dev, f->c, &m, err);
	if (!ret && memcmp(m->device.data, b->s->uuid, ZNS_UUID_LEN))
		ret = zns_fail(err, -EXDEV, "it is of another store");
	if (!ret)
		ret = zns_manifest_agrees(m, f->c, err);
	if (!ret && b->p->intact)
		ret = b->p->intact(b->p->arg, f->c, m, err);
	if (m)
		zns_pb__manifest__free_unpacked(m, NULL);
	if (!ret)
		ret = zns_state_room(st, err);
	if (ret)
		return ret;
	copy = zns_pb_copy(&f->c->base, NULL);
	if (copy && replace)
		zns_crypt_inherit(copy, zns_state_find(st, f->id)->ckpt);
	for (size_t i = 0; copy && i < b->nr_keys; i++)
		if (!memcmp(b->keys[i]->id.data, f->id, ZNS_UUID_LEN) && copy->crypt &&
		    !copy->crypt->has_wrapped)
			zns_crypt_inherit(copy, b->keys[i]);
	if (copy && copy->crypt && !copy->crypt->has_wrapped &&
	    zns_salvage_key(b->sv, copy->id.data)) {
		zns_pb__checkpoint_key__free_unpacked(copy->crypt, NULL);
		copy->crypt = zns_pb_copy(&zns_salvage_key(b->sv, copy->id.data)->base, err);
		if (!copy->crypt) {
			zns_pb__checkpoint__free_unpacked(copy, NULL);
			return -ENOMEM;
		}
	}
	*key_lost = copy && copy->crypt && !copy->crypt->has_wrapped;
	e = copy ? zns_state_ent(st, &copy->base, copy->container, err) : NULL;
	if (!e)
		return zns_fail(err, -ENOMEM, "no memory for a checkpoint");
	(replace ? zns_state_replace : zns_state_add)(st, e);
	return 0;
}

static int cmp_found(const void *pa, const void *pb)
{
	const struct zns_found *a = pa, *b = pb;
	int64_t x = a->c ? a->c->created_ns : 0, y = b->c ? b->c->created_ns : 0;

	if (x != y)
		return x < y ? -1 : 1;
	/* Versions of one checkpoint are sorted by their moves, the latest first. */
	return a->c && b->c ? zns_version_cmp(b->c, a->c) : 0;
}

/* Decides on all checkpoints that the scan found. Returns how many of them were newly rejected; if
 * any, the scan must be repeated without these. */
static int take_found(struct rebuild *b)
{
	int news = 0;
	struct zns_scan *sc = &b->r->scan;

	if (sc->nr)
		qsort(sc->v, sc->nr, sizeof(*sc->v), cmp_found);
	for (size_t i = 0; i < sc->nr; i++) {
		const struct zns_found *f = &sc->v[i];
		const struct zns_ent *dead = zns_state_find_dead(&b->s->st, f->id),
				     *have = zns_state_find(&b->s->st, f->id);
		int64_t created_ns = f->c ? f->c->created_ns : ZNS_ANY_LIFE;
		int64_t moved_ns = f->c ? f->c->moved_ns : 0, have_ns;
		const ZnsPb__Tombstone *t = dead && !was_left_out(b, f->id) &&
							    zns_tombstone_of(dead->tomb, f->id,
									     created_ns, moved_ns) ?
						    dead->tomb :
						    dead_in_zones(sc, f->id, created_ns, moved_ns);
		const char *name = f->c ? f->c->container : "?";
		struct zns_err err = ZNS_ERR_INIT;
		int ret, later = have && f->c ? zns_version_cmp(f->c, have->ckpt) : 0;
		bool key_lost = false;
		char why[200];

		if (have && later <= 0) {
			/* the state has a later version, so other data may have been written to the
			 * place of this one */
			if (later < 0)
				news += add_dead(b, f->id, created_ns, moved_ns);
			continue;
		}
		if (is_dead(b, f->id, created_ns, moved_ns) && !t)
			continue;
		if (t) {
			how_removed(t, why, sizeof(why));
			/* do not report the removal of an earlier instance if the checkpoint was
			 * imported again afterwards */
			if (!have)
				tell(b, f->id, name, ZNS_FROM_ZONES, false, why);
			news += add_removed(b, f->id, created_ns, t->deleted_ns);
			continue;
		}
		/* Copied, because the record is freed when it is replaced. */
		have_ns = have ? have->ckpt->moved_ns : 0;
		ret = take(b, f, &key_lost, &err);
		if (ret == -ENOMEM)
			return ret;
		/* If an earlier version was accepted, it is kept, and so is the verdict on it. */
		if (!ret || !have)
			tell(b, f->id, name, ZNS_FROM_ZONES, !ret,
			     ret      ? err.msg :
			     key_lost ? "its key was lost with the log: the data "
					"cannot be decrypted" :
					"");
		if (ret || have)
			news += add_dead(b, f->id, created_ns, ret ? moved_ns : have_ns);
	}
	return news;
}

static int own_uuid(struct rebuild *b, const struct zns_salvage *sv, struct zns_err *err)
{
	if (sv->has_uuid)
		return 0;
	if (b->p->uuid && (sv->records || b->r->scan.nr)) {
		memcpy(b->s->uuid, b->p->uuid, ZNS_UUID_LEN);
		return 0;
	}
	for (size_t i = 0; i < b->r->scan.nr; i++) {
		ZnsPb__Manifest *m;

		if (!b->r->scan.v[i].c || zns_manifest_read(b->s->dev, b->r->scan.v[i].c, &m, NULL))
			continue;
		memcpy(b->s->uuid, m->device.data, ZNS_UUID_LEN);
		zns_pb__manifest__free_unpacked(m, NULL);
		return 0;
	}
	return zns_fail(err, -ENOMEDIUM, "nothing on %s is of a store: no record and no footer",
			b->s->dev->path);
}

/* Starts with the fallback profile, since without a profile there are no groups and no reservation
 * would be accepted. */
static int start(struct rebuild *b, struct zns_salvage *sv, struct zns_err *err)
{
	struct zns_store *s = b->s;
	int ret;

	ret = zns_store_meta_range(s->dev, &s->first_meta, &s->nr_meta, err);
	if (!ret)
		ret = zns_state_init(&s->st, &s->dev->geo, s->nr_meta, err);
	if (!ret)
		ret = zns_record_set(&s->st, ZNS_FRAME_PROFILE, &b->p->profile->base, err);
	if (ret)
		return ret;
	ret = zns_salvage_log(s, sv, err);
	if (!ret)
		ret = zns_dev_report(s->dev, 0, s->dev->geo.nr_zones, b->zones, err);
	b->r->records = sv->records;
	b->r->damaged_blocks = sv->damaged_blocks;
	b->r->profile_lost = !sv->has_profile;
	return ret;
}

static int cmp_commit(const void *pa, const void *pb)
{
	const ZnsPb__Checkpoint *a = (*(struct zns_ent *const *)pa)->ckpt,
				*b = (*(struct zns_ent *const *)pb)->ckpt;

	return a->created_ns < b->created_ns ? -1 : a->created_ns > b->created_ns;
}

/* Restores the order of the commits. */
static void sort_checkpoints(struct zns_list *l)
{
	if (l->nr)
		qsort(l->v, l->nr, sizeof(*l->v), cmp_commit);
	for (size_t i = 0; i < l->nr; i++)
		l->v[i]->pos = i;
}

static int scan(struct rebuild *b, struct zns_err *err)
{
	const struct zns_list *l = &b->s->st.checkpoints;
	cleanup_free const ZnsPb__Checkpoint **known = calloc(l->nr + 1, sizeof(*known));
	struct zns_scan_params p = { .dev = b->s->dev,
				     .nr_meta = b->s->nr_meta,
				     .progress = b->p->progress,
				     .arg = b->p->arg,
				     .dead = b->dead,
				     .nr_dead = b->nr_dead };
	size_t n = 0;

	if (!known)
		return zns_fail(err, -ENOMEM, "no memory for %zu checkpoints", l->nr);
	zns_scan_free(&b->r->scan);
	for (size_t i = 0; i < l->nr; i++)
		/* If the manifest is not there any more, its place may have newer data. */
		if (has_manifest(b, l->v[i]->ckpt))
			known[n++] = l->v[i]->ckpt;
	p.known = known;
	p.nr_known = n;
	return zns_scan_zones(&p, &b->r->scan, err);
}

static int write_new(struct rebuild *b, const struct zns_salvage *sv, struct zns_err *err)
{
	struct zns_store *s = b->s;
	int ret = b->p->self ? zns_store_mine(s, b->p->self->machine, err) : 0;

	if (ret)
		return ret;
	/* Keep the zone with the newest records until the next roll-over: the new generation is not
	 * written into it. */
	if (sv->newest_zone != UINT32_MAX) {
		s->log.dev = s->dev;
		s->log.zone = sv->newest_zone;
	}
	return zns_store_roll(s, 0, err);
}

int zns_rebuild(struct zns_dev *dev, const struct zns_rebuild_params *p,
		struct zns_rebuild_result *r, struct zns_err *err)
{
	cleanup_free struct zns_zone *zones = calloc(dev->geo.nr_zones, sizeof(*zones));
	struct rebuild b = { .p = p, .r = r, .zones = zones, .s = zns_store_alloc(dev, 0, err) };
	struct zns_salvage sv = { 0 };
	int ret;

	b.sv = &sv;
	*r = (struct zns_rebuild_result){ 0 };
	if (!b.s || !zones) {
		zns_store_close(b.s);
		return zns_fail(err, -ENOMEM, "no memory for %u zones", dev->geo.nr_zones);
	}
	ret = start(&b, &sv, err);
	if (!ret)
		check_records(&b);
	for (size_t i = 0; i < b.s->st.tombstones.nr && !ret; i++) {
		const struct zns_ent *e = b.s->st.tombstones.v[i];

		if (e && !was_left_out(&b, e->tomb->id.data))
			add_removed(&b, e->tomb->id.data,
				    e->tomb->has_created_ns ? e->tomb->created_ns : ZNS_ANY_LIFE,
				    e->tomb->deleted_ns);
	}
	/* A record that is left out may have hidden what was later written to its place, so the
	 * scan is repeated without the record. */
	while (!ret) {
		ret = scan(&b, err);
		if (!ret)
			ret = own_uuid(&b, &sv, err);
		if (!ret)
			settle_records(&b);
		if (!ret)
			ret = take_found(&b);
		if (ret == -ENOMEM)
			zns_fail(err, ret, "no memory for what was found");
		if (ret <= 0)
			break;
		ret = 0;
	}
	zns_state_compact(&b.s->st);
	zns_salvage_marks(&sv, &b.s->st);
	sort_checkpoints(&b.s->st.checkpoints);
	r->checkpoints = b.s->st.checkpoints.nr;
	r->reservations = b.s->st.reservations.nr;
	r->tombstones = b.s->st.tombstones.nr;
	if (!ret && !p->dry_run)
		ret = write_new(&b, &sv, err);
	r->generation = p->dry_run ? b.s->max_generation + 1 : b.s->log.generation;
	for (size_t i = 0; i < b.nr_verdicts && p->tell && !ret; i++)
		p->tell(p->arg, b.verdict[i].id, b.verdict[i].name, b.verdict[i].from,
			b.verdict[i].taken, b.verdict[i].why);
	zns_salvage_fini(&sv);
	free(b.verdict);
	free(b.dead);
	free(b.left);
	for (size_t i = 0; i < b.nr_keys; i++)
		zns_pb__checkpoint__free_unpacked(b.keys[i], NULL);
	free(b.keys);
	zns_store_close(b.s);
	if (ret)
		zns_scan_free(&r->scan);
	return ret;
}
