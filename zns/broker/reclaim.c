// SPDX-License-Identifier: GPL-2.0-only
/* Background work of the poll loop, in small steps: reset garbage, finish zones beyond the parking limit. */
#include "znsd.h"

#define READERS_RETRY_MS 500
#define PARK_PACE_MS 20	/* between two finishes: real devices pad a zone for up to a second */

static bool old_garbage(const struct znsd *d)
{
	uint32_t i;

	for (i = 0; i < d->nr_zones; i++)
		if (d->zones[i].old && !d->zones[i].meta && !zone_live(d, i))
			return true;
	return false;
}

/* true if there is more to do at once. */
static bool sweep_step(struct znsd *d, bool *retry)
{
	uint32_t batch[ZNSD_RESET_BATCH], n = 0, i;
	uint64_t now = zns_mono_ns();

	for (i = 0; i < d->nr_zones && n < ZNSD_RESET_BATCH; i++) {
		if (!zone_garbage(d, i))
			continue;
		if (d->zones[i].retry_ns > now)
			*retry = true;
		else
			batch[n++] = i;
	}
	if (zones_reset(d, batch, n, NULL))
		waiters_run(d);
	return n > 0;
}

static bool park_step(struct znsd *d)
{
	struct zns_err err = ZNS_ERR_INIT;
	uint32_t i, parked = 0, lru, max = d->dev->geo.max_active / 2;
	uint64_t now = zns_mono_ns();

	for (i = 0; i < d->nr_zones; i++) {
		struct zn_zone *z = &d->zones[i];

		if (!zone_parked(d, i))
			continue;
		/* Too small a tail to be given out, yet it would hold an active zone for ever. */
		if (z->z.wp + ZNSD_UNIT_MIN > z->z.capacity && z->retry_ns <= now) {
			if (zone_finish(d, i, &err))
				znsd_log("finishing zone %u: %s", i, err.msg);
			return true;
		}
		parked++;
	}
	if (!d->dev->geo.max_active || parked <= max || !zone_lru_parked(d, &lru))
		return false;
	if (zone_finish(d, lru, &err))
		znsd_log("finishing zone %u: %s", lru, err.msg);
	return true;
}

int reclaim_step(struct znsd *d)
{
	bool retry = false;
	int ms = -1;

	if (!d->readers_clear && old_garbage(d) && !readers_check(d))
		ms = READERS_RETRY_MS;
	if (d->sweep) {
		if (sweep_step(d, &retry))
			return 0;
		d->sweep = retry;
		if (retry)
			ms = 1000;
	}
	if (d->park_check) {
		if (park_step(d))
			return PARK_PACE_MS;
		d->park_check = false;
	}
	return ms;
}

bool reclaim_pending(const struct znsd *d)
{
	uint64_t now = zns_mono_ns();
	uint32_t i;

	if (d->park_check)
		return true;
	for (i = 0; d->sweep && i < d->nr_zones; i++)
		if (zone_garbage(d, i) && d->zones[i].retry_ns <= now)
			return true;
	return false;
}
