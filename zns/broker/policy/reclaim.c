/* SPDX-License-Identifier: GPL-2.0-only */
/* The background work of the poll loop, in small steps: resets garbage, and finishes parked zones
 * above the limit. */
#include "policy.h"

#define READERS_RETRY_MS 500
/* minimum time between two finishes, because real devices may pad a zone for up to a second */
#define PARK_PACE_MS 20
/* minimum time between two finishes while dumps run and no dump waits for a zone to be finished */
#define PARK_BUSY_MS 500

static bool old_garbage(const struct znsd *d)
{
	uint32_t i;

	for (i = 0; i < d->nr_zones; i++)
		if (d->zones[i].old && !d->zones[i].meta && !zone_live(d, i))
			return true;
	return false;
}

/* Resets some garbage. Returns true if there is more to do now. */
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
		d->freed = true;
	return n > 0;
}

/* Finds a parked zone to finish: first one whose remaining room is too small to be used, since it
 * would stay active for ever; then any parked zone above the limit. */
static bool to_finish(struct znsd *d, uint32_t *zone)
{
	uint64_t now = zns_mono_ns(), tail = tail_min(d);
	uint32_t i, parked = 0;

	for (i = 0; i < d->nr_zones; i++) {
		struct zn_zone *z = &d->zones[i];

		if (yielding_to_finish(d, i) && z->retry_ns <= now) {
			*zone = i;
			return true;
		}
		/* a disk has no limit of active zones, and uses any remaining room */
		if (!zone_parked(d, i) || on_disk(d))
			continue;
		if (z->z.wp + tail > z->z.capacity && z->retry_ns <= now) {
			*zone = i;
			return true;
		}
		parked++;
	}
	return (d->policy->room_wanted > finisher_running(d) || parked > park_limit(d)) &&
	       zone_lru_parked(d, d->policy->room_wanted > 0, zone);
}

static bool dumps_run(const struct znsd *d)
{
	const struct lease *l;

	for (l = d->leases; l; l = l->next)
		if (lease_admitted(l))
			return true;
	return false;
}

/* Finishes a zone if necessary. Returns milliseconds until the next step, -1: there is nothing to
 * finish. */
static int park_step(struct znsd *d)
{
	uint64_t pace = 1000000ull *
			(dumps_run(d) && !d->policy->room_wanted ? PARK_BUSY_MS : PARK_PACE_MS);
	uint64_t now = zns_mono_ns();
	struct zns_err err = ZNS_ERR_INIT;
	uint32_t zone;

	if (!to_finish(d, &zone)) {
		if (!finisher_running(d))
			d->policy->room_wanted = 0;
		d->park_check = false;
		return -1;
	}
	if (now - d->policy->finish_ns < pace)
		return (int)((pace - (now - d->policy->finish_ns)) / 1000000) + 1;
	if (d->policy->finisher) {
		if (!finisher_start(d, zone))
			/* no timeout is needed: a thread that ends wakes the poll loop */
			return -1;
		d->policy->finish_ns = now;
		return 0;
	}
	d->policy->finish_ns = now;
	if (zone_finish(d, zone, &err)) {
		znsd_warn("finishing zone %u: %s", zone, err.msg);
	} else if (d->policy->room_wanted) {
		d->policy->room_wanted--;
		d->freed = true;
	}
	return 0;
}

int reclaim_step(struct znsd *d)
{
	bool retry = false;
	int ms = -1;

	if (!d->readers_clear && (d->policy->nr_footers || old_garbage(d)) && !readers_check(d))
		ms = READERS_RETRY_MS;
	if (d->sweep) {
		footers_step(d, false);
		if (sweep_step(d, &retry))
			return 0;
		d->sweep = retry;
		if (retry)
			ms = 1000;
	}
	if (d->park_check || d->policy->room_wanted > finisher_running(d)) {
		int park = park_step(d);

		if (park >= 0 && (ms < 0 || park < ms))
			ms = park;
	}
	return ms;
}

bool reclaim_pending(const struct znsd *d)
{
	uint64_t now = zns_mono_ns();
	uint32_t i;

	if (d->park_check || finisher_running(d) || d->policy->nr_footers)
		return true;
	for (i = 0; d->sweep && i < d->nr_zones; i++)
		if (zone_garbage(d, i) && d->zones[i].retry_ns <= now)
			return true;
	return false;
}
