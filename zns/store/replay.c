/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Reads the catalogue from the metadata zones: the highest generation whose snapshot is complete.
 * After a crash, the last record may be incomplete, which is accepted. A damaged record with intact
 * records behind it is an error. It is never repaired silently, since zones that the lost record
 * names would count as free.
 */
#include <string.h>
#include "kinds.h"

#define GHOST_SCAN \
	MIB(4) /* how far to look for records behind a superblock that does not parse \
		*/

struct cand {
	const struct zns_zone *zone;
	ZnsPb__Superblock *sb;
};

/*
 * A superblock that is intact but has impossible values. It only matters if no newer superblock is
 * found.
 */
struct bad_superblock {
	int ret;
	uint64_t generation;
	struct zns_err err;
};

struct replay {
	struct zns_state st;
	/* end of the log, number of the next record, number of records so far */
	uint64_t off, seq, nr;
	uint64_t longest; /* size of the longest record in bytes */
	bool complete, torn;
};

/* ---- one record ---- */

static int apply_end(struct replay *rp, const struct zns_frame *f, struct zns_err *err)
{
	ZnsPb__SnapshotEnd *e = zns_pb__snapshot_end__unpack(NULL, f->len, f->payload);
	uint32_t nr;

	if (!e)
		return zns_fail(err, -EBADMSG, "end of snapshot cannot be decoded");
	nr = e->nr_records;
	zns_pb__snapshot_end__free_unpacked(e, NULL);
	if (rp->complete || !rp->st.profile.nr || nr != rp->nr)
		return zns_fail(err, -EBADMSG, "the snapshot has %llu records, its end says %u",
				(unsigned long long)rp->nr, nr);
	rp->complete = true;
	return 0;
}

static int apply(struct replay *rp, const struct zns_frame *f, struct zns_err *err)
{
	struct zns_state *st = &rp->st;
	int ret = zns_state_room(st, err);

	if (ret)
		return ret;
	if (!st->profile.nr && f->type != ZNS_FRAME_PROFILE)
		return zns_fail(err, -EBADMSG,
				"a record stands before the profile, which must be the first one");
	if (f->type == ZNS_FRAME_SNAPSHOT_END)
		return apply_end(rp, f, err);
	return zns_record_apply(st, f, !rp->complete, err);
}

/* ---- one zone ---- */

static int replay_frame(struct replay *rp, const struct zns_frame *f, uint64_t size,
			struct zns_err *err)
{
	int ret;

	if (f->seq != rp->seq)
		return zns_fail(err, -EBADMSG,
				"record number %llu stands where number %llu must be",
				(unsigned long long)f->seq, (unsigned long long)rp->seq);
	if (f->seq) { /* record 0 is the superblock */
		ret = apply(rp, f, err);
		if (ret)
			return ret;
		rp->nr++;
	}
	rp->seq++;
	rp->longest = zns_max(rp->longest, size);
	return 0;
}

static int replay_zone(struct zns_store *s, const struct cand *c, struct replay *rp,
		       struct zns_err *err)
{
	uint64_t gen = c->sb->generation, found;
	struct zns_log_reader r;
	struct zns_frame f;
	int ret;

	*rp = (struct replay){ 0 };
	ret = zns_state_init(&rp->st, &s->dev->geo, s->nr_meta, err);
	if (ret)
		return ret;
	zns_log_reader_init(&r, s->dev, c->zone);
	while ((ret = zns_log_peek(&r, &f, err)) == 1) {
		uint64_t size = zns_frame_size(f.len, zns_geo_log_block(&s->dev->geo));

		/* skip a frame of another generation, which is left from an earlier use of the
		 * zone */
		ret = f.generation == gen ? replay_frame(rp, &f, size, err) : 0;
		if (ret) {
			zns_wrap(err, "metadata zone %u, byte %llu", r.zone,
				 (unsigned long long)r.off);
			goto out;
		}
		r.off += size;
	}
	rp->off = r.off;
	/*
	 * An incomplete last write is not damage: after a power cut a write ends at a block, and so
	 * does the write pointer. Its header is intact and its length exceeds the written part. Any
	 * other bad frame below the write pointer of an active zone was complete once, so it is
	 * damaged.
	 */
	if (ret == -EBADMSG && (r.cut_off || !r.exact)) {
		ret = zns_log_later(&r, gen, rp->seq, UINT64_MAX, &found, err);
		if (ret == 1)
			ret = zns_fail(
				err, -EBADMSG,
				"metadata zone %u: damaged record at byte %llu, good ones behind it",
				r.zone, (unsigned long long)r.off);
		rp->torn = true;
	}
out:
	zns_log_reader_fini(&r);
	return ret;
}

static void replay_fini(struct replay *rp)
{
	zns_state_fini(&rp->st);
}

/* ---- all zones ---- */

/* Returns 1: a superblock was read; 0: there is none, or a bad one, which is stored in @bad.
 * *ghost: the highest generation of records without a superblock. */
static int read_superblock(struct zns_store *s, struct cand *c, uint64_t *ghost,
			   struct bad_superblock *bad, struct zns_err *err)
{
	struct bad_superblock b = { .err = ZNS_ERR_INIT };
	struct zns_log_reader r;
	struct zns_frame f;
	uint64_t gen = 0;
	int ret;

	zns_log_reader_init(&r, s->dev, c->zone);
	ret = zns_log_peek(&r, &f, err);
	if (ret == 1 && f.type == ZNS_FRAME_SUPERBLOCK) {
		b.ret = zns_superblock_parse(&f, &s->dev->geo, s->nr_meta, &c->sb, &b.err);
		b.generation = f.generation;
		if (b.ret && (!bad->ret || b.generation > bad->generation)) {
			*bad = b;
			zns_wrap(&bad->err, "metadata zone %u", r.zone);
		}
		ret = !b.ret;
	} else if (ret == 1 || ret == -EBADMSG) {
		ret = zns_log_later(&r, 0, 0, GHOST_SCAN, &gen, err);
		if (ret > 0) {
			*ghost = zns_max(*ghost, gen);
			ret = 0;
		}
	}
	zns_log_reader_fini(&r);
	return ret;
}

static int cmp_cand(const void *pa, const void *pb)
{
	const struct cand *a = pa, *b = pb;

	return a->sb->generation < b->sb->generation ? 1 :
	       a->sb->generation > b->sb->generation ? -1 :
						       0;
}

/*
 * An offline zone cannot be read. Could it hold a later generation than the one found? Only if it
 * is the next zone to be written, and if the log that was found ends as it would before a
 * roll-over: with an incomplete record, or full.
 */
static int check_offline(struct zns_store *s, const struct cand *c, const struct replay *rp,
			 const struct zns_zone *zones, struct zns_err *err)
{
	uint32_t n = s->nr_meta - s->first_meta, i, k;
	size_t j;

	if (!rp->torn && rp->off + rp->longest <= zns_log_room(s->dev, c->zone->capacity))
		return 0;
	for (k = 1; k < n; k++) {
		i = (c->zone->index - s->first_meta + k) % n;
		for (j = 0; j < c->sb->n_skipped_zones; j++)
			if (c->sb->skipped_zones[j] == zones[i].index)
				break;
		if (j < c->sb->n_skipped_zones)
			continue; /* the zone was already unusable when this generation began */
		if (zones[i].state == ZNS_ZONE_OFFLINE)
			return zns_fail(
				err, -EBADMSG,
				"metadata zone %u is offline and may hold the newest catalogue",
				zones[i].index);
		return 0;
	}
	return 0;
}

int zns_store_fit_profile(struct zns_state *st, uint32_t nr_zones, struct zns_err *err)
{
	const ZnsPb__Profile *have = zns_newest(&st->profile);
	cleanup_free uint32_t *group = NULL;
	ZnsPb__Profile p = *have;

	if (p.n_zone_group == nr_zones)
		return 0;
	group = calloc(nr_zones, sizeof(*group));
	if (!group)
		return zns_fail(err, -ENOMEM, "no memory for %u zones", nr_zones);
	memcpy(group, p.zone_group, zns_min(nr_zones, (uint32_t)p.n_zone_group) * sizeof(*group));
	p.zone_group = group;
	p.n_zone_group = nr_zones;
	return zns_record_set(st, ZNS_FRAME_PROFILE, &p.base, err);
}

static int adopt(struct zns_store *s, const struct cand *c, struct replay *rp, struct zns_err *err)
{
	const struct zns_zone *z = c->zone;
	int ret = zns_store_fit_profile(&rp->st, s->dev->geo.nr_zones, err);

	if (ret)
		return ret;

	s->st = rp->st;
	rp->st = (struct zns_state){ 0 };
	zns_state_compact(&s->st);
	memcpy(s->uuid, c->sb->device.data, ZNS_UUID_LEN);
	zns_log_init(&s->log, s->dev, z->index, z->capacity, c->sb->generation);
	s->log.off = rp->off;
	s->log.seq = rp->seq;
	s->torn = rp->torn;
	s->need_roll = rp->torn || z->state == ZNS_ZONE_READ_ONLY ||
		       c->sb->generation != s->max_generation ||
		       c->sb->nr_zones != s->dev->geo.nr_zones;
	return 0;
}

/* Reports that there is no store. If the device is not empty, its catalogue may be lost, and then
 * the message must not advise to format it. */
static int no_store(struct zns_dev *dev, struct zns_err *err)
{
	uint32_t nr;
	int ret = zns_store_written(dev, 0, &nr, err);

	if (ret)
		return ret;
	if (!nr)
		return zns_fail(err, -ENOMEDIUM,
				"the device holds no store: run `znsctl format %s`", dev->path);
	return zns_fail(
		err, -ENOMEDIUM,
		"the device holds no store, but %u of its zones are not empty: `znsctl fsck --rebuild %s` looks for "
		"checkpoints in them, `znsctl format --force %s` destroys what they hold",
		nr, dev->path, dev->path);
}

static int choose(struct zns_store *s, struct cand *c, size_t nr, uint64_t ghost,
		  const struct bad_superblock *bad, const struct zns_zone *zones,
		  struct zns_err *err)
{
	struct replay rp;
	int ret;

	qsort(c, nr, sizeof(*c), cmp_cand);
	s->max_generation = zns_max(nr ? zns_max(ghost, c[0].sb->generation) : ghost,
				    bad->generation);
	for (size_t i = 0; i < nr; i++) {
		ret = replay_zone(s, &c[i], &rp, err);
		if (!ret && rp.complete) {
			if (bad->generation > c[i].sb->generation)
				ret = zns_fail(err, bad->ret, "%s", bad->err.msg);
			else if (ghost > c[i].sb->generation)
				ret = zns_fail(err, -EBADMSG,
					       "the superblock of generation %llu is damaged",
					       (unsigned long long)ghost);
			if (!ret)
				ret = check_offline(s, &c[i], &rp, zones, err);
			if (!ret)
				ret = adopt(s, &c[i], &rp, err);
			replay_fini(&rp);
			return ret;
		}
		replay_fini(&rp);
		if (ret)
			return ret;
	}
	if (bad->ret)
		return zns_fail(err, bad->ret, "%s", bad->err.msg);
	if (s->max_generation > 1 || ghost)
		return zns_fail(err, -EBADMSG, "no generation of the catalogue is complete");
	if (nr)
		return zns_fail(err, -ENOMEDIUM,
				"formatting was interrupted: run `znsctl format %s` again",
				s->dev->path);
	return no_store(s->dev, err);
}

int zns_store_replay(struct zns_store *s, struct zns_err *err)
{
	uint32_t n = s->nr_meta - s->first_meta;
	cleanup_free struct zns_zone *zones = calloc(n, sizeof(*zones));
	cleanup_free struct cand *c = calloc(n, sizeof(*c));
	struct bad_superblock bad = { .err = ZNS_ERR_INIT };
	struct zns_err e = ZNS_ERR_INIT;
	uint64_t ghost = 0;
	size_t nr = 0;
	int ret;

	if (!zones || !c)
		return zns_fail(err, -ENOMEM, "no memory for %u metadata zones", n);
	ret = zns_dev_report(s->dev, s->first_meta, n, zones, &e);
	if (!ret)
		zns_store_min_cap(s, zones);
	for (uint32_t i = 0; i < n && !ret; i++) {
		if (zones[i].state == ZNS_ZONE_OFFLINE || zones[i].conventional)
			continue;
		c[nr].zone = &zones[i];
		ret = read_superblock(s, &c[nr], &ghost, &bad, &e);
		if (ret == 1) {
			nr++;
			ret = 0;
		}
	}
	if (!ret)
		ret = choose(s, c, nr, ghost, &bad, zones, &e);
	for (size_t i = 0; i < nr; i++)
		zns_pb__superblock__free_unpacked(c[i].sb, NULL);
	if (ret == -EBADMSG)
		return zns_fail(
			err, ret,
			"the catalogue of %s is damaged (%s); nothing was changed on the device; `znsctl fsck %s` tells what can be recovered",
			s->dev->path, e.msg, s->dev->path);
	return ret ? zns_fail(err, ret, "%s: %s", s->dev->path, e.msg) : 0;
}
