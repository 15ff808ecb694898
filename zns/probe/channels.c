/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Dies into channels. Two dies that are read by a whole unit at once take as long as one, or longer when they have to
 * share a channel. How much longer is the drive's: the times of many pairs fall into two classes, or into one.
 */
#include <math.h>
#include <string.h>

#include "probe_priv.h"

#define BASES		4u	/* dies that are tried against all others, to see the classes */
#define OTHERS		64u
#define FIRST		15u	/* samples of a pair at first */
#define CONFIRM		30u	/* at least, before two dies are put together */
#define SAMPLES		240u	/* at most */
#define NOISE		0.008	/* of a median, relative, that is small enough to see the classes */
#define SHARED_BY_ALL	1.15	/* one class only, and this slow: all dies share a channel */
#define LATER_OF_TWO	0.6	/* standard deviations that the later of two alike is later than either */

static int samples(struct probe *p, uint32_t a, uint32_t b, double *v, uint32_t n, struct zns_err *err)
{
	for (uint32_t i = 0; i < n; i++) {
		uint64_t ns;
		int rc = probe_read_units(p, i % 2 && b != ZNS_PROBE_NONE ? b : a, i % 2 && b != ZNS_PROBE_NONE ? a : b, &ns, err);

		if (rc)
			return rc;
		v[i] = ns;
	}
	return 0;
}

/* One alone, once for each zone. */
static int solo(struct probe *p, uint32_t zone, double *ns, struct zns_err *err)
{
	double v[SAMPLES];
	int rc;

	if (p->solo_ns[zone] <= 0) {
		rc = samples(p, zone, ZNS_PROBE_NONE, v, p->samples, err);
		if (rc)
			return rc;
		p->solo_ns[zone] = probe_median(v, p->samples);
	}
	*ns = p->solo_ns[zone];
	return 0;
}

int probe_loss(struct probe *p, uint32_t a, uint32_t b, uint32_t n, double *ratio, double *spread, struct zns_err *err)
{
	double v[SAMPLES], x, y;
	int rc = solo(p, a, &x, err);

	n = zns_min(n, SAMPLES);
	if (!rc)
		rc = solo(p, b, &y, err);
	if (!rc)
		rc = samples(p, a, b, v, n, err);
	if (rc)
		return rc;
	x = zns_max(x, y);
	*ratio = probe_median(v, n) / x;
	*spread = probe_spread(v, n, *ratio * x) / x * 1.25 / sqrt(n);
	return 0;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The widest gap between neighbours, if it is no accident. */
static void split(struct probe *p, double *v, uint32_t n, double noise)
{
	double gap = 0, low[BASES * OTHERS], high[BASES * OTHERS];
	uint32_t at = 0;

	qsort(v, n, sizeof(*v), by_value);
	for (uint32_t i = 1; i < n; i++) {
		if (v[i] - v[i - 1] <= gap)
			continue;
		gap = v[i] - v[i - 1];
		at = i;
	}
	p->border_found = at && gap > 0.05 && gap > 4 * noise;
	p->lost_low = p->lost_high = v[n / 2];
	if (!p->border_found)
		return;
	memcpy(low, v, at * sizeof(*v));
	memcpy(high, v + at, (n - at) * sizeof(*v));
	p->lost_low = probe_median(low, at);
	p->lost_high = probe_median(high, n - at);
	p->border = (p->lost_low + p->lost_high) / 2;
}

/* As many as it takes to see the classes through the noise of this drive. */
static int choose_samples(struct probe *p, uint32_t a, uint32_t b, struct zns_err *err)
{
	double ratio, spread, n;
	int rc;

	p->samples = 2 * FIRST;
	rc = probe_loss(p, a, b, p->samples, &ratio, &spread, err);
	p->jitter = spread * sqrt(p->samples) / 1.25;
	n = p->samples * (spread / NOISE) * (spread / NOISE);
	p->samples = n < 2 * FIRST ? 2 * FIRST : n > SAMPLES ? SAMPLES : n;
	p->solo_ns[a] = p->solo_ns[b] = 0;
	return rc;
}

int probe_find_border(struct probe *p, const uint32_t *zones, uint32_t nr, struct zns_err *err)
{
	uint32_t bases = zns_min(nr, BASES), others = zns_min(nr, OTHERS), n = 0;
	double v[BASES * OTHERS], noise[BASES * OTHERS];
	int rc = nr > 1 ? choose_samples(p, zones[0], zones[1], err) : 0;

	if (rc)
		return rc;
	for (uint32_t i = 0; i < bases; i++) {
		/* each pair once */
		for (uint32_t k = i + 1; k < others; k++) {
			rc = probe_loss(p, zones[i], zones[k], p->samples, &v[n], &noise[n], err);

			if (rc)
				return rc;
			n++;
		}
		probe_tick(p, 0, p->map->nr_groups);
	}
	p->border_found = false;
	if (n)
		split(p, v, n, probe_median(noise, n));
	return 0;
}

/* With more samples while it is close to the border. */
static int share_channel(struct probe *p, uint32_t a, uint32_t b, bool *yes, double *sure, struct zns_err *err)
{
	double width = p->lost_high - p->lost_low, ratio, spread, z = 0;

	for (uint32_t n = FIRST; n <= SAMPLES; n *= 2) {
		int rc = probe_loss(p, a, b, n, &ratio, &spread, err);

		if (rc)
			return rc;
		*yes = ratio > p->border;
		z = fabs(ratio - p->border) / zns_max(spread, 0.05 * width);
		if (z > 4 && (!*yes || n >= CONFIRM))
			break;
	}
	*sure = (1 + erf(z / sqrt(2))) / 2;
	return 0;
}

/* A zone of the die that has a whole unit to read, or can get it. */
static uint32_t representative(const struct probe *p, uint32_t group)
{
	uint32_t zone = p->map->pivot[group], data = ZNS_PROBE_NONE;

	if (p->kind[zone] == KIND_EMPTY)
		return zone;
	for (uint32_t z = 0; z < p->nr; z++) {
		if (p->map->zone_group[z] != group)
			continue;
		if (p->kind[z] == KIND_EMPTY)
			return z;
		if (p->readable[z] == p->unit)
			data = z;
	}
	return data;
}

struct dies {
	uint32_t *zone;		/* by group; ZNS_PROBE_NONE */
	uint32_t *first;	/* by channel: its first group */
	uint32_t *list;
};

static int border(struct probe *p, const struct dies *d, struct zns_err *err)
{
	uint32_t n = 0, most = zns_min(p->room, OTHERS);
	int rc;

	for (uint32_t g = 0; g < p->map->nr_groups && n < most; g++)
		if (d->zone[g] != ZNS_PROBE_NONE)
			d->list[n++] = d->zone[g];
	rc = probe_need(p, d->list, n, err);
	if (!rc)	/* they stay readable as long as there is room: they are needed again soon */
		rc = probe_find_border(p, d->list, n, err);
	return rc;
}

static int one_die(struct probe *p, const struct dies *d, uint32_t group, uint32_t first_channel, uint32_t cap, bool *kept,
		   struct zns_err *err)
{
	struct zns_probe_map *m = p->map;
	double sure, least = 1;

	*kept = false;
	for (uint32_t c = first_channel; c < m->nr_channels; c++) {
		bool yes;
		int rc = share_channel(p, d->zone[group], d->zone[d->first[c]], &yes, &sure, err);

		if (rc)
			return rc;
		least = zns_min(least, sure);
		if (!yes)
			continue;
		m->group_channel[group] = c;
		m->channel_confidence[group] = sure;
		return 0;
	}
	if (m->nr_channels - first_channel == cap)
		return 0;	/* the next pass */
	d->first[m->nr_channels] = group;
	m->group_channel[group] = m->nr_channels++;
	m->channel_confidence[group] = least;
	*kept = true;
	return 0;
}

/* Reset what can be read but is not a channel's representative of this pass. */
static int make_room(struct probe *p, const struct dies *d, uint32_t first_channel, struct zns_err *err)
{
	uint32_t n = 0;

	for (uint32_t g = 0; g < p->map->nr_groups; g++) {
		uint32_t c = p->map->group_channel[g];

		if (d->zone[g] != ZNS_PROBE_NONE && (c == ZNS_PROBE_NONE || c < first_channel || d->first[c] != g))
			d->list[n++] = d->zone[g];
	}
	return probe_drop(p, d->list, n, err);
}

static int one_pass(struct probe *p, const struct dies *d, uint32_t *left, struct zns_err *err)
{
	struct zns_probe_map *m = p->map;
	uint32_t first = m->nr_channels, cap = zns_max(p->room, 2u) - 1, done = 0;
	int rc = 0;

	*left = 0;
	for (uint32_t g = 0; !rc && g < m->nr_groups; g++) {
		bool kept;

		done += m->group_channel[g] != ZNS_PROBE_NONE;
		if (m->group_channel[g] != ZNS_PROBE_NONE || d->zone[g] == ZNS_PROBE_NONE)
			continue;
		if (p->nr_ours >= p->room && !p->have[d->zone[g]])
			rc = make_room(p, d, first, err);
		if (!rc)
			rc = probe_need(p, &d->zone[g], 1, err);
		if (!rc)
			rc = one_die(p, d, g, first, cap, &kept, err);
		if (!rc && !kept)
			rc = probe_drop(p, &d->zone[g], 1, err);
		*left += m->group_channel[g] == ZNS_PROBE_NONE;
		probe_tick(p, ++done, m->nr_groups);
	}
	for (uint32_t c = first; !rc && c < m->nr_channels; c++)
		rc = probe_drop(p, &d->zone[d->first[c]], 1, err);
	return rc;
}

static int run(struct probe *p, const struct dies *d, struct zns_err *err)
{
	struct zns_probe_map *m = p->map;
	uint32_t left = m->nr_groups;
	int rc = border(p, d, err);

	if (rc)
		return rc;
	m->nr_channels = 0;
	for (uint32_t g = 0; g < m->nr_groups; g++) {
		m->group_channel[g] = ZNS_PROBE_NONE;
		m->channel_confidence[g] = 0;
	}
	if (!p->border_found) {
		m->channel_loss = 0;
		/* no two dies disturb each other: the channels, if there are any, cannot be told */
		if (p->lost_low < SHARED_BY_ALL + LATER_OF_TWO * p->jitter)
			return 0;
		m->channel_loss = 1 - 1 / p->lost_low;
		m->nr_channels = 1;
		for (uint32_t g = 0; g < m->nr_groups; g++) {
			m->group_channel[g] = 0;
			m->channel_confidence[g] = 0.9;
		}
		return 0;
	}
	m->channel_loss = 1 - p->lost_low / p->lost_high;
	for (uint32_t pass = 0; !rc && left && pass < PROBE_PASSES; pass++)
		rc = one_pass(p, d, &left, err);
	return rc;
}

int probe_channels(struct probe *p, struct zns_err *err)
{
	uint32_t n = p->map->nr_groups;
	struct dies d = { .zone = calloc(n, sizeof(*d.zone)), .first = calloc(n, sizeof(*d.first)),
			  .list = calloc(n, sizeof(*d.list)) };
	int rc = 0;

	p->solo_ns = calloc(p->nr, sizeof(*p->solo_ns));
	if (!d.zone || !d.first || !d.list || !p->solo_ns)
		rc = zns_fail(err, -ENOMEM, "no memory for %u groups", n);
	for (uint32_t g = 0; !rc && g < n; g++)
		d.zone[g] = representative(p, g);
	if (!rc && n > 1)
		rc = run(p, &d, err);
	if (!rc && n > 1) {
		for (uint32_t g = 0; g < n; g++)
			d.list[g] = d.zone[g];
		for (uint32_t g = 0; !rc && g < n; g++)
			if (d.list[g] != ZNS_PROBE_NONE)
				rc = probe_drop(p, &d.list[g], 1, err);
	}
	free(p->solo_ns);
	p->solo_ns = NULL;
	free(d.zone);
	free(d.first);
	free(d.list);
	return rc;
}
