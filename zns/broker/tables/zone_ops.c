/* SPDX-License-Identifier: GPL-2.0-only */
/* Operations on the device's zones, which also update the table of zones. */
#include <sys/file.h>
#include "tables.h"

int zones_refresh(struct znsd *d, uint32_t first, uint32_t nr, struct zns_err *err)
{
	cleanup_free struct zns_zone *z = calloc(nr ? nr : 1, sizeof(*z));
	uint32_t i;
	int ret;

	if (!z)
		return zns_fail(err, -ENOMEM, "no memory for a report of zones");
	ret = zns_dev_report(d->dev, first, nr, z, err);
	if (ret)
		return ret;
	for (i = 0; i < nr; i++) {
		history_zone(d, first + i, &z[i]);
		d->zones[first + i].z = z[i];
	}
	return 0;
}

void device_heed(struct znsd *d, const struct zns_err *why)
{
	if (why->code != -EBADE || d->lost)
		return;
	znsd_say(LOG_ERR, NULL, "%s is reserved by another host now: leaving", d->reg.path);
	d->lost = d->quit = true;
}

void zone_close(struct znsd *d, uint32_t zone)
{
	struct zns_err err = ZNS_ERR_INIT;

	if (!zones_refresh(d, zone, 1, &err) && zns_zone_is_open(d->zones[zone].z.state) &&
	    !zns_dev_close_zone(d->dev, zone, &err))
		zones_refresh(d, zone, 1, &err);
	if (err.code)
		znsd_warn("closing zone %u: %s", zone, err.msg);
	device_heed(d, &err);
}

void zone_settle(struct znsd *d, uint32_t zone)
{
	struct zn_zone *z = &d->zones[zone];

	if (!zone_usable(z))
		return;
	if (!zone_live(d, zone)) {
		d->sweep = true;
		return;
	}
	if (zns_zone_is_open(z->z.state))
		zone_close(d, zone);
	z->stamp = ++d->stamp;
	d->park_check = true;
}

uint32_t zones_reset(struct znsd *d, const uint32_t *zones, uint32_t nr, struct zns_err *err)
{
	struct zns_err one = ZNS_ERR_INIT;
	uint32_t i, done = 0;
	int all, ret;

	if (!nr)
		return 0;
	for (i = 0; i < nr; i++) {
		d->zones[zones[i]].resets++;
		if (!d->hot)
			continue;
		zns_hot_keep(d->hot, zones[i], 0);
		zns_hot_forget_zone(d->hot, zones[i]);
	}
	all = zns_dev_reset(d->dev, zones, nr, &one);
	for (i = 0; i < nr; i++) {
		struct zn_zone *z = &d->zones[zones[i]];

		/* If a batch fails because of one bad zone, reset them one by one to find it. */
		ret = all && nr > 1 ? zns_dev_reset(d->dev, &zones[i], 1, &one) : all;
		if (ret) {
			znsd_warn("resetting zone %u: %s", zones[i], one.msg);
			device_heed(d, &one);
			if (err)
				*err = one;
			z->retry_ns = zns_mono_ns() + ZNSD_RETRY_NS;
		} else {
			z->old = z->ours = false;
			history_reset(d, zones[i]);
			done++;
		}
		if (zones_refresh(d, zones[i], 1, &one))
			znsd_warn("zone %u: %s", zones[i], one.msg);
	}
	return done;
}

int zone_finish(struct znsd *d, uint32_t zone, struct zns_err *err)
{
	struct zns_err why = ZNS_ERR_INIT;
	int ret = zns_dev_finish(d->dev, zone, &why);

	if (ret) {
		device_heed(d, &why);
		if (err)
			*err = why;
		d->zones[zone].retry_ns = zns_mono_ns() + ZNSD_RETRY_NS;
		zones_refresh(d, zone, 1, NULL);
		return ret;
	}
	zone_filled(d, zone);
	return zones_refresh(d, zone, 1, err);
}

/* Sets the write pointer in advance, so that the padding of the device does not count as
 * written. */
void zone_filled(struct znsd *d, uint32_t zone)
{
	d->zones[zone].z.wp = d->zones[zone].z.capacity;
}

uint32_t meta_zones(struct znsd *d, bool open)
{
	uint32_t nr = zns_store_nr_meta(d->store), n = 0, i;

	zones_refresh(d, 0, nr, NULL);
	for (i = 0; i < nr; i++) {
		enum zns_zone_state s = d->zones[i].z.state;

		n += !d->zones[i].z.conventional &&
		     (open ? zns_zone_is_open(s) : zns_zone_is_active(s));
	}
	return n ? n : 1;
}

/* Have the restore helpers of an earlier broker ended? They hold the readers' lock while they
 * read. */
bool readers_check(struct znsd *d)
{
	if (!d->readers_clear && !flock(d->readers_fd, LOCK_EX | LOCK_NB)) {
		/* Release the lock again: our own readers take it shared, and we know them by their
		 * leases. */
		flock(d->readers_fd, LOCK_UN);
		d->readers_clear = true;
		d->sweep = true;
	}
	return d->readers_clear;
}
