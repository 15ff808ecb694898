/* SPDX-License-Identifier: GPL-2.0-only */
/* A remembered state of the traced device, as a device: reads come from the trace, writes stay
 * here. */
#include <stdlib.h>
#include <string.h>
#include "trace.h"
#include "zns/util.h"

struct vzone {
	const uint8_t *base;
	uint8_t *own; /* written to or reset since */
	uint64_t wp;
	bool finished;
	struct place place;
};

struct view {
	struct zns_dev dev;
	pthread_mutex_t lock;
	struct vzone z[];
};

static int v_report(struct zns_dev *d, uint32_t first, uint32_t nr, struct zns_zone *out,
		    struct zns_err *err)
{
	struct view *v = (struct view *)d;

	if (first > d->geo.nr_zones || nr > d->geo.nr_zones - first)
		return zns_fail(err, -EINVAL, "report out of range");
	pthread_mutex_lock(&v->lock);
	for (uint32_t i = 0; i < nr; i++) {
		const struct vzone *z = &v->z[first + i];

		out[i] = (struct zns_zone){ .index = first + i,
					    .wp = z->wp,
					    .capacity = d->geo.zone_capacity };
		out[i].state = z->finished || z->wp == out[i].capacity ? ZNS_ZONE_FULL :
			       z->wp                                   ? ZNS_ZONE_CLOSED :
									 ZNS_ZONE_EMPTY;
		if (z->finished)
			out[i].wp = out[i].capacity;
	}
	pthread_mutex_unlock(&v->lock);
	return 0;
}

static uint8_t *own(struct view *v, struct vzone *z)
{
	if (!z->own) {
		z->own = calloc(1, v->dev.geo.zone_capacity);
		if (!z->own)
			abort();
		memcpy(z->own, z->base, z->wp);
	}
	return z->own;
}

static int v_offer(struct zns_dev *d, uint32_t zone, uint64_t *end, uint64_t *turn,
		   struct zns_err *err)
{
	struct vzone *z = &((struct view *)d)->z[zone];

	z->place = (struct place){ .turn = z->place.turn + 1 };
	*turn = z->place.turn;
	*end = z->finished ? z->wp : d->geo.zone_capacity;
	return 0;
}

static int v_take(struct zns_dev *d, uint32_t zone, uint64_t start, uint64_t end, uint64_t turn,
		  struct zns_err *err)
{
	struct vzone *z = &((struct view *)d)->z[zone];

	if (z->place.turn == turn)
		z->place = (struct place){ turn, start, end };
	return 0;
}

static int v_write(struct zns_dev *d, uint32_t zone, uint64_t off, const void *buf, size_t len,
		   struct zns_err *err)
{
	struct view *v = (struct view *)d;
	struct vzone *z = &v->z[zone];
	bool anew;
	int ret = 0;

	if (zone >= d->geo.nr_zones || !len || off % d->geo.block_size || len % d->geo.block_size)
		return zns_fail(err, -EINVAL, "write not aligned or out of range");
	pthread_mutex_lock(&v->lock);
	anew = off < z->wp && place_has(&z->place, off, len);
	if ((z->finished && !anew) || len > d->geo.zone_capacity - off) {
		ret = zns_fail(err, -ENOSPC, "zone %u is full", zone);
	} else if (off != z->wp && !anew) {
		ret = zns_fail(err, -EIO, "zone %u: write not at the write pointer", zone);
	} else {
		memcpy(own(v, z) + off, buf, len);
		z->wp = zns_max(z->wp, off + len);
	}
	pthread_mutex_unlock(&v->lock);
	return ret;
}

static int v_read(struct zns_dev *d, uint32_t zone, uint64_t off, void *buf, size_t len,
		  struct zns_err *err)
{
	struct view *v = (struct view *)d;
	struct vzone *z = &v->z[zone];
	int ret = 0;

	if (zone >= d->geo.nr_zones || off > d->geo.zone_capacity ||
	    len > d->geo.zone_capacity - off)
		return zns_fail(err, -EINVAL, "read out of range");
	pthread_mutex_lock(&v->lock);
	if (off + len <= z->wp) {
		memcpy(buf, (z->own ? z->own : z->base) + off, len);
	} else if (z->finished) { /* behind the written part: any bytes */
		memset(buf, 0, len);
		if (off < z->wp)
			memcpy(buf, (z->own ? z->own : z->base) + off, z->wp - off);
	} else {
		ret = zns_fail(err, -ENODATA, "read beyond the write pointer of zone %u", zone);
	}
	pthread_mutex_unlock(&v->lock);
	return ret;
}

static int v_reset(struct zns_dev *d, const uint32_t *zones, uint32_t nr, struct zns_err *err)
{
	struct view *v = (struct view *)d;

	pthread_mutex_lock(&v->lock);
	for (uint32_t i = 0; i < nr; i++) {
		v->z[zones[i]].wp = 0;
		v->z[zones[i]].finished = false;
		v->z[zones[i]].place = (struct place){ v->z[zones[i]].place.turn + 1, 0, 0 };
		own(v, &v->z[zones[i]]);
	}
	pthread_mutex_unlock(&v->lock);
	return 0;
}

static int v_finish(struct zns_dev *d, uint32_t zone, struct zns_err *err)
{
	((struct view *)d)->z[zone].finished = true;
	return 0;
}

static int v_state(struct zns_dev *d, uint32_t zone, struct zns_err *err)
{
	return 0;
}

static int v_flush(struct zns_dev *d, struct zns_err *err)
{
	return 0;
}

static void v_close(struct zns_dev *d)
{
	struct view *v = (struct view *)d;

	for (uint32_t i = 0; i < d->geo.nr_zones; i++)
		free(v->z[i].own);
	pthread_mutex_destroy(&v->lock);
	free(v);
}

#define VIEW_OPS                                                                                \
	.name = "view", .report = v_report, .write = v_write, .read = v_read, .reset = v_reset, \
	.open_zone = v_state, .close_zone = v_state, .finish = v_finish, .flush = v_flush,      \
	.close = v_close

static const struct zns_dev_ops view_ops = { VIEW_OPS };
static const struct zns_dev_ops disk_view_ops = { VIEW_OPS, .offer = v_offer, .take = v_take };

struct zns_dev *view_new(struct trace *t, const uint32_t *pos)
{
	struct view *v = calloc(1, sizeof(*v) + t->dev.geo.nr_zones * sizeof(v->z[0]));

	if (!v)
		abort();
	v->dev.ops = zns_geo_is_disk(&t->dev.geo) ? &disk_view_ops : &view_ops;
	v->dev.geo = t->dev.geo;
	strcpy(v->dev.path, "view:");
	pthread_mutex_init(&v->lock, NULL);
	for (uint32_t z = 0; z < t->dev.geo.nr_zones; z++) {
		const struct step *s = &t->h[z].step[pos[z]];

		v->z[z] = (struct vzone){ .base = s->gen->data,
					  .wp = s->wp,
					  .finished = s->finished };
	}
	return &v->dev;
}

void view_flip(struct zns_dev *view, uint32_t zone, uint64_t off, unsigned bit)
{
	struct view *v = (struct view *)view;

	own(v, &v->z[zone])[off] ^= (uint8_t)(1u << bit);
}
