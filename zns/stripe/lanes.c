/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Where the next unit goes: lanes (a group and its current zone each), segments over lanes, replacement of full
 * zones by another of the same group (papers.md §1, "zone striping"). Everything here runs under the writer's lock.
 */
#include <string.h>
#include "writer.h"

#define MAX_CONTINUED 64

static uint64_t room(const struct wzone *wz)
{
	return wz && !wz->bad ? wz->slot.capacity - wz->pos : 0;
}

/* Retired zones that have all their writes done, each named once. Bad ones are reported as such. */
static uint32_t collect_done(struct zns_writer *w, uint32_t *done, uint32_t max)
{
	struct wzone **p = &w->retired;
	uint32_t nr = 0;

	while (*p && nr < max) {
		if ((*p)->bad) {
			*p = (*p)->next_retired;
		} else if ((*p)->written == (*p)->pos) {
			done[nr++] = (*p)->slot.zone;
			*p = (*p)->next_retired;
		} else {
			p = &(*p)->next_retired;
		}
	}
	return nr;
}

/* The broker may reset zones first: the workers go on meanwhile. @told: how many bad zones it knows of now. */
static int ask_once(struct zns_writer *w, uint32_t group, const uint32_t *done, uint32_t nr, struct zns_zone_slot *out,
		    uint32_t *told, struct zns_err *err)
{
	struct zns_zone_wish wish = { .group = group, .done = done, .nr_done = nr };
	uint32_t bad[MAX_BAD];
	int ret;

	memcpy(bad, w->bad, sizeof(bad));	/* another may fail meanwhile */
	wish.bad = bad;
	wish.nr_bad = *told = w->nr_bad;
	pthread_mutex_unlock(&w->lock);
	ret = w->zone_get(w->arg, &wish, out, err);
	pthread_mutex_lock(&w->lock);
	return ret;
}

/*
 * -EBUSY: the limits are used up, perhaps by zones that we left but have not written to their end. Everything placed
 * before is queued, so the wait for one of them ends; then it is given back.
 */
static int ask(struct zns_writer *w, uint32_t group, struct zns_zone_slot *out, struct zns_err *err)
{
	uint32_t done[32], nr = collect_done(w, done, ZNS_ARRAY_SIZE(done)), told;
	int ret = ask_once(w, group, done, nr, out, &told, err);

	while (ret == -EBUSY && !w->err.code) {
		nr = collect_done(w, done, ZNS_ARRAY_SIZE(done));
		/*
		 * A zone that failed in the meantime counts no more once it is told, so it is as good as one that is done.
		 * While zones are repaired nothing is written: what waits for a place then would wait for ever.
		 */
		while (!nr && told == w->nr_bad && w->retired && !w->repairing && !w->err.code) {
			pthread_cond_wait(&w->idle, &w->lock);
			nr = collect_done(w, done, ZNS_ARRAY_SIZE(done));
		}
		if (!nr && told == w->nr_bad)
			break;
		ret = ask_once(w, group, done, nr, out, &told, err);
	}
	return ret;
}

int writer_check_slot(const struct zns_writer *w, const struct zns_zone_slot *s, struct zns_err *err)
{
	if (s->zone >= w->dev->geo.nr_zones || s->start > s->capacity || s->capacity > w->dev->geo.zone_size ||
	    s->start % w->block || s->capacity % w->block)
		return zns_fail(err, -EPROTO, "granted zone %u, bytes %llu to %llu: the device has no such place", s->zone,
				(unsigned long long)s->start, (unsigned long long)s->capacity);
	return 0;
}

struct wzone *writer_add_zone(struct zns_writer *w, const struct zns_zone_slot *slot)
{
	struct wzone *wz = calloc(1, sizeof(*wz));

	if (!wz)
		return NULL;
	wz->slot = *slot;
	wz->pos = wz->written = slot->start;
	pthread_cond_init(&wz->turn, NULL);
	wz->next = w->zones;
	w->zones = wz;
	w->nr_zones++;
	return wz;
}

static struct wzone *get_zone(struct zns_writer *w, uint32_t group, bool *busy)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_zone_slot slot;
	struct wzone *wz = NULL;
	int ret = ask(w, group, &slot, &err);

	if (!ret)
		ret = writer_check_slot(w, &slot, &err);
	for (uint32_t i = 0; i < w->nr_bad && !ret; i++)
		if (w->bad[i] == slot.zone)
			ret = zns_fail(&err, -EPROTO, "granted zone %u again, which failed in this dump", slot.zone);
	if (!ret) {
		wz = writer_add_zone(w, &slot);
		if (!wz)
			ret = zns_fail(&err, -ENOMEM, "no memory for a zone");
	}
	if (!ret)
		return wz;
	if (busy && ret == -EBUSY) {
		*busy = true;
		return NULL;
	}
	if (!err.code)
		zns_fail(&err, ret, "no zone of group %u was granted", group);
	if (w->nr_bad)
		zns_fail(&err, ret, "%s; %u zone%s failed before: %s", err.msg, w->nr_bad, w->nr_bad > 1 ? "s" : "",
			 w->bad_err.msg);
	writer_set_error(w, &err);
	return NULL;
}

void writer_retire(struct zns_writer *w, struct wzone *z)
{
	z->next_retired = w->retired;
	w->retired = z;
}

/*
 * A zone with room for @need bytes. A zone continued from an earlier checkpoint may be nearly full: then the next one
 * is asked for, and when none of those is left an empty one comes.
 */
struct wzone *writer_new_zone(struct zns_writer *w, uint32_t group, uint64_t need, bool *busy)
{
	uint64_t capacity = 0;
	struct zns_err err;

	for (int tries = 0; tries < MAX_CONTINUED; tries++) {
		struct wzone *z = get_zone(w, group, busy);

		if (!z || room(z) >= need)
			return z;
		capacity = z->slot.capacity;
		writer_retire(w, z);
		if (need > capacity)
			break;	/* an empty one would not do either */
	}
	/* Longer than a unit: a manifest, which has a checksum for each. */
	zns_fail(&err, -EFBIG, "%llu bytes in one run do not fit into a zone of %llu; use a %s --zns-stripe",
		 (unsigned long long)need, (unsigned long long)capacity, need > w->unit ? "larger" : "smaller");
	writer_set_error(w, &err);
	return NULL;
}

static int lane_new_zone(struct zns_writer *w, struct lane *l, uint64_t need)
{
	if (l->wz)
		writer_retire(w, l->wz);
	l->wz = NULL;
	l->wz = writer_new_zone(w, l->group, need, NULL);
	return l->wz ? 0 : w->err.code;
}

ZnsPb__Segment *writer_add_segment(struct zns_wimage *i, uint64_t off, uint32_t nr_extents)
{
	ZnsPb__Segment *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	zns_pb__segment__init(s);
	s->off = off;
	s->extents = calloc(nr_extents, sizeof(*s->extents));
	if (i->pb.n_segments == i->max_segments) {
		size_t max = i->max_segments ? 2 * i->max_segments : 4;
		void *p = realloc(i->pb.segments, max * sizeof(*i->pb.segments));

		if (p) {
			i->pb.segments = p;
			i->max_segments = max;
		}
	}
	if (s->extents && i->pb.n_segments < i->max_segments) {
		i->pb.segments[i->pb.n_segments++] = s;
		for (uint32_t e = 0; e < nr_extents; e++) {
			s->extents[e] = calloc(1, sizeof(**s->extents));
			if (!s->extents[e])
				return NULL;	/* reachable from the image, freed with it */
			zns_pb__extent__init(s->extents[e]);
			s->n_extents++;
		}
		return s;
	}
	free(s->extents);
	free(s);
	return NULL;
}

void writer_cut_segments(struct zns_wimage *i, uint64_t size)
{
	while (i->pb.n_segments) {
		ZnsPb__Segment *s = i->pb.segments[i->pb.n_segments - 1];

		if (s->off < size) {
			s->len = zns_min(s->len, size - s->off);
			return;
		}
		for (size_t e = 0; e < s->n_extents; e++)
			free(s->extents[e]);
		free(s->extents);
		free(s);
		i->pb.n_segments--;
	}
}

static int fail_nomem(struct zns_writer *w)
{
	struct zns_err err;

	zns_fail(&err, -ENOMEM, "no memory for the layout of an image");
	writer_set_error(w, &err);
	return -ENOMEM;
}

static void lane_add(struct lane *l, uint64_t len)
{
	l->load += len / l->weight;
	l->wz->pos += len;
}

static int cmp_load(const void *a, const void *b)
{
	const struct lane *x = *(struct lane *const *)a, *y = *(struct lane *const *)b;

	if (x->load != y->load)
		return x->load < y->load ? -1 : 1;
	return x < y ? -1 : x > y;
}

/*
 * All lanes, the one with least to do first: images end anywhere in a turn, and if each began at the same lane, that
 * one would hold up the others (a tree of small tasks lost a fifth; test_rates).
 */
static void lanes_by_load(struct zns_writer *w, struct lane **out)
{
	for (uint32_t i = 0; i < w->nr_lanes; i++)
		out[i] = &w->lane[i];
	qsort(out, w->nr_lanes, sizeof(*out), cmp_load);
}

/* The lanes of the next segment, in w->seg_lane, and their weights. Returns how many. */
static uint32_t choose_lanes(struct zns_writer *w, struct zns_wimage *img, uint64_t first, uint64_t hint_units, uint64_t *most,
			     uint32_t *weights)
{
	bool apart = w->meta_lane && !img->pages;
	uint32_t lanes = apart ? 1 : w->nr_lanes, nr = (uint32_t)zns_min((uint64_t)lanes, zns_max(hint_units, 1u));

	*most = nr < lanes ? hint_units : UINT64_MAX;	/* what comes after the hinted data gets the full width */
	if (apart) {
		w->seg_lane[0] = w->meta_lane;
		weights[0] = 1;
		return 1;
	}
	lanes_by_load(w, w->seg_lane);
	if (w->plan_units && (first || nr == lanes)) {
		*most = w->plan_units;
		w->plan_units = 0;
		for (uint32_t i = nr = 0; i < lanes; i++) {
			weights[nr] = w->plan[w->seg_lane[i] - w->lane];
			if (weights[nr])
				w->seg_lane[nr++] = w->seg_lane[i];
		}
		return nr;
	}
	for (uint32_t i = 0; i < nr; i++)
		weights[i] = w->seg_lane[i]->weight;
	return nr;
}

/*
 * Begin a segment of @img over as many lanes as the data at hand can use. A lane whose zone has no room for one
 * unit gets a new zone first; so a segment ends where the fullest zone does.
 */
static int segment_start(struct zns_writer *w, struct zns_wimage *img, uint64_t first, uint64_t hint_units)
{
	uint32_t weights[ZNS_STRIPE_MAX_WIDTH], nr;
	uint64_t rooms[ZNS_STRIPE_MAX_WIDTH], most;
	struct zns_err err;
	ZnsPb__Segment *s;
	int ret;

	nr = choose_lanes(w, img, first, hint_units, &most, weights);
	zns_seg_fini(&w->seg);
	w->seg_owner = NULL;
	if (w->seg_img != img)
		w->run_first = first;
	w->seg_img = NULL;
	s = writer_add_segment(img, first * w->unit, nr);
	if (!s)
		return fail_nomem(w);
	for (uint32_t e = 0; e < nr; e++) {
		struct lane *l = w->seg_lane[e];

		if (room(l->wz) < w->unit) {
			ret = lane_new_zone(w, l, w->unit);
			if (ret)
				return ret;
		}
		/* NOLINTNEXTLINE(clang-analyzer-core.DivideZero): a writer's unit is never 0 */
		rooms[e] = room(l->wz) / w->unit;
		s->extents[e]->zone = l->wz->slot.zone;
		s->extents[e]->start = l->wz->pos;
		s->extents[e]->weight = weights[e];
		s->extents[e]->has_weight = weights[e] != 1;
	}
	w->seg_capacity = zns_min(zns_turn_capacity(weights, rooms, nr), most);
	w->seg_units = 0;
	ret = zns_seg_init(&w->seg, s, w->unit, &err);
	if (ret) {
		writer_set_error(w, &err);
		return ret;
	}
	w->seg_owner = w->seg_img = img;
	return 0;
}

void writer_placing_begin(struct zns_writer *w)
{
	while (w->placing)
		pthread_cond_wait(&w->idle, &w->lock);
	w->placing = true;
}

void writer_placing_end(struct zns_writer *w)
{
	w->placing = false;
	pthread_cond_broadcast(&w->idle);
}

static int place(struct zns_writer *w, struct job *j, uint64_t hint_units)
{
	ZnsPb__Segment *s;
	struct zns_place p;
	int ret;

	if (w->seg_owner != j->img || w->seg_units == w->seg_capacity) {
		ret = segment_start(w, j->img, j->k, hint_units);
		if (ret)
			return ret;
	}
	zns_seg_place(&w->seg, w->seg_units++, &p);
	j->wz = w->seg_lane[p.extent]->wz;
	j->off = p.off;
	j->lane = w->seg_lane[p.extent];
	lane_add(j->lane, zns_align_up(j->len, w->block));
	j->lane->backlog += zns_align_up(j->len, w->block);
	s = j->img->pb.segments[j->img->pb.n_segments - 1];
	s->len += j->len;
	if (j->len < w->unit)
		w->seg_owner = NULL;	/* the image's last unit: the next position is off the grid */
	return 0;
}

int writer_place_again(struct zns_writer *w, struct job *j, uint64_t hint_units)
{
	return place(w, j, hint_units);
}

int writer_place(struct zns_writer *w, struct job *j, uint64_t hint_units)
{
	int ret;

	writer_placing_begin(w);
	ret = place(w, j, hint_units);
	writer_placing_end(w);
	return ret;
}

/* A run of @len bytes in one zone, for a pack unit or the manifest. */
static int place_single(struct zns_writer *w, uint64_t len, struct wzone **wz, uint64_t *off)
{
	struct lane *by_load[ZNS_STRIPE_MAX_WIDTH], *l = NULL;

	len = zns_align_up(len, w->block);
	w->seg_owner = w->seg_img = NULL;
	if (w->meta_lane)
		l = w->meta_lane;
	else
		lanes_by_load(w, by_load);
	for (uint32_t i = 0; i < w->nr_lanes && !l; i++)
		if (room(by_load[i]->wz) >= len)
			l = by_load[i];
	if (!l)
		l = by_load[0];
	if (room(l->wz) < len) {
		int ret = lane_new_zone(w, l, len);

		if (ret)
			return ret;
	}
	*wz = l->wz;
	*off = l->wz->pos;
	lane_add(l, len);
	return 0;
}

int writer_place_single(struct zns_writer *w, uint64_t len, struct wzone **wz, uint64_t *off)
{
	int ret;

	writer_placing_begin(w);
	ret = place_single(w, len, wz, off);
	writer_placing_end(w);
	return ret;
}
