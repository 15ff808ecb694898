/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Finds the places of a checkpoint's data, and predicts at which rate they are read, compared with
 * the best rate of their groups.
 */
#include <string.h>
#include "layout.h"
#include "zns/grow.h"
#include "zns/image_map.h"
#include "zns/layout.h"

/* bytes; a unit shorter than this costs a whole read command for little data */
#define SHORT KIB(64)
#define PAGE KIB(16) /* bytes of a flash page: a die reads whole pages, also in the emulator */
/* least number of reads under way: a reader has this many workers (zns/stripe/reader_open.c) */
#define DEPTH_MIN 8u
#define DEPTH_MAX 64u
#define DEPTH_BYTES MIB(20) /* bytes of a reader's buffers, which also limit the reads under way */

struct build {
	struct layout *l;
	const ZnsPb__Profile *p;
	uint64_t max_units;
	uint32_t max_zones, widest, unit;
	uint32_t *at; /* by zone: its index in the table plus 1; 0: none */
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

/*
 * Completes the build. @ret: the result of adding the units. On success *out is complete, otherwise
 * it is freed.
 */
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
	/*
	 * The dump was striped over at least as many groups as have data now. It may have been
	 * striped over more: data of two groups may have been moved into one since.
	 */
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
	return end(&b, ret);
}

void layout_fini(struct layout *l)
{
	free(l->units);
	free(l->zones);
	*l = (struct layout){ 0 };
}
