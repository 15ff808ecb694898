/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Roll-over: writes the whole catalogue as a snapshot into the next metadata zone, which becomes
 * the log. The zone of the previous generation is not changed, so that a crash at any moment leaves
 * one complete generation.
 */
#include "kinds.h"

/* A superblock grows by at most 6 bytes for each skipped zone, so two blocks and 6 bytes for each
 * zone are always enough. */
static uint64_t superblock_bytes(const struct zns_store *s)
{
	return zns_frame_size(128 + 6 * (size_t)(s->nr_meta - s->first_meta),
			      zns_geo_log_block(&s->dev->geo));
}

uint64_t zns_store_snapshot_bytes(const struct zns_store *s)
{
	const struct zns_state *st = &s->st;
	uint64_t sum = superblock_bytes(s) +
		       zns_geo_log_block(&s->dev->geo) /* one block for SNAPSHOT_END */,
		 claim = zns_store_claim_rec(s);
	const struct zns_kind *k;

	for (size_t i = 0; (k = zns_kind_at(i)); i++)
		if (zns_kind_list(k, st) && k->type != ZNS_FRAME_TOMBSTONE)
			sum += zns_kind_list(k, st)->bytes;
	/* The pending claim will replace the present mount record. */
	return sum + (claim > st->mount.bytes ? claim - st->mount.bytes : 0);
}

/* How many of the oldest tombstones must be dropped so that the rest fits into @room bytes. */
static size_t tombstones_to_drop(const struct zns_state *st, uint64_t room)
{
	uint64_t bytes = st->tombstones.bytes;
	size_t drop = 0, nr = st->tombstones.nr;

	while (drop < nr && (nr - drop > ZNS_TOMBSTONES_MAX || bytes > room))
		bytes -= st->tombstones.v[drop++]->rec;
	return drop;
}

static int put_list(struct zns_log *l, uint16_t type, const struct zns_list *list, size_t from,
		    struct zns_err *err)
{
	int ret = 0;

	for (size_t i = from; i < list->nr && !ret; i++)
		ret = zns_log_put(l, type, list->v[i]->msg, err);
	return ret;
}

static int put_keys(struct zns_log *l, const struct zns_list *list, struct zns_err *err)
{
	ZnsPb__KeyLine key;
	int ret = 0;

	for (size_t i = 0; i < list->nr && !ret; i++)
		if (zns_state_key(list->v[i]->ckpt, &key))
			ret = zns_log_put(l, ZNS_FRAME_KEY, &key.base, err);
	return ret;
}

static int write_snapshot(struct zns_store *s, struct zns_log *l, const uint32_t *skipped,
			  size_t nr_skipped, size_t drop, struct zns_err *err)
{
	ZnsPb__SnapshotEnd end = ZNS_PB__SNAPSHOT_END__INIT;
	const struct zns_kind *k;
	int ret;

	ret = zns_superblock_put(l, s->uuid, &s->dev->geo, s->nr_meta, skipped, nr_skipped, err);
	for (size_t i = 0; !ret && (k = zns_kind_at(i)); i++) {
		const struct zns_list *list = zns_kind_list(k, &s->st);

		if (list)
			ret = put_list(l, k->type, list, k->type == ZNS_FRAME_TOMBSTONE ? drop : 0,
				       err);
		else if (k->type == ZNS_FRAME_KEY)
			ret = put_keys(l, &s->st.checkpoints, err);
	}
	end.nr_records = l->seq - 1; /* number of records excluding the superblock */
	if (!ret)
		ret = zns_log_put(l, ZNS_FRAME_SNAPSHOT_END, &end.base, err);
	if (!ret)
		ret = zns_log_write(l, err);
	if (!ret)
		ret = zns_dev_flush(s->dev, err);
	l->volatile_tail = ret != 0;
	return ret;
}

static int roll_into(struct zns_store *s, const struct zns_zone *z, const uint32_t *skipped,
		     size_t nr_skipped, uint64_t need, struct zns_err *err)
{
	uint64_t fixed = zns_store_snapshot_bytes(s) + need,
		 cap = zns_log_room(s->dev, z->capacity);
	struct zns_log l;
	size_t drop;
	int ret = 0;

	if (fixed > cap)
		return zns_fail(
			err, -ENOSPC,
			"a metadata zone holds %llu bytes, the catalogue needs %llu: remove checkpoints",
			(unsigned long long)cap, (unsigned long long)fixed);
	/* Leave half of the remaining room to the log: if tombstones filled the zone, every change
	 * would cause a roll-over. */
	drop = tombstones_to_drop(&s->st, (cap - fixed) / 2);
	zns_log_init(&l, s->dev, z->index, z->capacity, ++s->max_generation);
	if (z->state != ZNS_ZONE_EMPTY)
		ret = zns_dev_reset(s->dev, &z->index, 1, err);
	if (!ret)
		ret = write_snapshot(s, &l, skipped, nr_skipped, drop, err);
	if (ret) {
		zns_log_fini(&l);
		return ret;
	}
	zns_state_forget(&s->st, drop);
	zns_log_fini(&s->log);
	s->log = l;
	s->need_roll = false;
	return 0;
}

/* Resets the zones of generations before the previous one, so that metadata occupy one active zone
 * only. The zone of the previous generation is finished if little padding is needed for that. A
 * failure is no error: the next roll-over resets the zones that it needs. */
static void retire(struct zns_store *s, uint32_t previous)
{
	uint32_t n = s->nr_meta - s->first_meta, nr = 0;
	cleanup_free struct zns_zone *zones = calloc(n, sizeof(*zones));
	cleanup_free uint32_t *list = calloc(n, sizeof(*list));

	if (!zones || !list || zns_dev_report(s->dev, s->first_meta, n, zones, NULL))
		return;
	for (uint32_t i = 0; i < n; i++) {
		const struct zns_zone *z = &zones[i];

		if (!zns_meta_usable(z) || z->state == ZNS_ZONE_EMPTY || z->index == s->log.zone)
			continue;
		if (z->index != previous)
			list[nr++] = z->index;
		else if (zns_zone_is_active(z->state) && z->capacity - z->wp <= z->capacity / 16)
			zns_dev_finish(s->dev, z->index, NULL);
	}
	if (nr)
		zns_dev_reset(s->dev, list, nr, NULL);
}

/*
 * Dumps may use every zone that the limits allow, so the log closes its zone before it opens the
 * next one. The contents stay readable, and are valid until the next generation is complete. The
 * zone is finished only if it is nearly full, so that little is padded. If the roll-over fails
 * after that, the next change tries it again first.
 */
static void step_out(struct zns_store *s, const struct zns_zone *old)
{
	if (zns_zone_is_open(old->state))
		zns_dev_close_zone(s->dev, old->index, NULL);
	if (!s->dev->geo.max_active || !zns_zone_is_active(old->state) ||
	    old->capacity - old->wp > old->capacity / 16)
		return;
	s->need_roll = true;
	zns_dev_finish(s->dev, old->index, NULL);
}

static int roll(struct zns_store *s, uint64_t need, struct zns_err *err)
{
	uint32_t n = s->nr_meta - s->first_meta, old = s->log.zone, i, k;
	cleanup_free struct zns_zone *zones = calloc(n, sizeof(*zones));
	cleanup_free uint32_t *skipped = calloc(n, sizeof(*skipped));
	size_t nr_skipped = 0;
	bool tried = false;
	int ret;

	if (!zones || !skipped)
		return zns_fail(err, -ENOMEM, "no memory for %u metadata zones", n);
	/* A reader would refuse a higher generation. */
	if (s->max_generation >= ZNS_GENERATION_MAX)
		return zns_fail(
			err, -EOVERFLOW,
			"%s has a record of generation %llu, which no catalogue reaches: it was forged",
			s->dev->path, (unsigned long long)s->max_generation);
	zns_state_compact(&s->st);
	ret = zns_dev_report(s->dev, s->first_meta, n, zones, err);
	if (ret)
		return ret;
	zns_store_min_cap(s, zones);
	for (i = 0; i < n; i++)
		if (!zns_meta_usable(&zones[i]))
			skipped[nr_skipped++] = zones[i].index;
	if (s->log.dev && old >= s->first_meta && zns_meta_usable(&zones[old - s->first_meta]))
		step_out(s, &zones[old - s->first_meta]);
	/* If there is no log yet (format), start with the first zone. */
	for (k = s->log.dev ? 1 : 0; k < n; k++) {
		i = s->log.dev ? (old - s->first_meta + k) % n : k;
		if (!zns_meta_usable(&zones[i]))
			continue;
		tried = true;
		ret = roll_into(s, &zones[i], skipped, nr_skipped, need, err);
		if (!ret) {
			retire(s, old);
			return 0;
		}
	}
	return tried ? ret :
		       zns_fail(err, -EROFS, "no metadata zone of %s can be written any more",
				s->dev->path);
}

int zns_store_roll(struct zns_store *s, uint64_t need, struct zns_err *err)
{
	int ret = roll(s, need, err);

	/* remember the write pointers also after a failure, since this program has changed them */
	zns_store_remember(s);
	return ret;
}
