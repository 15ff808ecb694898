/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Does a sample still behave as the profile says? */
#include <stdlib.h>
#include <string.h>

#include "probe_priv.h"

#define EACH 12u /* zones per group: a group of two dies passes once in 4,000 */
#define UNTOLD_MAX 0.2
#define CHANNEL_PAIRS 24u
#define RATE_LOW 0.8
#define RATE_HIGH 1.25

struct look {
	/* groups in random order; one zone for each group of a chunk */
	uint32_t *groups, *reps, *list, *late;
	uint32_t nr_reps;
	bool *seen;
	uint32_t tests, untold;
};

/* Another zone of the group that is testable and untested, or NONE. */
static uint32_t mate(struct probe *p, const struct look *l, uint32_t group, uint32_t not )
{
	uint32_t from = probe_random(p, p->nr);

	for (uint32_t k = 0; k < p->nr; k++) {
		uint32_t z = (from + k) % p->nr;

		if (z != not &&p->map->zone_group[z] == group && p->kind[z] != KIND_NO &&
		    (!l || !l->seen[z]))
			return z;
	}
	return ZNS_PROBE_NONE;
}

/* Finds two groups that are one die: compares each group's zone with all others. */
static int compare_groups(struct probe *p, struct look *l, struct zns_probe_drift *out,
			  struct zns_err *err)
{
	int ret = 0;

	for (uint32_t i = 0; !ret && i < l->nr_reps; i++) {
		uint32_t nr_late, n = l->nr_reps - i - 1;
		bool told = true;

		if (!n)
			break;
		ret = probe_suspects(p, l->reps[i], l->reps + i + 1, n, l->late, &nr_late, &told,
				     err);
		l->tests++;
		l->untold += !told;
		for (uint32_t k = 0; !ret && k < nr_late; k++) {
			uint32_t other = l->reps[i + 1 + l->late[k]];
			int same;
			float conf;

			ret = probe_same_die(p, l->reps[i], other, false, &same, &conf, err);
			l->untold += !ret && same < 0;
			if (!ret && same == 1 && !out->groups_joined++) {
				out->joined[0] = p->map->zone_group[l->reps[i]];
				out->joined[1] = p->map->zone_group[other];
			}
		}
	}
	return ret;
}

/* Tests one more zone of a group: it must be on its group's die and on no other. */
static int test_zone(struct probe *p, struct look *l, uint32_t at, uint32_t sample,
		     struct zns_probe_drift *out, struct zns_err *err)
{
	uint32_t own = l->reps[at], zone = mate(p, l, p->map->zone_group[own], own), n = 0;
	int ret, right;

	/* keep the rest for the channels */
	if (zone == ZNS_PROBE_NONE || out->zones_checked >= sample ||
	    p->map->written > p->budget * 7 / 10)
		return 0;
	l->seen[zone] = true;

	for (uint32_t i = 0; i < l->nr_reps; i++)
		if (i != at && p->kind[l->reps[i]] != KIND_NO)
			l->list[n++] = l->reps[i];
	ret = probe_need(p, &zone, 1, err);
	if (ret || p->kind[zone] == KIND_NO || p->kind[own] == KIND_NO)
		return ret;
	ret = probe_is_placed(p, zone, own, l->list, n, l->late, &right, err);
	if (!ret)
		ret = probe_drop(p, &zone, 1, err);
	if (ret)
		return ret;
	l->tests++;
	l->untold += right < 0;
	out->zones_checked += right >= 0;
	if (!right && out->zones_moved++ < ZNS_ARRAY_SIZE(out->moved))
		out->moved[out->zones_moved - 1] = zone;
	probe_tick(p, zns_min(out->zones_checked, sample), sample);
	return 0;
}

/* Tests @nr groups from @from on, all against all. */
static int test_chunk(struct probe *p, struct look *l, uint32_t from, uint32_t nr, uint32_t sample,
		      struct zns_probe_drift *out, struct zns_err *err)
{
	uint32_t each = (sample + p->map->nr_groups - 1) / p->map->nr_groups;
	int ret;

	l->nr_reps = 0;
	for (uint32_t i = from; i < from + nr; i++) {
		uint32_t z = mate(p, l, l->groups[i], ZNS_PROBE_NONE);

		if (z != ZNS_PROBE_NONE)
			l->reps[l->nr_reps++] = z;
	}
	ret = probe_need(p, l->reps, l->nr_reps, err);
	if (!ret)
		ret = compare_groups(p, l, out, err);
	for (uint32_t k = 0; k < each; k++)
		for (uint32_t i = 0; !ret && i < l->nr_reps; i++)
			ret = test_zone(p, l, i, sample, out, err);
	out->groups_checked += l->nr_reps;
	return ret ? ret : probe_drop(p, l->reps, l->nr_reps, err);
}

static int test_map(struct probe *p, struct look *l, uint32_t sample, struct zns_probe_drift *out,
		    struct zns_err *err)
{
	uint32_t most = zns_max(p->room - 1 - p->room / 8, 1u), nr = p->map->nr_groups;
	int ret = probe_calibrate(p, err);

	for (uint32_t g = 0; g < nr; g++) {
		uint32_t k = probe_random(p, g + 1);

		l->groups[g] = l->groups[k];
		l->groups[k] = g;
	}
	for (uint32_t at = 0; !ret && at < nr && p->map->written <= p->budget * 7 / 10; at += most)
		ret = test_chunk(p, l, at, zns_min(most, nr - at), sample, out, err);
	if (!ret && l->untold > UNTOLD_MAX * l->tests)
		ret = zns_fail(
			err, -EAGAIN,
			"cannot be verified: %u of %u tests could not be told, since something hits the whole device or this host: let both be idle and try again",
			l->untold, l->tests);
	return ret;
}

static int test_zones(struct probe *p, uint32_t sample, struct zns_probe_drift *out,
		      struct zns_err *err)
{
	size_t n = p->nr + 1;
	cleanup_free uint32_t *v = calloc(4 * n, sizeof(*v));
	cleanup_free bool *taken = calloc(n, sizeof(*taken));
	struct look l = {
		.groups = v, .reps = v + n, .list = v + 2 * n, .late = v + 3 * n, .seen = taken
	};

	if (!v || !taken)
		return zns_fail(err, -ENOMEM, "no memory for %u zones", p->nr);
	p->doubt_map = true; /* no group is a control for another one */
	return test_map(p, &l, sample, out, err);
}

/* Tests pairs of dies on one channel and on two. The majority defines the border between them. */
static int test_channels(struct probe *p, struct zns_probe_drift *out, struct zns_err *err)
{
	const struct zns_probe_map *m = p->map;
	double ratio[2][CHANNEL_PAIRS / 2] = { 0 }, spread = PROBE_UNTOLD, v[CHANNEL_PAIRS / 2],
					middle[2], border;
	uint32_t n[2] = { 0, 0 };
	int ret = 0;

	for (uint32_t k = 0; !ret && k < 64 * CHANNEL_PAIRS && n[0] + n[1] < CHANNEL_PAIRS; k++) {
		uint32_t ga = probe_random(p, m->nr_groups), gb = probe_random(p, m->nr_groups),
			 zones[2];
		bool one = m->group_channel[ga] == m->group_channel[gb];

		if (ga == gb || n[one] == CHANNEL_PAIRS / 2 ||
		    m->group_channel[ga] == ZNS_PROBE_NONE ||
		    m->group_channel[gb] == ZNS_PROBE_NONE)
			continue;
		zones[0] = mate(p, NULL, ga, ZNS_PROBE_NONE);
		zones[1] = mate(p, NULL, gb, ZNS_PROBE_NONE);
		if (zones[0] == ZNS_PROBE_NONE || zones[1] == ZNS_PROBE_NONE)
			continue;
		ret = probe_need(p, zones, 2, err);
		if (!ret && (p->readable[zones[0]] != p->unit || p->readable[zones[1]] != p->unit))
			continue;
		if (!ret)
			ret = probe_loss(p, zones[0], zones[1], 48, &ratio[one][n[one]], &spread,
					 err);
		if (!ret)
			ret = probe_drop(p, zones, 2, err);
		n[one] += spread < PROBE_UNTOLD; /* otherwise it was disturbed each time */
	}
	if (ret || !n[0] || !n[1])
		return ret;
	for (int i = 0; i < 2; i++) {
		memcpy(v, ratio[i], n[i] * sizeof(*v));
		middle[i] = probe_median(v, n[i]);
	}
	border = (middle[0] + middle[1]) / 2;
	out->channels_checked = n[0] + n[1];
	for (int i = 0; i < 2; i++)
		for (uint32_t k = 0; k < n[i]; k++)
			out->channels_moved += middle[1] < middle[0] + 0.04 ||
					       (ratio[i][k] > border) != i;
	return 0;
}

static bool changed(uint32_t was, uint32_t is)
{
	return was && (is < RATE_LOW * was || is > RATE_HIGH * was);
}

static int verify(struct probe *p, uint32_t sample, struct zns_probe_drift *out,
		  struct zns_err *err)
{
	struct zns_probe_map now = { 0 }, *m = p->map;
	int ret = zns_probe_alloc(&now, p->nr);

	if (ret)
		return zns_fail(err, ret, "no memory for %u zones", p->nr);
	/* measure the rates into a separate map */
	p->map = &now;
	ret = probe_rates(p, err);
	p->map = m;
	m->written += now.written;
	m->resets += now.resets;
	m->reads += now.reads;
	m->read_bytes += now.read_bytes;
	out->scaling = now.scaling;
	out->domain_changed = now.one_domain != m->one_domain;
	out->zone_write_mibps = now.zone_write_mibps;
	out->zone_read_mibps = now.zone_read_mibps;
	out->rates_changed = changed(m->zone_write_mibps, now.zone_write_mibps) ||
			     changed(m->zone_read_mibps, now.zone_read_mibps);
	zns_probe_fini(&now);
	if (ret || m->one_domain || out->domain_changed)
		return ret;
	m->phase = ZNS_PROBE_DIES;
	ret = test_zones(p, sample ? sample : zns_max(64u, EACH * m->nr_groups), out, err);
	m->phase = ZNS_PROBE_CHANNELS;
	if (!ret && m->nr_channels > 1) {
		p->solo_ns = calloc(p->nr, sizeof(*p->solo_ns));
		ret = p->solo_ns ? test_channels(p, out, err) :
				   zns_fail(err, -ENOMEM, "no memory for %u zones", p->nr);
		free(p->solo_ns);
	}
	return ret;
}

int zns_probe_verify(struct zns_dev *dev, const struct zns_probe_params *params,
		     struct zns_probe_map *map, uint32_t sample, struct zns_probe_drift *out,
		     struct zns_err *err)
{
	struct probe p;
	int ret;

	*out = (struct zns_probe_drift){ 0 };
	map->phase = ZNS_PROBE_CALIBRATE;
	ret = probe_begin(&p, dev, params, map, err);
	if (!ret)
		ret = verify(&p, sample, out, err);
	ret = probe_clean(&p, ret, err);
	probe_free(&p);
	return ret;
}
