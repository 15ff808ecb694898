/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Decides where the next unit is written: a segment is striped over lanes, each with its zone
 * ("zone striping", design.md §5). */
#include <string.h>
#include "writer.h"

NEEDS_LOCK static int lane_new_zone(struct zns_writer *w, struct lane *l, uint64_t need)
{
	if (l->wz)
		zones_retire(w, l->wz);
	l->wz = NULL;
	l->wz = zones_new(w, l->group, need, NULL);
	return l->wz ? 0 : w->err.code;
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
 * Sorts all lanes, the one with the least work first. An image may end anywhere in a turn. If each
 * image began at the same lane, that lane would delay the others (a tree of small tasks lost a
 * fifth of its rate; test_rates).
 */
NEEDS_LOCK static void lanes_by_load(struct zns_writer *w, struct lane **out)
{
	for (uint32_t i = 0; i < w->lanes.nr; i++)
		out[i] = &w->lanes.v[i];
	qsort(out, w->lanes.nr, sizeof(*out), cmp_load);
}

/* Chooses the lanes of the next segment (in w->cur.lane) and their weights. Returns how many. */
NEEDS_LOCK static uint32_t choose_lanes(struct zns_writer *w, struct zns_wimage *img,
					uint64_t first, uint64_t hint_units, uint64_t *most,
					uint32_t *weights)
{
	bool apart = w->lanes.meta && !img->pages;
	uint32_t lanes = apart ? 1 : w->lanes.nr,
		 nr = (uint32_t)zns_min((uint64_t)lanes, zns_max(hint_units, 1u));

	/* more data than the hint need the full width, in a new segment */
	*most = nr < lanes ? hint_units : UINT64_MAX;
	if (apart) {
		w->cur.lane[0] = w->lanes.meta;
		weights[0] = 1;
		return 1;
	}
	lanes_by_load(w, w->cur.lane);
	if (w->tune.plan_units && (first || nr == lanes)) {
		*most = w->tune.plan_units;
		w->tune.plan_units = 0;
		for (uint32_t i = nr = 0; i < lanes; i++) {
			weights[nr] = w->tune.plan[w->cur.lane[i] - w->lanes.v];
			if (weights[nr])
				w->cur.lane[nr++] = w->cur.lane[i];
		}
		return nr;
	}
	for (uint32_t i = 0; i < nr; i++)
		weights[i] = w->cur.lane[i]->weight;
	return nr;
}

/*
 * Begins a segment of @img over as many lanes as the known data can use. A lane whose zone has no
 * room for a unit gets a new zone first. So a segment ends where the fullest zone does.
 */
NEEDS_LOCK static int segment_start(struct zns_writer *w, const struct job *j, uint64_t hint_units)
{
	/* the short last unit of an image only needs room for its own length */
	uint64_t need = zns_min((uint64_t)w->unit, zns_align_up(j->len, w->block)), first = j->k;
	struct zns_wimage *img = j->img;
	uint32_t weights[ZNS_STRIPE_MAX_WIDTH], nr;
	uint64_t rooms[ZNS_STRIPE_MAX_WIDTH], most;
	struct zns_err err;
	ZnsPb__Segment *s;
	int ret;

	nr = choose_lanes(w, img, first, hint_units, &most, weights);
	zns_seg_fini(&w->cur.seg);
	w->cur.owner = NULL;
	if (w->cur.img != img)
		w->cur.run_first = first;
	w->cur.img = NULL;
	s = image_add_segment(img, first * w->unit, nr);
	if (!s)
		return writer_fail_nomem(w, "for the layout of an image");
	for (uint32_t e = 0; e < nr; e++) {
		struct lane *l = w->cur.lane[e];

		if (zones_room(l->wz) < need) {
			ret = lane_new_zone(w, l, need);
			if (ret)
				return ret;
		}
		/* NOLINTNEXTLINE(clang-analyzer-core.DivideZero): a writer's unit is never 0 */
		rooms[e] = zns_max(zones_room(l->wz) / w->unit, UINT64_C(1));
		s->extents[e]->zone = l->wz->slot.zone;
		s->extents[e]->start = l->wz->pos;
		s->extents[e]->weight = weights[e];
		s->extents[e]->has_weight = weights[e] != 1;
	}
	w->cur.capacity = zns_min(zns_turn_capacity(weights, rooms, nr), most);
	w->cur.units = 0;
	ret = zns_seg_init(&w->cur.seg, s, w->unit, &err);
	if (ret) {
		writer_set_error(w, &err);
		return ret;
	}
	w->cur.owner = w->cur.img = img;
	return 0;
}

void placing_begin(struct zns_writer *w)
{
	while (w->lanes.placing)
		writer_sleep(w, &w->idle);
	w->lanes.placing = true;
}

void placing_end(struct zns_writer *w)
{
	w->lanes.placing = false;
	pthread_cond_broadcast(&w->idle);
}

NEEDS_LOCK static int place(struct zns_writer *w, struct job *j, uint64_t hint_units)
{
	ZnsPb__Segment *s;
	struct zns_place p;
	int ret;

	if (w->cur.owner != j->img || w->cur.units == w->cur.capacity) {
		ret = segment_start(w, j, hint_units);
		if (ret)
			return ret;
	}
	zns_seg_place(&w->cur.seg, w->cur.units++, &p);
	j->wz = w->cur.lane[p.extent]->wz;
	j->off = p.off;
	j->lane = w->cur.lane[p.extent];
	lane_add(j->lane, zns_align_up(j->len, w->block));
	j->lane->backlog += zns_align_up(j->len, w->block);
	s = j->img->pb.segments[j->img->pb.n_segments - 1];
	s->len += j->len;
	if (j->len < w->unit)
		/* this was the image's last unit: the next position is not a multiple of the
		 * unit */
		w->cur.owner = NULL;
	return 0;
}

int lanes_place_again(struct zns_writer *w, struct job *j, uint64_t hint_units)
{
	return place(w, j, hint_units);
}

int lanes_place(struct zns_writer *w, struct job *j, uint64_t hint_units)
{
	int ret;

	placing_begin(w);
	ret = place(w, j, hint_units);
	placing_end(w);
	return ret;
}

void lanes_end_segment(struct zns_writer *w)
{
	w->cur.owner = w->cur.img = NULL;
}

/* Gives @len bytes a place in one zone: for a pack unit, or for the manifest. */
NEEDS_LOCK static int place_single(struct zns_writer *w, uint64_t len, struct wzone **wz,
				   uint64_t *off)
{
	struct lane *by_load[ZNS_STRIPE_MAX_WIDTH], *l = NULL;

	len = zns_align_up(len, w->block);
	lanes_end_segment(w);
	if (w->lanes.meta)
		l = w->lanes.meta;
	else
		lanes_by_load(w, by_load);
	for (uint32_t i = 0; i < w->lanes.nr && !l; i++)
		if (zones_room(by_load[i]->wz) >= len)
			l = by_load[i];
	if (!l)
		l = by_load[0];
	if (zones_room(l->wz) < len) {
		int ret = lane_new_zone(w, l, len);

		if (ret)
			return ret;
	}
	*wz = l->wz;
	*off = l->wz->pos;
	lane_add(l, len);
	return 0;
}

int lanes_place_run(struct zns_writer *w, uint64_t len, struct wzone **wz, uint64_t *off)
{
	int ret;

	placing_begin(w);
	ret = place_single(w, len, wz, off);
	placing_end(w);
	return ret;
}
