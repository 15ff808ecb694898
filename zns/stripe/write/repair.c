/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Zones that fail during a dump (design.md §3: a failed zone starts a new segment).
 *
 * Nothing more is written to such a zone. Its unwritten units become orphans. The next thread that
 * feeds an image waits until all other units are written, gives the orphans consecutive places in
 * another zone of the group, and continues. audit.c takes care of what was written to the zone at
 * the end of the dump. So a zone always holds the first part of what was placed in it, and the rest
 * moves as a whole.
 */
#include <string.h>
#include "writer.h"

/* ---- moving the end of a zone ---- */

/* Returns how many bytes extent @e of a segment has. UINT64_MAX: out of memory. */
static uint64_t extent_bytes(const struct zns_wimage *i, const ZnsPb__Segment *s, uint32_t e,
			     uint32_t *slots)
{
	uint64_t units = (s->len + i->pb.unit - 1) / i->pb.unit, bytes;
	struct zns_place last;
	struct zns_seg seg;

	*slots = 0;
	if (!units)
		return 0;
	if (zns_seg_init(&seg, s, i->pb.unit, NULL))
		return UINT64_MAX;
	bytes = zns_seg_units_of(&seg, e, units) * i->pb.unit;
	zns_seg_place(&seg, units - 1, &last);
	if (last.extent == e)
		bytes -= units * i->pb.unit - s->len;
	*slots = seg.slots;
	zns_seg_fini(&seg);
	return bytes;
}

/* Splits segment @at of @i into two. The first one gets @turns whole turns. */
NEEDS_LOCK static int split(struct zns_wimage *i, size_t at, uint64_t turns, uint32_t slots)
{
	uint64_t units = turns * slots;
	ZnsPb__Segment *s, *n;

	n = image_add_segment(i, 0, (uint32_t)i->pb.segments[at]->n_extents);
	if (!n)
		return -ENOMEM;
	memmove(&i->pb.segments[at + 2], &i->pb.segments[at + 1],
		(i->pb.n_segments - at - 2) * sizeof(*i->pb.segments));
	i->pb.segments[at + 1] = n;
	s = i->pb.segments[at];
	n->off = s->off + units * i->pb.unit;
	n->len = s->len - units * i->pb.unit;
	s->len -= n->len;
	for (size_t e = 0; e < s->n_extents; e++) {
		*n->extents[e] = *s->extents[e];
		n->extents[e]->start += turns * s->extents[e]->weight * i->pb.unit;
	}
	/* An extent without units may start anywhere in its zone, but not outside of it. */
	for (size_t e = 0; e < s->n_extents; e++)
		if (!extent_bytes(i, n, (uint32_t)e, &slots))
			n->extents[e]->start = s->extents[e]->start;
	return 0;
}

/* Prepares a move of the zone's content from @x on. A segment that is on both sides of @x is split
 * at the end of a turn, and @x is decreased to that place. */
NEEDS_LOCK static int cut(struct zns_writer *w, const struct wzone *z, uint64_t *x)
{
	for (struct zns_wimage *i = w->images.first; i; i = i->next) {
		for (size_t n = 0; n < i->pb.n_segments; n++) {
			const ZnsPb__Segment *s = i->pb.segments[n];

			for (uint32_t e = 0; e < s->n_extents; e++) {
				uint64_t start = s->extents[e]->start, turn, bytes, turns;
				uint32_t slots;

				if (s->extents[e]->zone != z->slot.zone || start >= *x)
					continue;
				bytes = extent_bytes(i, s, e, &slots);
				if (bytes == UINT64_MAX)
					return -ENOMEM;
				if (start + bytes <= *x)
					continue;
				turn = s->extents[e]->weight * (uint64_t)i->pb.unit;
				turns = (*x - start) / turn;
				*x = start + turns * turn;
				return turns ? split(i, n, turns, slots) : 0;
			}
		}
	}
	return 0;
}

/* Changes segments and queued units after a move to @to: what was in @z from @x on is now there, at
 * an offset that is @to_x - @x higher. */
NEEDS_LOCK static int point_to(struct zns_writer *w, const struct wzone *z, uint64_t x,
			       struct wzone *to, uint64_t to_x)
{
	for (struct zns_wimage *i = w->images.first; i; i = i->next) {
		for (size_t n = 0; n < i->pb.n_segments; n++) {
			ZnsPb__Segment *s = i->pb.segments[n];

			for (uint32_t e = 0; e < s->n_extents; e++) {
				ZnsPb__Extent *t = s->extents[e];
				uint32_t slots;
				uint64_t bytes;

				if (t->zone != z->slot.zone || t->start < x)
					continue;
				bytes = extent_bytes(i, s, e, &slots);
				if (bytes == UINT64_MAX)
					return -ENOMEM;
				if (!bytes)
					continue;
				t->zone = to->slot.zone;
				t->start = t->start - x + to_x;
			}
		}
	}
	for (struct job *j = w->queue.orphans; j; j = j->next) {
		if (j->wz != z)
			continue;
		j->wz = to;
		j->off = j->off - x + to_x;
	}
	return 0;
}

/* Copies pieces to the write position of @to. -EAGAIN: @to has failed too. Drops the lock. */
NEEDS_LOCK static int copy(struct zns_writer *w, uint32_t zone, uint64_t x, const struct piece *p,
			   size_t nr, struct wzone *to, uint64_t to_x)
{
	uint64_t off, len, written = to->written;
	struct zns_err err = ZNS_ERR_INIT;
	uint8_t *buf = nr ? pool_get(&w->pool) : NULL;
	int ret = 0;

	if (nr && !buf)
		return writer_fail_nomem(w, "to replace a zone that failed");
	writer_unlock(w);
	for (size_t i = 0, n; i < nr && !ret; i += n) {
		n = rescue_run(w, p + i, nr - i, &off, &len);
		ret = len <= w->unit ? rescue_fetch(w, zone, p + i, n, true, buf, &err) : -EFAULT;
		if (ret)
			break;
		ret = io_write(w, to->slot.zone, off - x + to_x, buf, len, NULL, &err);
		if (ret && zones_is_fault(ret))
			ret = -EAGAIN;
		written = off - x + to_x + len;
	}
	writer_lock(w);
	if (buf)
		pool_put(&w->pool, buf);
	if (ret == -EAGAIN) {
		zones_failed(w, to, &err);
		return w->err.code ? w->err.code : ret;
	}
	if (ret) {
		if (!err.code)
			zns_fail(&err, ret, "zone %u holds data that this dump did not write there",
				 zone);
		return writer_fail(w, &err);
	}
	to->written = written;
	return 0;
}

/*
 * Finds a zone for data that must leave another zone, which belonged to @lane (NULL: none). No
 * write is under way. A separate zone is best. If the limits allow none, it uses the rest of a
 * lane's zone. If no lane's zone has room, all lanes retire their zones, and the broker is asked
 * again.
 */
NEEDS_LOCK static struct wzone *target(struct zns_writer *w, uint32_t group, uint64_t need,
				       struct lane *lane, bool own)
{
	struct wzone *to = NULL;
	bool busy = !own;

	if (own)
		to = zones_new(w, group, need, &busy);
	if (to && lane)
		lane->wz = to;
	else if (to)
		zones_retire(w, to);
	if (to || !busy)
		return to;
	for (uint32_t i = 0; i < w->lanes.nr; i++) {
		to = w->lanes.v[i].wz;
		if (to && !to->bad && to->slot.capacity - to->pos >= need)
			return to;
	}
	for (uint32_t i = 0; i < w->lanes.nr; i++) {
		if (w->lanes.v[i].wz)
			zones_retire(w, w->lanes.v[i].wz);
		w->lanes.v[i].wz = NULL;
	}
	w->lanes.v[0].wz = zones_new(w, group, need, NULL);
	return w->lanes.v[0].wz;
}

int repair_move(struct zns_writer *w, struct wzone *z, uint64_t x, struct lane *lane, bool own)
{
	cleanup_free struct piece *p = NULL;
	uint64_t need, to_x;
	struct wzone *to;
	size_t nr = 0;
	int ret;

	if (cut(w, z, &x) || rescue_list(w, z->slot.zone, x, z->written, &p, &nr))
		return writer_fail_nomem(w, "to replace a zone that failed");
	need = z->pos - x;
	do {
		to = target(w, z->slot.group, need, lane, own);
		if (!to)
			return w->err.code;
		to_x = to->pos;
		ret = copy(w, z->slot.zone, x, p, nr, to, to_x);
	} while (ret == -EAGAIN); /* MAX_BAD limits the number of tries */
	if (ret)
		return ret;
	if (point_to(w, z, x, to, to_x))
		return writer_fail_nomem(w, "to replace a zone that failed");
	to->pos = to_x + need;
	z->pos = z->written = x;
	return 0;
}

/* ---- while the dump runs ---- */

NEEDS_LOCK static int repair_zone(struct zns_writer *w, struct wzone *z)
{
	struct lane *lane = NULL;

	z->repaired = true;
	w->zones.nr_unrepaired--;
	/* the next unit begins a new segment, so that no further unit goes to the failed zone */
	lanes_end_segment(w);
	for (uint32_t i = 0; i < w->lanes.nr; i++) {
		if (w->lanes.v[i].wz == z) {
			lane = &w->lanes.v[i];
			lane->wz = NULL;
		}
	}
	if (w->lanes.meta && w->lanes.meta->wz == z) {
		lane = w->lanes.meta;
		lane->wz = NULL;
	}
	return z->pos > z->written ? repair_move(w, z, z->written, lane, true) : 0;
}

static bool before(const struct job *a, const struct job *b)
{
	return a->wz != b->wz ? a->wz->slot.zone < b->wz->slot.zone : a->off < b->off;
}

/* Queues the orphans before all later units, zone by zone in the order of their offsets, so that no
 * unit waits for one that is behind it in the queue. */
NEEDS_LOCK static void requeue(struct zns_writer *w)
{
	struct job *sorted = NULL, **p, *left = NULL;

	while (w->queue.orphans) {
		struct job *j = w->queue.orphans;

		w->queue.orphans = j->next;
		if (j->wz->bad) { /* queue it when its present zone has been repaired too */
			j->next = left;
			left = j;
			continue;
		}
		for (p = &sorted; *p && before(*p, j); p = &(*p)->next)
			;
		j->next = *p;
		*p = j;
		w->queue.nr++;
	}
	for (p = &sorted; *p; p = &(*p)->next)
		;
	*p = w->queue.first;
	if (!w->queue.first && sorted)
		w->queue.tail = p;
	w->queue.first = sorted;
	w->queue.orphans = left;
	pthread_cond_broadcast(&w->work);
}

int repair_now(struct zns_writer *w)
{
	while (w->zones.nr_unrepaired && !w->err.code) {
		placing_begin(w);
		while ((w->queue.nr || w->queue.nr_running) && !w->err.code)
			writer_sleep(w, &w->idle);
		w->zones.repairing = true;
		/* Repair one zone at a time, since the next repair may need the open zone that this
		 * one releases. */
		for (struct wzone *z = w->zones.first; z && !w->err.code; z = z->next) {
			if (!z->bad || z->repaired)
				continue;
			repair_zone(w, z);
			break;
		}
		if (!w->err.code)
			requeue(w);
		w->zones.repairing = false;
		placing_end(w);
	}
	return w->err.code;
}
