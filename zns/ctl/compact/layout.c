/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where the data of a checkpoint are, and how its restore's rate compares with what its groups
 * could give.
 */
#include <string.h>
#include "layout.h"
#include "zns/chain.h"
#include "zns/flat.h"
#include "zns/grow.h"
#include "zns/image_map.h"
#include "zns/layout.h"

#define SHORT KIB(64) /* bytes; a smaller unit costs a whole read command for little data */
#define PAGE KIB(16) /* bytes of a flash page: a die reads whole pages, like the emulator's */
#define DEPTH_MIN 8u /* at least as many as a reader has workers (zns/stripe/reader_open.c) */
#define DEPTH_MAX 64u
#define DEPTH_BYTES MIB(20) /* … and buffers for them */

struct build {
	struct layout *l;
	const ZnsPb__Profile *p;
	uint64_t max_units;
	uint32_t max_zones, widest, unit;
	uint32_t *at; /* by zone: its place in the table, plus 1 */
};

static int begin(struct build *b, const ZnsPb__Profile *p, struct layout *out, struct zns_err *err)
{
	*out = (struct layout){ .read_mibps = p->zone_read_mibps };
	*b = (struct build){ .l = out, .p = p, .unit = 1 };
	b->at = calloc(p->n_zone_group + 1, sizeof(*b->at));
	return b->at ? 0 : zns_fail(err, -ENOMEM, "no memory for a list of zones");
}

static int zone_at(struct build *b, uint32_t zone, uint32_t *at, struct zns_err *err)
{
	struct layout *l = b->l;

	if (zone >= b->p->n_zone_group || b->p->zone_group[zone] >= b->p->n_groups)
		return zns_fail(err, -EBADMSG, "zone %u is in no group", zone);
	if (!b->at[zone]) {
		if (zns_grow(l->zones, l->s.nr_zones, b->max_zones))
			return zns_fail(err, -ENOMEM, "no memory for a list of zones");
		l->zones[l->s.nr_zones++] =
			(struct zns_scatter_zone){ .zone = zone, .group = b->p->zone_group[zone] };
		b->at[zone] = l->s.nr_zones;
	}
	*at = b->at[zone] - 1;
	return 0;
}

static int add_unit(struct build *b, const struct zns_seg *seg, uint64_t k, struct zns_err *err)
{
	struct layout *l = b->l;
	struct zns_scatter_unit u = { 0 };
	struct zns_place place;
	int ret;

	zns_seg_place(seg, k, &place);
	ret = zone_at(b, place.zone, &u.at, err);
	if (!ret && zns_grow(l->units, l->s.nr_units, b->max_units))
		ret = zns_fail(err, -ENOMEM, "no memory for a list of units");
	if (ret)
		return ret;
	u.len = (uint32_t)zns_min((uint64_t)seg->unit, seg->len - k * seg->unit);
	l->units[l->s.nr_units++] = u;
	l->zones[u.at].bytes += u.len;
	l->page_bytes += zns_align_up(u.len, PAGE);
	l->shorts += u.len < SHORT;
	l->short_bytes += u.len < SHORT ? u.len : 0;
	return 0;
}

static void count_groups(struct build *b)
{
	struct layout *l = b->l;

	for (uint32_t i = 0; i < l->s.nr_zones; i++) {
		bool seen = false;

		for (uint32_t k = 0; k < i; k++)
			seen |= l->zones[k].group == l->zones[i].group;
		l->groups += !seen;
	}
}

/* Counts the runs of composed images, and the bytes of their parts that no restore reads. */
static void count_runs(struct layout *l, const ZnsPb__Manifest *m)
{
	uint64_t parts = 0;

	for (size_t i = 0; i < m->n_images; i++) {
		const ZnsPb__Image *img = m->images[i];

		parts += img->part ? img->size : 0;
		if (img->map) {
			l->runs += zns_map_runs(img->map);
			l->run_bytes += img->size;
		}
	}
	l->superseded = parts > l->run_bytes ? parts - l->run_bytes : 0;
}

/* Finish: @ret is the result of adding units. 0: *out is complete; otherwise it is freed. */
static int end(struct build *b, int ret)
{
	struct layout *out = b->l;

	free(b->at);
	if (ret) {
		layout_fini(out);
		return ret;
	}
	count_groups(b);
	out->s.units = out->units;
	out->s.zones = out->zones;
	out->s.nr_groups = (uint32_t)b->p->n_groups;
	/* The dump was at least as wide as the number of groups that have its data, and possibly
	 * wider: data of two groups may have been moved into one since. */
	out->s.width = zns_min(zns_max(out->groups, b->widest), out->s.nr_groups);
	out->s.depth = zns_min(zns_min(zns_max(DEPTH_MIN, 2 * b->widest), DEPTH_MAX),
			       zns_max((uint32_t)(DEPTH_BYTES / b->unit), 2u));
	out->read_bytes = zns_scatter_bytes(&out->s);
	out->rate = zns_scatter_rate(&out->s, NULL);
	return 0;
}

static int add_segment(struct build *b, const ZnsPb__Image *img, const ZnsPb__Segment *pb,
		       struct zns_err *err)
{
	uint64_t nr = (pb->len + img->unit - 1) / img->unit;
	struct zns_seg seg;
	int ret = zns_seg_init(&seg, pb, img->unit, err);

	b->widest = zns_max(b->widest, seg.nr);
	for (uint64_t k = 0; k < nr && !ret; k++)
		ret = add_unit(b, &seg, k, err);
	zns_seg_fini(&seg);
	return ret;
}

int layout_of(const ZnsPb__Manifest *m, const ZnsPb__Profile *p, struct layout *out,
	      struct zns_err *err)
{
	struct build b;
	int ret = begin(&b, p, out, err);

	count_runs(out, m);
	for (size_t i = 0; i < m->n_images && !ret; i++) {
		const ZnsPb__Image *img = m->images[i];

		b.unit = zns_max(b.unit, img->unit);
		for (size_t s = 0; s < img->n_segments && !ret; s++)
			ret = add_segment(&b, img, img->segments[s], err);
	}
	ret = end(&b, ret);
	if (!ret)
		out->wanted_bytes = out->read_bytes;
	return ret;
}

/* ---- as a restore reads it: a chain, or composed images ---- */

/* One image of one level. */
struct source {
	struct zns_seg *seg; /* NULL: not prepared yet */
	uint8_t *seen; /* a bit for each unit: it is in the list */
};

struct walk {
	struct build b;
	const struct zns_chain *c;
	struct source **level; /* by level and place */
	struct zns_err *err;
};

static int look(struct walk *w, const ZnsPb__Image *img, struct source *s)
{
	uint64_t units = img->size / img->unit + 1;
	int ret = 0;

	s->seg = calloc(img->n_segments + 1, sizeof(*s->seg));
	s->seen = calloc(units / 8 + 1, 1);
	if (!s->seg || !s->seen)
		return zns_fail(w->err, -ENOMEM, "no memory for a list of units");
	w->b.unit = zns_max(w->b.unit, img->unit);
	for (size_t i = 0; i < img->n_segments && !ret; i++) {
		ret = zns_seg_init(&s->seg[i], img->segments[i], img->unit, w->err);
		w->b.widest = zns_max(w->b.widest, s->seg[i].nr);
	}
	return ret;
}

/* A unit is read whole, since its checksum covers all of it. It counts once, as if the cache always
 * kept it. */
static int add_piece(void *arg, uint32_t level, uint32_t place, uint64_t off, uint64_t len)
{
	struct walk *w = arg;
	const ZnsPb__Image *img = zns_chain_manifest(w->c, level)->images[place];
	struct source *s = &w->level[level][place];
	int ret = !s->seg && img->n_segments ? look(w, img, s) : 0;

	w->b.l->wanted_bytes += len;
	for (size_t i = 0; i < img->n_segments && !ret; i++) {
		const struct zns_seg *seg = &s->seg[i];
		uint64_t from = zns_max(off, seg->off),
			 to = zns_min(off + len, seg->off + seg->len);

		for (uint64_t k = from; k < to && !ret; k = (k / img->unit + 1) * img->unit) {
			uint64_t unit = k / img->unit;

			if (!(s->seen[unit / 8] & 1u << unit % 8))
				ret = add_unit(&w->b, seg, (k - seg->off) / img->unit, w->err);
			s->seen[unit / 8] |= (uint8_t)(1u << unit % 8);
		}
	}
	return ret;
}

static int sources_make(struct walk *w)
{
	uint32_t nr = zns_chain_levels(w->c);

	w->level = calloc(nr + 1, sizeof(*w->level));
	for (uint32_t i = 0; w->level && i < nr; i++) {
		w->level[i] = calloc(zns_chain_manifest(w->c, i)->n_images + 1, sizeof(**w->level));
		if (!w->level[i])
			return -ENOMEM;
	}
	return w->level ? 0 : -ENOMEM;
}

static void sources_free(struct walk *w)
{
	for (uint32_t i = 0; w->level && i < zns_chain_levels(w->c) && w->level[i]; i++) {
		const ZnsPb__Manifest *m = zns_chain_manifest(w->c, i);

		for (size_t n = 0; n < m->n_images; n++) {
			struct source *s = &w->level[i][n];

			for (size_t k = 0; s->seg && k < m->images[n]->n_segments; k++)
				zns_seg_fini(&s->seg[k]);
			free(s->seg);
			free(s->seen);
		}
		free(w->level[i]);
	}
	free(w->level);
}

int layout_of_chain(const struct zns_chain *c, const struct zns_flat *f, const ZnsPb__Profile *p,
		    struct layout *out, struct zns_err *err)
{
	struct walk w = { .c = c, .err = err };
	int ret = begin(&w.b, p, out, err);

	if (!ret && sources_make(&w))
		ret = zns_fail(err, -ENOMEM, "no memory for a list of images");
	count_runs(out, zns_chain_manifest(c, 0));
	for (uint32_t n = 0; n < zns_flat_images(f) && !ret; n++)
		ret = zns_flat_walk(f, n, add_piece, &w);
	sources_free(&w);
	ret = end(&w.b, ret);
	if (ret)
		return ret;
	out->parents = zns_chain_levels(c) - 1;
	/* the rate counts bytes that a restore wants, not those that are read along with them */
	if (out->read_bytes > out->wanted_bytes)
		out->rate *= (double)out->wanted_bytes / (double)out->read_bytes;
	return 0;
}

void layout_fini(struct layout *l)
{
	free(l->units);
	free(l->zones);
	*l = (struct layout){ 0 };
}
