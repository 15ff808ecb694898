/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Keeps the numbers of open and active zones below the device's limits: decides which partly filled
 * zones stay active and which are finished first, and how one more zone can become active.
 */
#include <string.h>
#include "policy.h"

enum neighbour { DISTURBED_NOT, DISTURBED_READ, DISTURBED_DUMP, DISTURBED_PROMISED };

static void note_disturbed(uint8_t *who, enum neighbour what)
{
	*who = zns_max(*who, (uint8_t)what);
}

/*
 * Marks the groups where finishing a zone would disturb a lease, since padding the zone may occupy
 * the die for up to a second.
 */
static void groups_disturbed(const struct znsd *d, uint8_t *who)
{
	const struct lease *l;
	uint32_t i;

	for (l = d->leases; l; l = l->next) {
		bool dump = lease_writes(l) && l->kind != LEASE_YIELDING;

		for (i = 0; i < l->nr_groups; i++)
			note_disturbed(&who[l->groups[i]], !dump             ? DISTURBED_READ :
							   lease_promised(l) ? DISTURBED_PROMISED :
									       DISTURBED_DUMP);
		for (i = 0; dump && i < l->nr_zones; i++)
			if (!l->zones[i].done && !l->zones[i].bad)
				note_disturbed(&who[d->zones[l->zones[i].zone].group],
					       DISTURBED_DUMP);
	}
	/* The groups of metadata zones count as disturbed, since every commit writes the log. */
	for (i = 0; i < d->nr_groups; i++)
		if (d->groups[i].metadata)
			note_disturbed(&who[i], DISTURBED_READ);
}

bool zone_lru_parked(const struct znsd *d, bool urgent, uint32_t *zone)
{
	cleanup_free uint8_t *who = znsd_alloc(d->nr_groups);
	uint64_t best = UINT64_MAX, now = zns_mono_ns();
	uint8_t least = urgent ? DISTURBED_DUMP : DISTURBED_READ;
	uint32_t i;

	groups_disturbed(d, who);
	/*
	 * Prefers a zone on an idle die. A zone on a die where a dump runs is only taken if a dump
	 * waits for it, or if there is only one die.
	 */
	for (i = 0; i < d->nr_zones; i++) {
		const struct zn_zone *z = &d->zones[i];
		uint8_t b = d->nr_groups > 1 ? who[z->group] : DISTURBED_NOT;

		if (!zone_parked(d, i) || z->retry_ns > now || b > least ||
		    (b == least && z->stamp >= best))
			continue;
		best = z->stamp;
		least = b;
		*zone = i;
	}
	return best != UINT64_MAX;
}

uint32_t park_limit(struct znsd *d)
{
	uint32_t max = d->dev->geo.max_active, meta;

	if (!max)
		return UINT32_MAX;
	meta = meta_zones(d, false);
	return zns_max(1u, (max > meta ? max - meta : 1) / 2);
}

void room_want(struct znsd *d, uint32_t zones)
{
	d->policy->room_wanted = zns_max(d->policy->room_wanted, zones);
	d->sweep = true;
}

static int finish_done(struct znsd *d, uint32_t max, struct zns_err *err)
{
	struct lease *l;
	uint32_t i;
	int ret;

	for (l = d->leases; l; l = l->next) {
		for (i = 0; lease_writes(l) && i < l->nr_zones; i++) {
			if (zones_active(d) < max)
				return 0;
			if (!l->zones[i].done ||
			    !zns_zone_is_active(d->zones[l->zones[i].zone].z.state))
				continue;
			ret = zone_finish(d, l->zones[i].zone, err);
			if (ret)
				return zns_wrap(err, "finishing zone %u", l->zones[i].zone);
		}
	}
	return 0;
}

/* Updates the table for the zones that are being written. */
static int refresh_written(struct znsd *d, struct zns_err *err)
{
	uint32_t i;

	for (i = 0; i < d->nr_zones; i++)
		if (d->zones[i].writer && zones_refresh(d, i, 1, err))
			return err->code;
	return 0;
}

static void reset_active_garbage(struct znsd *d)
{
	uint32_t batch[ZNSD_RESET_BATCH], n = 0, i;

	for (i = 0; i < d->nr_zones && n < ZNSD_RESET_BATCH; i++)
		if (zns_zone_is_active(d->zones[i].z.state) && zone_garbage(d, i))
			batch[n++] = i;
	zones_reset(d, batch, n, NULL);
}

int make_room(struct znsd *d, uint32_t zone, bool gently, struct zns_err *err)
{
	uint32_t max = d->dev->geo.max_active, lru = ZNSD_NONE;
	int ret;

	if (!max || zns_zone_is_active(d->zones[zone].z.state))
		return 0;
	max -= zns_min(max, meta_zones(d, false));
	if (zones_active(d) < max)
		return 0;
	ret = refresh_written(d, err);
	if (ret || zones_active(d) < max)
		return ret;
	reset_active_garbage(d);
	if (zones_active(d) < max)
		return 0;
	if (gently)
		return zns_fail(err, -EBUSY, "all %u zones that %s may have active are in use", max,
				d->reg.path);
	/*
	 * Then finish the zones that their writers are done with. That wastes at most their
	 * remaining room, which was too small for these writers.
	 */
	ret = finish_done(d, max, err);
	if (ret)
		return ret;
	while (zones_active(d) >= max) {
		/* zone_lru_parked() cannot return @zone itself, since @zone is not active */
		if (!zone_lru_parked(d, true, &lru))
			return zns_fail(err, -EBUSY,
					"all %u zones that %s may have active are being written",
					max, d->reg.path);
		ret = zone_finish(d, lru, err);
		if (ret)
			return zns_wrap(err, "finishing parked zone %u", lru);
	}
	return 0;
}

uint64_t free_bytes(const struct znsd *d)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < d->nr_zones; i++)
		if (zone_empty(d, i) || zone_garbage(d, i))
			sum += d->zones[i].z.capacity;
		else if (on_disk(d))
			sum += space_usable(d, i) ? space_in(d, i) : 0;
		else if (zone_parked(d, i))
			sum += d->zones[i].z.capacity - d->zones[i].z.wp;
	return sum;
}

/* Bytes of removed checkpoints in zones that also have live data: approximately what a compaction
 * would free. */
static uint64_t dead_bytes(const struct znsd *d)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < d->nr_zones; i++) {
		const struct zn_zone *z = &d->zones[i];

		if (!z->meta && !z->writer && zone_live(d, i) && z->z.wp > zone_live(d, i) &&
		    !space_usable(d, i))
			sum += z->z.wp - zone_live(d, i);
	}
	return sum;
}

static bool has_child(const struct znsd *d, const uint8_t *id)
{
	const ZnsPb__Checkpoint *k;

	for (size_t i = 0; (k = zns_store_checkpoint(d->store, i)); i++)
		if (k->has_parent && !memcmp(k->parent.data, id, ZNS_UUID_LEN))
			return true;
	return false;
}

/* The oldest checkpoint that `rm` would remove; NULL: all are pinned or parents of others. */
static const ZnsPb__Checkpoint *oldest(const struct znsd *d)
{
	const ZnsPb__Checkpoint *k;

	for (size_t i = 0; (k = zns_store_checkpoint(d->store, i)); i++)
		if (!checkpoint_pinned(d, k->id.data) && !has_child(d, k->id.data) &&
		    !parent_in_use(d, k->id.data))
			return k;
	return NULL;
}

/* Returns an error which says which commands would free space now, and how much each. */
static int disk_full(const struct znsd *d, struct zns_err *err)
{
	const ZnsPb__Checkpoint *old = oldest(d);
	char a[16], b[16], id[ZNS_UUID_STR], compact[80] = "", rm[160] = "";
	uint64_t dead = dead_bytes(d);

	if (dead)
		snprintf(compact, sizeof(compact), " `znsctl gc --compact` gives %s at most,",
			 zns_format_size(dead, a, sizeof(a)));
	if (old)
		snprintf(rm, sizeof(rm), " `znsctl rm %.8s` (the oldest, of %.60s) %s,",
			 zns_uuid_format(old->id.data, id), old->container,
			 zns_format_size(old->bytes, a, sizeof(a)));
	return zns_fail(
		err, -ENOSPC,
		"%s is full: %s free, %zu checkpoints;%s%s `znsctl resize %s SIZE` what you add",
		d->reg.path, zns_format_size(free_bytes(d), b, sizeof(b)),
		zns_store_nr_checkpoints(d->store), compact, rm, d->reg.path);
}

int device_full(const struct znsd *d, struct zns_err *err)
{
	uint32_t yielding = yielding_zones(d);
	char also[128 + YIELDING_MOST_MAX] = "", back[80] = "", most[YIELDING_MOST_MAX];
	const struct lease *l = yielding_most(d, most);

	if (on_disk(d) && !yielding)
		return disk_full(d, err);

	if (yielding) {
		snprintf(also, sizeof(also), ", %u zones with %.60s, %s", yielding,
			 l->yields.ops->what, most);
		snprintf(back, sizeof(back), " or `%.60s`", l->yields.ops->command);
	}
	return zns_fail(
		err, -ENOSPC,
		"%s is full: %u zones, %zu live checkpoints%s; `znsctl gc --compact`%s `znsctl rm`%s makes room",
		d->reg.path, d->nr_zones, zns_store_nr_checkpoints(d->store), also,
		yielding ? "," : " or", back);
}
