/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The end of a dump in which zones failed: flushes these zones and reads them back, and moves
 * everything from the first lost unit on to another zone. Also the last check of all zones before a
 * checkpoint is committed (design.md §3).
 */
#include <string.h>
#include "zns/store.h"
#include "writer.h"

static int look_at(struct zns_writer *w, struct wzone *z, struct zns_zone *rep, struct zns_err *err)
{
	int ret = zns_dev_report(w->dev, z->slot.zone, 1, rep, err);

	if (ret)
		return zns_wrap(err, "zone %u", z->slot.zone);
	if (rep->state != ZNS_ZONE_READ_ONLY && rep->state != ZNS_ZONE_OFFLINE)
		return 0;
	zns_fail(err, rep->state == ZNS_ZONE_OFFLINE ? -ENXIO : -EROFS, "zone %u turned %s",
		 z->slot.zone, zns_zone_state_name(rep->state));
	return 1;
}

/* Returns the first unit that cannot be read back as it was written; UINT64_MAX: there is none.
 * Drops the lock. */
NEEDS_LOCK static int first_lost(struct zns_writer *w, const struct wzone *z, uint64_t *lost)
{
	cleanup_free struct piece *p = NULL;
	uint64_t off, len;
	uint8_t *buf;
	size_t nr = 0;

	*lost = UINT64_MAX;
	if (rescue_list(w, z->slot.zone, z->slot.start, z->pos, &p, &nr))
		return -ENOMEM;
	buf = pool_get(&w->pool);
	if (!buf)
		return -ENOMEM;
	writer_unlock(w);
	for (size_t i = 0, n; i < nr && *lost == UINT64_MAX; i += n) {
		n = rescue_run(w, p + i, nr - i, &off, &len);
		if (len > w->unit || rescue_fetch(w, z->slot.zone, p + i, n, false, buf, NULL))
			*lost = off;
	}
	writer_lock(w);
	pool_put(&w->pool, buf);
	return 0;
}

NEEDS_LOCK static int check_zone(struct zns_writer *w, struct wzone *z)
{
	uint64_t lost;

	if (first_lost(w, z, &lost))
		return writer_fail_nomem(w, "to replace a zone that failed");
	z->checked = true;
	return lost == UINT64_MAX ? 0 : repair_move(w, z, lost, NULL, false);
}

static bool to_check(const struct wzone *z)
{
	return z->bad && !z->checked && z->pos > z->slot.start;
}

int audit(struct zns_writer *w)
{
	struct zns_err err = ZNS_ERR_INIT;
	bool again = true;

	while (again && !w->err.code) {
		struct wzone *z;
		int ret;

		for (z = w->zones.first; z && !w->err.code; z = z->next) {
			struct zns_zone rep;

			ret = z->bad || z->pos == z->slot.start ? 0 : look_at(w, z, &rep, &err);
			if (ret > 0)
				zones_failed(w, z, &err);
			else if (ret)
				writer_set_error(w, &err);
		}
		repair_now(w);
		for (z = w->zones.first; z && !to_check(z); z = z->next)
			;
		again = z != NULL;
		if (!again || w->err.code)
			break;
		/* The lost unit was only in a buffer of the device. It is moved to another zone,
		 * with everything behind it. */
		placing_begin(w);
		w->zones.repairing = true;
		writer_unlock(w);
		ret = zns_dev_flush(w->dev, &err);
		writer_lock(w);
		if (ret)
			writer_set_error(w, &err);
		for (; z && !w->err.code; z = z->next)
			if (to_check(z))
				check_zone(w, z);
		w->zones.repairing = false;
		placing_end(w);
	}
	return w->err.code;
}

static int confirm(struct zns_writer *w, const ZnsPb__Checkpoint *c, struct zns_err *err)
{
	int ret = 0;

	writer_lock(w);
	for (struct wzone *z = w->zones.first; z && !ret; z = z->next) {
		struct zns_err why = ZNS_ERR_INIT;
		ZnsPb__Manifest *m = NULL;
		struct zns_zone rep;
		uint64_t lost = 0;

		ret = z->pos == z->slot.start ? 0 : look_at(w, z, &rep, &why);
		if (ret < 0 && err)
			*err = why;
		if (ret <= 0 || (z->checked && rep.state != ZNS_ZONE_OFFLINE)) {
			ret = zns_min(ret, 0);
			continue;
		}
		ret = rep.state == ZNS_ZONE_OFFLINE ? 0 : first_lost(w, z, &lost);
		if (!ret && c->manifest->zone == z->slot.zone && lost == UINT64_MAX) {
			if (zns_manifest_read(w->dev, c, &m, NULL))
				lost = c->manifest->start;
			else
				zns_pb__manifest__free_unpacked(m, NULL);
		}
		if (ret)
			zns_fail(err, ret, "no memory to check zone %u", z->slot.zone);
		else if (lost != UINT64_MAX)
			ret = zns_fail(
				err, why.code,
				"%s just before the commit and lost data; run the dump again",
				why.msg);
	}
	writer_unlock(w);
	return ret;
}

int zns_writer_durable(struct zns_writer *w, const ZnsPb__Checkpoint *c, struct zns_err *err)
{
	cleanup_free uint32_t *zones = calloc(c->n_zones + 1, sizeof(*zones));
	int ret;

	if (!zones)
		return zns_fail(err, -ENOMEM, "no memory for a list of zones");
	for (size_t i = 0; i < c->n_zones; i++)
		zones[i] = c->zones[i]->zone;
	ret = zns_dev_flush_zones(w->dev, zones, (uint32_t)c->n_zones, err);
	return ret ? ret : confirm(w, c, err);
}
