/* SPDX-License-Identifier: GPL-2.0-only */
/* Where a checkpoint lies, and how far its restore is from what its groups could give. */
#include <string.h>
#include "compaction.h"
#include "zns/grow.h"
#include "zns/image_map.h"
#include "zns/layout.h"

#define SHORT KIB(64) /* a unit of less takes a command, and gives little for it */
#define DEPTH_MIN 8u /* as a reader has workers (zns/stripe/reader_open.c) … */
#define DEPTH_MAX 64u
#define DEPTH_BYTES MIB(20) /* … and buffers for them */

struct build {
	struct layout *l;
	const ZnsPb__Profile *p;
	uint64_t max_units;
	uint32_t max_zones, widest, unit;
	uint32_t *at; /* by zone: its place in the table, plus 1 */
};

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

static int add_segment(struct build *b, const ZnsPb__Image *img, const ZnsPb__Segment *pb,
		       struct zns_err *err)
{
	uint64_t nr = (pb->len + img->unit - 1) / img->unit;
	struct layout *l = b->l;
	struct zns_seg seg;
	int ret = zns_seg_init(&seg, pb, img->unit, err);

	b->widest = zns_max(b->widest, seg.nr);
	for (uint64_t k = 0; k < nr && !ret; k++) {
		struct zns_scatter_unit u;
		struct zns_place place;

		zns_seg_place(&seg, k, &place);
		ret = zone_at(b, place.zone, &u.at, err);
		if (!ret && zns_grow(l->units, l->s.nr_units, b->max_units))
			ret = zns_fail(err, -ENOMEM, "no memory for a list of units");
		if (ret)
			break;
		u.len = (uint32_t)zns_min((uint64_t)img->unit, pb->len - k * img->unit);
		l->units[l->s.nr_units++] = u;
		l->zones[u.at].bytes += u.len;
		l->shorts += u.len < SHORT;
		l->short_bytes += u.len < SHORT ? u.len : 0;
	}
	zns_seg_fini(&seg);
	return ret;
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

int layout_of(const ZnsPb__Manifest *m, const ZnsPb__Profile *p, struct layout *out,
	      struct zns_err *err)
{
	struct build b = { .l = out, .p = p, .unit = 1 };
	cleanup_free uint32_t *at = calloc(p->n_zone_group + 1, sizeof(*at));
	int ret = 0;

	*out = (struct layout){ .read_mibps = p->zone_read_mibps };
	b.at = at;
	if (!at)
		return zns_fail(err, -ENOMEM, "no memory for a list of zones");
	for (size_t i = 0; i < m->n_images && !ret; i++) {
		const ZnsPb__Image *img = m->images[i];

		if (img->map) {
			out->runs += zns_map_runs(img->map);
			out->run_bytes += img->size;
		}
		b.unit = zns_max(b.unit, img->unit);
		for (size_t s = 0; s < img->n_segments && !ret; s++)
			ret = add_segment(&b, img, img->segments[s], err);
	}
	if (ret) {
		layout_fini(out);
		return ret;
	}
	count_groups(&b);
	out->s.units = out->units;
	out->s.zones = out->zones;
	out->s.nr_groups = (uint32_t)p->n_groups;
	/* as many as it lies in, or was written to at once: two lanes may have met on one die */
	out->s.width = zns_min(zns_max(out->groups, b.widest), out->s.nr_groups);
	out->s.depth = zns_min(zns_min(zns_max(DEPTH_MIN, 2 * b.widest), DEPTH_MAX),
			       zns_max((uint32_t)(DEPTH_BYTES / b.unit), 2u));
	out->rate = zns_scatter_rate(&out->s, NULL);
	return 0;
}

void layout_fini(struct layout *l)
{
	free(l->units);
	free(l->zones);
	*l = (struct layout){ 0 };
}

/* The rate that was measured, of this very checkpoint; 0: none was. */
static double measured(const ZnsPb__Checkpoint *c, const ZnsPb__RestoreStat *last)
{
	bool same = last && last->checkpoint.len == c->id.len &&
		    !memcmp(last->checkpoint.data, c->id.data, c->id.len);

	return same && last->has_achieved_mibps ? last->achieved_mibps : 0;
}

static double could(const struct layout *l)
{
	return (double)l->s.width * l->read_mibps;
}

/* Bytes in each group, the fullest first. */
static void print_groups(const struct layout *l)
{
	cleanup_free uint64_t *in = calloc((size_t)l->s.nr_groups + 1, sizeof(*in));
	int at = printf("            in groups");
	char one[48], size[16];

	for (uint32_t i = 0; in && i < l->s.nr_zones; i++)
		in[l->zones[i].group] += l->zones[i].bytes;
	for (uint32_t n = 0; in && n < l->groups; n++) {
		uint32_t best = 0;

		for (uint32_t g = 1; g < l->s.nr_groups; g++)
			if (in[g] > in[best])
				best = g;
		snprintf(one, sizeof(one), "%u:%s", best,
			 zns_format_size(in[best], size, sizeof(size)));
		ctl_print_word(one, 12, &at);
		in[best] = 0;
	}
	printf("\n");
}

void layout_print(const struct layout *l, const ZnsPb__Checkpoint *c,
		  const ZnsPb__RestoreStat *last)
{
	char size[16];

	printf("layout      %.0f %% of what %u groups could give: about %.0f MiB/s of %.0f\n",
	       100 * l->rate, l->s.width, l->rate * could(l), could(l));
	if (measured(c, last) > 0)
		printf("            measured at its last restore: %.0f MiB/s\n", measured(c, last));
	print_groups(l);
	if (l->groups < l->s.width)
		printf("            written to %u zones at once, of which some are in the same group\n",
		       l->s.width);
	if (l->shorts)
		printf("            %u units of less than 64 KiB, %s together\n", l->shorts,
		       zns_format_size(l->short_bytes, size, sizeof(size)));
	if (l->runs)
		printf("            composed of %llu runs of %s: `znsctl flatten` puts them in order\n",
		       (unsigned long long)l->runs,
		       zns_format_size(l->run_bytes / l->runs, size, sizeof(size)));
	if (c->has_parent)
		printf("            the newest pages only: the others are where its parents are; `znsctl flatten` joins them\n");
	if (l->rate > 0 && l->rate < 0.9)
		printf("            `znsctl compact --defrag` says what would pay\n");
}

struct json_object *layout_json(const struct layout *l, const ZnsPb__Checkpoint *c,
				const ZnsPb__RestoreStat *last)
{
	struct json_object *list = json_object_new_array();
	cleanup_free uint64_t *in = calloc((size_t)l->s.nr_groups + 1, sizeof(*in));
	double was = measured(c, last);

	for (uint32_t i = 0; in && i < l->s.nr_zones; i++)
		in[l->zones[i].group] += l->zones[i].bytes;
	for (uint32_t g = 0; in && g < l->s.nr_groups; g++)
		if (in[g])
			json_object_array_add(list, ctl_obj(J("group", g), J("bytes", in[g])));
	return ctl_obj(J("of_best", l->rate), J("predicted_mibps", l->rate * could(l)),
		       J("best_mibps", could(l)), J("width", l->s.width), J("groups", list),
		       J("short_units", l->shorts), J("short_bytes", l->short_bytes),
		       J("runs", l->runs),
		       J("measured_mibps", was > 0 ? json_object_new_double(was) : NULL));
}
