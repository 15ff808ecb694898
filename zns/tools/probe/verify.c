/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Does a sample of the device still behave as the profile says? */
#include <stdlib.h>
#include <string.h>

#include "probe_priv.h"

#define CHANNEL_PAIRS 24u
#define RATE_LOW 0.8
#define RATE_HIGH 1.25

/* Returns a zone of the group that can be tested, or NONE. */
static uint32_t member(struct probe *p, uint32_t group)
{
	uint32_t from = probe_random(p, p->nr);

	for (uint32_t k = 0; k < p->nr; k++) {
		uint32_t z = (from + k) % p->nr;

		if (p->map->zone_group[z] == group && p->kind[z] != KIND_NO)
			return z;
	}
	return ZNS_PROBE_NONE;
}

/*
 * Tests pairs of dies that share a channel according to the profile, and pairs that do not. The
 * border is half way between the medians of the two kinds.
 */
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
		zones[0] = member(p, ga);
		zones[1] = member(p, gb);
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
		/* With a larger spread the pair was disturbed in each try. */
		n[one] += spread < PROBE_UNTOLD;
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

/* The rates of groups in the profile; the map gets those that are measured now. */
struct stored {
	uint32_t *write, *read;
};

/*
 * If groups share something slow, the profile has the rate that they have together, and the load:
 * how many times as long as one alone a set of them may take. Older programs did not store the
 * load. Then it is computed from the present rates, assuming that the drive has not become faster.
 */
static double stored_load(const struct zns_probe_map *m, const uint32_t *stored)
{
	double load = PROBE_UNTOLD;

	if (m->load >= 1)
		return m->load;
	for (uint32_t g = 0; g < m->nr_groups; g++)
		if (stored[g] && m->group_write_mibps[g])
			load = zns_min(load, (double)m->group_write_mibps[g] / stored[g]);
	return load < PROBE_UNTOLD ? zns_max(load, 1.0) : 1;
}

/* The test needs the rates, so they come first; of a given budget most is left for the test. */
static int rates_first(struct probe *p, const struct probe_index *x, struct zns_err *err)
{
	uint64_t written = p->map->written, budget = p->budget;
	bool raised;
	int ret;

	if (!p->par->budget)
		return probe_group_rates(p, x, &raised, err);
	p->budget = written + (budget - zns_min(budget, written)) / 4;
	ret = probe_group_rates(p, x, &raised, err);
	p->budget = budget;
	return ret;
}

/* Runs the test that a map must pass before it is stored. */
static int test_sets(struct probe *p, const struct stored *stored, uint32_t sample,
		     struct zns_probe_drift *out, struct zns_err *err)
{
	struct probe_index x = { 0 };
	int ret = probe_index_build(p, &x, err);

	/* the domain may have been found with long sets only */
	if (p->map->one_domain)
		p->set_units = probe_long_units(p);
	else if (!ret)
		ret = probe_set_length(p, &x, err);
	if (!ret)
		ret = probe_group_times(p, &x, err);
	if (!ret)
		ret = rates_first(p, &x, err);
	p->load = stored_load(p->map, stored->write);
	if (!ret)
		ret = probe_predict(p, sample, out, err);
	probe_index_free(&x);
	for (int i = 0; !ret && i < ZNS_PROBE_CLAIMS; i++) {
		out->sets_checked += p->map->seen[i].sets;
		out->sets_wrong += p->map->seen[i].wrong;
	}
	if (p->map->one_domain && out->sets_wrong)
		out->domain_changed = true;
	return ret;
}

static bool changed(uint32_t was, uint32_t is)
{
	return was && (is < RATE_LOW * was || is > RATE_HIGH * was);
}

/*
 * The stored rate of a zone is either the usual one or that of the slowest group. Have both
 * changed?
 */
static bool least_changed(const struct zns_probe_map *m, uint32_t usual, double load)
{
	uint32_t least = UINT32_MAX, promised = (uint32_t)zns_min(load * m->zone_write_mibps, 1e9);

	for (uint32_t g = 0; g < m->nr_groups; g++)
		if (m->group_write_mibps[g])
			least = zns_min(least, m->group_write_mibps[g]);
	return changed(promised, usual) && changed(promised, least);
}

/* Is one of @nr groups slower than @load times its stored rate? */
static bool slower(const uint32_t *now, const uint32_t *was, uint32_t nr, double load)
{
	for (uint32_t g = 0; g < nr; g++)
		if (now[g] && now[g] < RATE_LOW * load * was[g])
			return true;
	return false;
}

/*
 * Older programs stored no rates of groups, but only the median of four random zones, which may be
 * any rate between those of the slowest and the fastest group.
 */
static bool read_changed(const struct zns_probe_map *m, const uint32_t *stored, uint32_t usual)
{
	uint32_t low = UINT32_MAX, high = 0, known = 0;

	for (uint32_t g = 0; g < m->nr_groups; g++) {
		known += stored[g] > 0;
		high = zns_max(high, m->group_read_mibps[g]);
		if (m->group_read_mibps[g])
			low = zns_min(low, m->group_read_mibps[g]);
	}
	if (!known)
		return m->zone_read_mibps && high &&
		       (high < RATE_LOW * m->zone_read_mibps ||
			low > RATE_HIGH * m->zone_read_mibps);
	return changed(m->zone_read_mibps, usual) ||
	       slower(m->group_read_mibps, stored, m->nr_groups, 1);
}

static int verify(struct probe *p, uint32_t sample, struct zns_probe_drift *out,
		  struct zns_err *err)
{
	struct zns_probe_map now = { 0 }, *m = p->map;
	cleanup_free uint32_t *write = calloc(m->nr_groups + 1, sizeof(*write)),
			      *read = calloc(m->nr_groups + 1, sizeof(*read));
	int ret = zns_probe_alloc(&now, p->nr);
	bool one_domain;

	if (!write || !read || ret) {
		zns_probe_fini(&now);
		return zns_fail(err, -ENOMEM, "no memory for %u zones", p->nr);
	}
	memcpy(write, m->group_write_mibps, m->nr_groups * sizeof(*write));
	memcpy(read, m->group_read_mibps, m->nr_groups * sizeof(*read));
	/* measure the rates into a separate map */
	p->map = &now;
	ret = probe_rates(p, err);
	/* the domain may have been found with long commands only */
	if (!ret && m->one_domain && !now.one_domain)
		ret = probe_long_writes(p, err);
	p->map = m;
	m->written += now.written;
	m->resets += now.resets;
	m->reads += now.reads;
	m->read_bytes += now.read_bytes;
	out->scaling = now.scaling;
	out->zone_write_mibps = now.zone_write_mibps;
	out->zone_read_mibps = now.zone_read_mibps;
	one_domain = now.one_domain;
	out->domain_changed = m->one_domain && !one_domain;
	out->rates_changed = changed(m->zone_write_mibps, now.zone_write_mibps) ||
			     changed(m->zone_read_mibps, now.zone_read_mibps);
	zns_probe_fini(&now);
	if (ret || out->domain_changed)
		return ret;
	m->phase = ZNS_PROBE_CHECK;
	ret = test_sets(p, &(struct stored){ write, read }, sample, out, err);
	/*
	 * random zones may all be on a slow die: this is a change only if sets of the map's groups
	 * are wrong too
	 */
	out->domain_changed |= one_domain && !m->one_domain && out->sets_wrong;
	if (!ret) {
		out->zone_read_mibps = probe_usual(m, m->group_read_mibps);
		out->rates_changed = least_changed(m, out->zone_write_mibps, p->load) ||
				     read_changed(m, read, out->zone_read_mibps) ||
				     slower(m->group_write_mibps, write, m->nr_groups, p->load);
	}
	m->phase = ZNS_PROBE_CHANNELS;
	/* if groups are wrong, their channels cannot be tested */
	if (!ret && m->nr_channels > 1 && !out->sets_wrong) {
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
