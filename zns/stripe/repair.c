/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Zones that fail in the middle of a dump (design.md §3: a failed zone starts a new segment).
 *
 * At once: the zone takes no more, its units that were not written become orphans, whoever feeds an image waits until
 * all other units are written, gives the orphans one run in another zone of the group and goes on. In the end: what
 * failed zones hold is read back after a flush, and from the first unit that is lost on everything moves to another
 * zone. So a zone's content always is a beginning of what was placed on it, and moving is one shift for the rest.
 */
#include <string.h>
#include "zns/store.h"
#include "writer.h"

bool writer_zone_fault(int code)
{
	switch (code) {
	case -EINVAL:		/* ours */
	case -EBADF:
	case -ENOMEM:
	case -EBADE:		/* another host's device */
	case -EDQUOT:		/* what is below the emulator: full, or not its file any more */
	case -ESTALE:
	case -ETOOMANYREFS:	/* limits of the device: no other zone is better off */
	case -EOVERFLOW:
		return false;
	default:
		return code < 0;
	}
}

void writer_zone_failed(struct zns_writer *w, struct wzone *z, const struct zns_err *why)
{
	struct zns_err err = *why;

	if (z->bad)
		return;
	z->bad = true;
	pthread_cond_broadcast(&z->turn);
	pthread_cond_broadcast(&w->idle);
	w->bad_err = err;
	if (w->nr_bad == MAX_BAD) {
		zns_wrap(&err, "%u zones failed during this dump, the last one", MAX_BAD + 1);
		writer_set_error(w, &err);
		return;
	}
	w->bad[w->nr_bad++] = z->slot.zone;
	w->nr_unrepaired++;
}

static int fail(struct zns_writer *w, const struct zns_err *err)
{
	writer_set_error(w, err);
	return w->err.code;
}

static int fail_nomem(struct zns_writer *w)
{
	struct zns_err err;

	zns_fail(&err, -ENOMEM, "no memory to replace a zone that failed");
	return fail(w, &err);
}

/* ---- moving the end of a zone ---- */

/* The bytes that extent @e of a segment has. UINT64_MAX: no memory. */
static uint64_t extent_bytes(const struct zns_wimage *i, const ZnsPb__Segment *s, uint32_t e, uint32_t *slots)
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

/* Segment @at of @i becomes two, of which the first has @turns whole turns. */
static int split(struct zns_wimage *i, size_t at, uint64_t turns, uint32_t slots)
{
	uint64_t units = turns * slots;
	ZnsPb__Segment *s, *n;

	n = writer_add_segment(i, 0, (uint32_t)i->pb.segments[at]->n_extents);
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
	/* The start of an extent that gets no unit is of no account, but must be in the zone. */
	for (size_t e = 0; e < s->n_extents; e++)
		if (!extent_bytes(i, n, (uint32_t)e, &slots))
			n->extents[e]->start = s->extents[e]->start;
	return 0;
}

/*
 * From @x on the zone's content is to move: a segment that stands on both sides of it is cut into two, at the end of
 * a turn, and @x goes back to it.
 */
static int cut(struct zns_writer *w, const struct wzone *z, uint64_t *x)
{
	for (struct zns_wimage *i = w->images; i; i = i->next) {
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

/* Everything in @z from @x on has moved to @to, by @to_x - @x bytes: segments and units that wait. */
static int point_to(struct zns_writer *w, const struct wzone *z, uint64_t x, struct wzone *to, uint64_t to_x)
{
	for (struct zns_wimage *i = w->images; i; i = i->next) {
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
	for (struct job *j = w->orphans; j; j = j->next) {
		if (j->wz != z)
			continue;
		j->wz = to;
		j->off = j->off - x + to_x;
	}
	return 0;
}

/* Copy pieces behind the written end of @to. -EAGAIN: @to has failed too. The lock is dropped. */
static int copy(struct zns_writer *w, uint32_t zone, uint64_t x, const struct piece *p, size_t nr, struct wzone *to,
		uint64_t to_x)
{
	uint64_t off, len, written = to->written;
	struct zns_err err = ZNS_ERR_INIT;
	uint8_t *buf = nr ? unit_alloc(w) : NULL;
	int ret = 0;

	if (nr && !buf)
		return fail_nomem(w);
	pthread_mutex_unlock(&w->lock);
	for (size_t i = 0, n; i < nr && !ret; i += n) {
		n = rescue_run(w, p + i, nr - i, &off, &len);
		ret = len <= w->unit ? rescue_fetch(w, zone, p + i, n, true, buf, &err) : -EFAULT;
		if (ret)
			break;
		ret = writer_write(w, to->slot.zone, off - x + to_x, buf, len, &err);
		if (ret && writer_zone_fault(ret))
			ret = -EAGAIN;
		written = off - x + to_x + len;
	}
	pthread_mutex_lock(&w->lock);
	if (buf)
		unit_free(w, buf);
	if (ret == -EAGAIN) {
		writer_zone_failed(w, to, &err);
		return w->err.code ? w->err.code : ret;
	}
	if (ret) {
		if (!err.code)
			zns_fail(&err, ret, "zone %u holds what was not placed there", zone);
		return fail(w, &err);
	}
	to->written = written;
	return 0;
}

/*
 * A zone for what must leave another one, which had @lane (NULL: none); nothing is being written now. Best one of its
 * own. If the limits allow none, the rest of a lane's zone; if none has room, the lanes let go of theirs and ask again.
 */
static struct wzone *target(struct zns_writer *w, uint32_t group, uint64_t need, struct lane *lane, bool own)
{
	struct wzone *to = NULL;
	bool busy = !own;

	if (own)
		to = writer_new_zone(w, group, need, &busy);
	if (to && lane)
		lane->wz = to;
	else if (to)
		writer_retire(w, to);
	if (to || !busy)
		return to;
	for (uint32_t i = 0; i < w->nr_lanes; i++) {
		to = w->lane[i].wz;
		if (to && !to->bad && to->slot.capacity - to->pos >= need)
			return to;
	}
	for (uint32_t i = 0; i < w->nr_lanes; i++) {
		if (w->lane[i].wz)
			writer_retire(w, w->lane[i].wz);
		w->lane[i].wz = NULL;
	}
	w->lane[0].wz = writer_new_zone(w, group, need, NULL);
	return w->lane[0].wz;
}

/* All that was placed in @z from @x on goes elsewhere. */
static int move(struct zns_writer *w, struct wzone *z, uint64_t x, struct lane *lane, bool own)
{
	cleanup_free struct piece *p = NULL;
	uint64_t need, to_x;
	struct wzone *to;
	size_t nr = 0;
	int ret;

	if (cut(w, z, &x) || rescue_list(w, z->slot.zone, x, z->written, &p, &nr))
		return fail_nomem(w);
	need = z->pos - x;
	do {
		to = target(w, z->slot.group, need, lane, own);
		if (!to)
			return w->err.code;
		to_x = to->pos;
		ret = copy(w, z->slot.zone, x, p, nr, to, to_x);
	} while (ret == -EAGAIN);	/* bounded by MAX_BAD */
	if (ret)
		return ret;
	if (point_to(w, z, x, to, to_x))
		return fail_nomem(w);
	to->pos = to_x + need;
	z->pos = z->written = x;
	return 0;
}

/* ---- at once ---- */

static int repair_zone(struct zns_writer *w, struct wzone *z)
{
	struct lane *lane = NULL;

	z->repaired = true;
	w->nr_unrepaired--;
	w->seg_owner = w->seg_img = NULL;	/* no unit goes there any more: the next one begins a segment */
	for (uint32_t i = 0; i < w->nr_lanes; i++) {
		if (w->lane[i].wz == z) {
			lane = &w->lane[i];
			lane->wz = NULL;
		}
	}
	if (w->meta_lane && w->meta_lane->wz == z) {
		lane = w->meta_lane;
		lane->wz = NULL;
	}
	return z->pos > z->written ? move(w, z, z->written, lane, true) : 0;
}

static bool before(const struct job *a, const struct job *b)
{
	return a->wz != b->wz ? a->wz->slot.zone < b->wz->slot.zone : a->off < b->off;
}

/* Zone by zone and in the order of writing, before all that comes later: so no unit waits for one behind it. */
static void requeue(struct zns_writer *w)
{
	struct job *sorted = NULL, **p, *left = NULL;

	while (w->orphans) {
		struct job *j = w->orphans;

		w->orphans = j->next;
		if (j->wz->bad) {	/* its zone's turn will come */
			j->next = left;
			left = j;
			continue;
		}
		for (p = &sorted; *p && before(*p, j); p = &(*p)->next)
			;
		j->next = *p;
		*p = j;
		w->nr_queued++;
	}
	for (p = &sorted; *p; p = &(*p)->next)
		;
	*p = w->queue;
	if (!w->queue && sorted)
		w->queue_tail = p;
	w->queue = sorted;
	w->orphans = left;
	pthread_cond_broadcast(&w->work);
}

int writer_repair(struct zns_writer *w)
{
	while (w->nr_unrepaired && !w->err.code) {
		writer_placing_begin(w);
		while ((w->nr_queued || w->nr_running) && !w->err.code)
			pthread_cond_wait(&w->idle, &w->lock);
		w->repairing = true;
		/* One by one: the next may need the place in the open limit that this one's rest gives free. */
		for (struct wzone *z = w->zones; z && !w->err.code; z = z->next) {
			if (!z->bad || z->repaired)
				continue;
			repair_zone(w, z);
			break;
		}
		if (!w->err.code)
			requeue(w);
		w->repairing = false;
		writer_placing_end(w);
	}
	return w->err.code;
}

/* ---- in the end ---- */

static int look_at(struct zns_writer *w, struct wzone *z, struct zns_zone *rep, struct zns_err *err)
{
	int ret = zns_dev_report(w->dev, z->slot.zone, 1, rep, err);

	if (ret)
		return zns_wrap(err, "zone %u", z->slot.zone);
	if (rep->state != ZNS_ZONE_READ_ONLY && rep->state != ZNS_ZONE_OFFLINE)
		return 0;
	zns_fail(err, rep->state == ZNS_ZONE_OFFLINE ? -ENXIO : -EROFS, "zone %u turned %s", z->slot.zone,
		 zns_zone_state_name(rep->state));
	return 1;
}

/* The first unit that does not come back as it was written; UINT64_MAX: none. Lock dropped. */
static int first_lost(struct zns_writer *w, const struct wzone *z, uint64_t *lost)
{
	cleanup_free struct piece *p = NULL;
	uint64_t off, len;
	uint8_t *buf;
	size_t nr = 0;

	*lost = UINT64_MAX;
	if (rescue_list(w, z->slot.zone, z->slot.start, z->pos, &p, &nr))
		return -ENOMEM;
	buf = unit_alloc(w);
	if (!buf)
		return -ENOMEM;
	pthread_mutex_unlock(&w->lock);
	for (size_t i = 0, n; i < nr && *lost == UINT64_MAX; i += n) {
		n = rescue_run(w, p + i, nr - i, &off, &len);
		if (len > w->unit || rescue_fetch(w, z->slot.zone, p + i, n, false, buf, NULL))
			*lost = off;
	}
	pthread_mutex_lock(&w->lock);
	unit_free(w, buf);
	return 0;
}

static int check_zone(struct zns_writer *w, struct wzone *z)
{
	uint64_t lost;

	if (first_lost(w, z, &lost))
		return fail_nomem(w);
	z->checked = true;
	return lost == UINT64_MAX ? 0 : move(w, z, lost, NULL, false);
}

static bool to_check(const struct wzone *z)
{
	return z->bad && !z->checked && z->pos > z->slot.start;
}

int writer_audit(struct zns_writer *w)
{
	struct zns_err err = ZNS_ERR_INIT;
	bool again = true;

	while (again && !w->err.code) {
		struct wzone *z;
		int ret;

		for (z = w->zones; z && !w->err.code; z = z->next) {
			struct zns_zone rep;

			ret = z->bad || z->pos == z->slot.start ? 0 : look_at(w, z, &rep, &err);
			if (ret > 0)
				writer_zone_failed(w, z, &err);
			else if (ret)
				fail(w, &err);
		}
		writer_repair(w);
		for (z = w->zones; z && !to_check(z); z = z->next)
			;
		again = z != NULL;
		if (!again || w->err.code)
			break;
		/* What the device only had in a buffer is not yet where it must be found. */
		writer_placing_begin(w);
		w->repairing = true;
		pthread_mutex_unlock(&w->lock);
		ret = zns_dev_flush(w->dev, &err);
		pthread_mutex_lock(&w->lock);
		if (ret)
			fail(w, &err);
		for (; z && !w->err.code; z = z->next)
			if (to_check(z))
				check_zone(w, z);
		w->repairing = false;
		writer_placing_end(w);
	}
	return w->err.code;
}

static int confirm(struct zns_writer *w, const ZnsPb__Checkpoint *c, struct zns_err *err)
{
	int ret = 0;

	pthread_mutex_lock(&w->lock);
	for (struct wzone *z = w->zones; z && !ret; z = z->next) {
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
			ret = zns_fail(err, why.code, "%s just before the commit and lost data; run the dump again", why.msg);
	}
	pthread_mutex_unlock(&w->lock);
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
