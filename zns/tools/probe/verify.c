/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Does a sample still behave as the profile says? */
#include <stdlib.h>
#include <string.h>

#include "probe_priv.h"

#define CHANNEL_PAIRS 24u
#define RATE_LOW 0.8
#define RATE_HIGH 1.25

/* A zone of the group that can be tested, or NONE. */
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

/* Groups that share something slow are stored with what is left of their rate: so many times as long
 * may a set of them take. */
static double stored_load(const struct zns_probe_map *m, const uint32_t *stored)
{
	double load = PROBE_UNTOLD;

	for (uint32_t g = 0; g < m->nr_groups; g++)
		if (stored[g] && m->group_write_mibps[g])
			load = zns_min(load, (double)m->group_write_mibps[g] / stored[g]);
	return load < PROBE_UNTOLD ? zns_max(load, 1.0) : 1;
}

/* The test by which a map is stored. */
static int test_sets(struct probe *p, const uint32_t *stored, uint32_t sample,
		     struct zns_probe_drift *out, struct zns_err *err)
{
	struct probe_index x = { 0 };
	int ret = probe_index_build(p, &x, err);

	if (!ret && !p->map->one_domain)
		ret = probe_set_length(p, &x, err);
	if (!ret)
		ret = probe_group_times(p, &x, err);
	p->load = stored_load(p->map, stored);
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

/* The stored rate of a zone is that of the slowest group: is there still one like it? */
static bool least_changed(const struct zns_probe_map *m, uint32_t usual, double load)
{
	uint32_t least = UINT32_MAX, promised = (uint32_t)zns_min(load * m->zone_write_mibps, 1e9);

	for (uint32_t g = 0; g < m->nr_groups; g++)
		if (m->group_write_mibps[g])
			least = zns_min(least, m->group_write_mibps[g]);
	return changed(promised, usual) && changed(promised, least);
}

/* Does a group no longer have the rate that it is promised with? */
static bool group_slower(const struct zns_probe_map *m, const uint32_t *stored)
{
	for (uint32_t g = 0; g < m->nr_groups; g++)
		if (m->group_write_mibps[g] && m->group_write_mibps[g] < RATE_LOW * stored[g])
			return true;
	return false;
}

static int verify(struct probe *p, uint32_t sample, struct zns_probe_drift *out,
		  struct zns_err *err)
{
	struct zns_probe_map now = { 0 }, *m = p->map;
	cleanup_free uint32_t *stored = calloc(m->nr_groups + 1, sizeof(*stored));
	int ret = zns_probe_alloc(&now, p->nr);

	if (!stored || ret) {
		zns_probe_fini(&now);
		return zns_fail(err, -ENOMEM, "no memory for %u zones", p->nr);
	}
	memcpy(stored, m->group_write_mibps, m->nr_groups * sizeof(*stored));
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
	if (ret || out->domain_changed)
		return ret;
	m->phase = ZNS_PROBE_CHECK;
	ret = test_sets(p, stored, sample, out, err);
	if (!ret)
		out->rates_changed = least_changed(m, out->zone_write_mibps, p->load) ||
				     changed(m->zone_read_mibps, out->zone_read_mibps) ||
				     group_slower(m, stored);
	m->phase = ZNS_PROBE_CHANNELS;
	/* of groups that are wrong no channel can be told */
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
