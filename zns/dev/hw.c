/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Common to real devices: what is known about the state of each zone, and failures that can be
 * explained without a look at the zone. */
#include <stdlib.h>
#include <string.h>

#include "hw_priv.h"

#define HW_KNOWN (1u << 8)
#define HW_CONVENTIONAL (1u << 9)
#define HW_STATE 0xffu

#define REPORT_CHUNK 4096

int hw_init(struct hw *h, const struct hw_raw *raw, unsigned flags, struct zns_err *err)
{
	h->raw = raw;
	h->rdonly = flags & ZNS_DEV_RDONLY;
	pthread_mutex_init(&h->lock, NULL);
	pthread_cond_init(&h->turn, NULL);
	h->zones = calloc(h->dev.geo.nr_zones, sizeof(*h->zones));
	return h->zones ? 0 : zns_fail(err, -ENOMEM, "no memory for %u zones", h->dev.geo.nr_zones);
}

void hw_fini(struct hw *h)
{
	if (!h->raw)
		return;
	pthread_mutex_destroy(&h->lock);
	pthread_cond_destroy(&h->turn);
	free(h->zones);
}

uint32_t hw_transfer_limit(uint64_t bytes)
{
	uint32_t n = HW_MAX_IO;

	while (n > 512 && n > bytes)
		n /= 2;
	return n;
}

int hw_check_writable(struct hw *h, struct zns_err *err)
{
	if (h->rdonly)
		return zns_fail(err, -EBADF, "%s is open for reading only", h->dev.path);
	return 0;
}

int hw_check_zone(struct hw *h, uint32_t zone, struct zns_err *err)
{
	if (zone >= h->dev.geo.nr_zones)
		return zns_fail(err, -EINVAL, "zone %u: the device has zones 0 to %u", zone,
				h->dev.geo.nr_zones - 1);
	return 0;
}

bool hw_cached(struct hw *h, uint32_t zone, struct zns_zone *out)
{
	struct hw_zone *z = &h->zones[zone];
	uint32_t what = atomic_load(&z->what);

	*out = (struct zns_zone){
		.index = zone,
		.state = what & HW_STATE,
		.conventional = what & HW_CONVENTIONAL,
		.wp = atomic_load(&z->wp),
		.capacity = atomic_load(&z->capacity),
	};
	return what & HW_KNOWN;
}

void hw_forget(struct hw *h, uint32_t zone)
{
	atomic_store(&h->zones[zone].what, 0);
}

static int report(struct hw *h, uint32_t first, uint32_t nr, struct zns_zone *out,
		  struct zns_err *err)
{
	struct zns_err why = ZNS_ERR_INIT;
	int ret = h->raw->report(h, first, nr, out, &why);

	if (ret)
		return zns_fail(err, ret == -ENOMEM ? ret : -EIO,
				"%s: its zones cannot be reported: %s", h->dev.path, why.msg);
	for (uint32_t i = 0; i < nr; i++) {
		struct hw_zone *z = &h->zones[first + i];

		atomic_store(&z->wp, out[i].wp);
		atomic_store(&z->capacity, out[i].capacity);
		atomic_store(&z->what,
			     HW_KNOWN | (out[i].conventional ? HW_CONVENTIONAL : 0) | out[i].state);
	}
	return 0;
}

int hw_look(struct hw *h, uint32_t zone, struct zns_zone *out, struct zns_err *err)
{
	return report(h, zone, 1, out, err);
}

int hw_report(struct zns_dev *d, uint32_t first, uint32_t nr, struct zns_zone *out,
	      struct zns_err *err)
{
	struct hw *h = hw_of(d);

	if (first > d->geo.nr_zones || nr > d->geo.nr_zones - first)
		return zns_fail(err, -EINVAL,
				"report of %u zones from zone %u: the device has %u zones", nr,
				first, d->geo.nr_zones);
	for (uint32_t done = 0; done < nr;) {
		uint32_t n = zns_min(nr - done, (uint32_t)REPORT_CHUNK);
		int ret = report(h, first + done, n, out + done, err);

		if (ret)
			return ret;
		done += n;
	}
	return 0;
}

int hw_refuses(const struct zns_zone *z, struct zns_err *err)
{
	if (z->conventional)
		return zns_fail(err, -EINVAL,
				"zone %u is conventional: only sequential zones are used",
				z->index);
	switch (z->state) {
	case ZNS_ZONE_FULL:
		return zns_fail(err, -ENOSPC, "zone %u is full: use another zone or reset it",
				z->index);
	case ZNS_ZONE_READ_ONLY:
		return zns_fail(err, -EROFS,
				"zone %u is read-only: its data can be read, use another zone",
				z->index);
	case ZNS_ZONE_OFFLINE:
		return zns_fail(err, -ENXIO, "zone %u is offline: use another zone", z->index);
	default:
		return 0;
	}
}

int hw_reserved(struct hw *h, const char *what, struct zns_err *err)
{
	return zns_fail(
		err, -EBADE,
		"%s: another host has reserved %s (NVMe reservation conflict), so it refuses this one; "
		"if that host shall not have it: znsctl register --take-over %s",
		what, h->dev.path, h->dev.path);
}

int hw_plain_failure(struct hw *h, uint32_t zone, const struct zns_err *why, struct zns_err *err)
{
	char what[32];

	switch (why->code) {
	case -ETOOMANYREFS:
		return zns_fail(
			err, -ETOOMANYREFS,
			"zone %u: the device's limit of %u open zones is reached: close, finish or reset one first",
			zone, h->dev.geo.max_open);
	case -EOVERFLOW:
		return zns_fail(
			err, -EOVERFLOW,
			"zone %u: the device's limit of %u active zones is reached: finish or reset one first",
			zone, h->dev.geo.max_active);
	case -EBADE:
		snprintf(what, sizeof(what), "zone %u", zone);
		return hw_reserved(h, what, err);
	case -ENOMEM:
		return zns_fail(err, -ENOMEM, "zone %u: %s", zone, why->msg);
	default:
		return 0;
	}
}

void hw_turn_begin(struct hw *h, struct hw_turn *t, uint32_t zone)
{
	const struct hw_turn *w;

	t->zone = zone;
	pthread_mutex_lock(&h->lock);
	do {
		for (w = h->writing; w && w->zone != zone; w = w->next)
			;
		if (w)
			pthread_cond_wait(&h->turn, &h->lock);
	} while (w);
	t->next = h->writing;
	h->writing = t;
	pthread_mutex_unlock(&h->lock);
}

void hw_turn_end(struct hw *h, struct hw_turn *t)
{
	pthread_mutex_lock(&h->lock);
	for (struct hw_turn **p = &h->writing; *p; p = &(*p)->next)
		if (*p == t) {
			*p = t->next;
			break;
		}
	pthread_cond_broadcast(&h->turn);
	pthread_mutex_unlock(&h->lock);
}

/* Finds the capacity of the first usable zone. */
int hw_typical_capacity(struct hw *h, struct zns_err *err)
{
	uint32_t nr = zns_min(h->dev.geo.nr_zones, (uint32_t)REPORT_CHUNK);
	cleanup_free struct zns_zone *z = calloc(nr, sizeof(*z));
	int ret = z ? 0 : zns_fail(err, -ENOMEM, "no memory for %u zones", nr);

	h->dev.geo.zone_capacity = h->dev.geo.zone_size;
	/* Ask for one zone first, since the first one is nearly always usable; then for all
	 * others. */
	for (uint32_t n = 1, i = 0; !ret && i < nr; n = nr - i) {
		ret = report(h, i, n, z, err);
		for (uint32_t k = 0; !ret && k < n; k++) {
			if (z[k].conventional && h->dev.geo.nr_conventional == i + k)
				h->dev.geo.nr_conventional++;
			if (!z[k].conventional && z[k].state != ZNS_ZONE_OFFLINE) {
				h->dev.geo.zone_capacity = z[k].capacity;
				return 0;
			}
		}
		i += n;
	}
	return ret;
}

int hw_flush(struct zns_dev *d, struct zns_err *err)
{
	struct hw *h = hw_of(d);
	struct zns_err why = ZNS_ERR_INIT;
	int ret = hw_check_writable(h, err);

	if (ret)
		return ret;
	ret = h->raw->flush(h, &why);
	if (ret == -EBADE)
		return hw_reserved(h, "flush", err);
	if (ret)
		return zns_fail(
			err, -EIO,
			"flush of %s failed (%s): what was written since the last one may be lost in a power cut",
			d->path, why.msg);
	return 0;
}
