/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Does a sample still behave as a profile says? */
#include <stdlib.h>
#include <string.h>

#include "probe_priv.h"

#define OTHERS		4u	/* dies that a sampled zone must not be on */
#define CHANNEL_PAIRS	24u
#define RATE_LOW	0.8
#define RATE_HIGH	1.25

/* Another zone of the group that can be tested, or NONE. */
static uint32_t mate(struct probe *p, uint32_t group, uint32_t not)
{
	uint32_t from = probe_random(p, p->nr);

	for (uint32_t k = 0; k < p->nr; k++) {
		uint32_t z = (from + k) % p->nr;

		if (z != not && p->map->zone_group[z] == group && p->kind[z] != KIND_NO)
			return z;
	}
	return ZNS_PROBE_NONE;
}

/* The zone against one of its own group and one of each of some others. */
static int test_zone(struct probe *p, uint32_t zone, bool *right, bool *tested, struct zns_err *err)
{
	struct zns_probe_map *m = p->map;
	uint32_t group = m->zone_group[zone], set[OTHERS + 2] = { zone }, n = 1, own = mate(p, group, zone);
	uint32_t control;
	int rc, same;
	float conf;

	*right = true;
	*tested = false;
	if (own != ZNS_PROBE_NONE)
		set[n++] = own;
	for (uint32_t k = 0; k < 4 * OTHERS && n < zns_min(OTHERS + 2, p->room) && m->nr_groups > 1; k++) {
		uint32_t g = probe_random(p, m->nr_groups), z = g == group ? ZNS_PROBE_NONE : mate(p, g, zone), i;

		for (i = 0; i < n && z != ZNS_PROBE_NONE && m->zone_group[set[i]] != g; i++)
			;
		if (i == n && z != ZNS_PROBE_NONE)
			set[n++] = z;
	}
	rc = probe_need(p, set, n, err);
	for (uint32_t i = 1; !rc && i < n; i++) {
		if (p->kind[zone] == KIND_NO || p->kind[set[i]] == KIND_NO)
			continue;
		/* not its own mate, or two that moved onto one die would go unseen */
		control = i > 1 && i + 1 < n ? set[i + 1] : i > 2 || (i == 1 && n > 2) ? set[2] : ZNS_PROBE_NONE;
		if (control != ZNS_PROBE_NONE && p->kind[control] == KIND_NO)
			control = ZNS_PROBE_NONE;
		rc = probe_same_die(p, zone, set[i], control, false, &same, &conf, err);
		if (rc || same < 0)
			continue;
		*tested = true;
		*right &= same == (m->zone_group[set[i]] == group);
	}
	return rc ? rc : probe_drop(p, set, n, err);
}

static int test_zones(struct probe *p, uint32_t sample, struct zns_probe_drift *out, struct zns_err *err)
{
	cleanup_free bool *seen = calloc(p->nr, sizeof(*seen));
	uint32_t cal[4], n = probe_pick_empty(p, cal, zns_min(p->room, 4u));
	int rc = seen ? probe_need(p, cal, n, err) : zns_fail(err, -ENOMEM, "no memory for %u zones", p->nr);

	if (!rc)
		rc = probe_calibrate_burst(p, cal, n, err);
	if (!rc)
		rc = probe_drop(p, cal, n, err);
	for (uint32_t k = 0; !rc && k < 4 * sample && out->zones_checked < sample; k++) {
		uint32_t zone = probe_random(p, p->nr);
		bool right, tested;

		if (p->map->written > p->budget * 7 / 10)
			break;		/* the rest is for the channels */
		if (seen[zone] || p->kind[zone] == KIND_NO || p->map->zone_group[zone] == ZNS_PROBE_NONE)
			continue;
		seen[zone] = true;
		rc = test_zone(p, zone, &right, &tested, err);
		if (rc)
			break;
		out->zones_checked += tested;
		if (!right && out->zones_moved++ < ZNS_ARRAY_SIZE(out->moved))
			out->moved[out->zones_moved - 1] = zone;
		probe_tick(p, out->zones_checked, sample);
	}
	return rc;
}

/* Pairs of dies: on one channel, and on two. The border between them is what most of them say. */
static int test_channels(struct probe *p, struct zns_probe_drift *out, struct zns_err *err)
{
	const struct zns_probe_map *m = p->map;
	double ratio[2][CHANNEL_PAIRS / 2] = { 0 }, spread, v[CHANNEL_PAIRS / 2], middle[2], border;
	uint32_t n[2] = { 0, 0 };
	int rc = 0;

	for (uint32_t k = 0; !rc && k < 64 * CHANNEL_PAIRS && n[0] + n[1] < CHANNEL_PAIRS; k++) {
		uint32_t ga = probe_random(p, m->nr_groups), gb = probe_random(p, m->nr_groups), zones[2];
		bool one = m->group_channel[ga] == m->group_channel[gb];

		if (ga == gb || n[one] == CHANNEL_PAIRS / 2 || m->group_channel[ga] == ZNS_PROBE_NONE ||
		    m->group_channel[gb] == ZNS_PROBE_NONE)
			continue;
		zones[0] = mate(p, ga, ZNS_PROBE_NONE);
		zones[1] = mate(p, gb, ZNS_PROBE_NONE);
		if (zones[0] == ZNS_PROBE_NONE || zones[1] == ZNS_PROBE_NONE)
			continue;
		rc = probe_need(p, zones, 2, err);
		if (!rc && (p->readable[zones[0]] != p->unit || p->readable[zones[1]] != p->unit))
			continue;
		if (!rc)
			rc = probe_loss(p, zones[0], zones[1], 60, &ratio[one][n[one]], &spread, err);
		if (!rc)
			rc = probe_drop(p, zones, 2, err);
		n[one]++;
	}
	if (rc || !n[0] || !n[1])
		return rc;
	for (int i = 0; i < 2; i++) {
		memcpy(v, ratio[i], n[i] * sizeof(*v));
		middle[i] = probe_median(v, n[i]);
	}
	border = (middle[0] + middle[1]) / 2;
	out->channels_checked = n[0] + n[1];
	for (int i = 0; i < 2; i++)
		for (uint32_t k = 0; k < n[i]; k++)
			out->channels_moved += middle[1] < middle[0] + 0.04 || (ratio[i][k] > border) != i;
	return 0;
}

static bool changed(uint32_t was, uint32_t is)
{
	return was && (is < RATE_LOW * was || is > RATE_HIGH * was);
}

static int verify(struct probe *p, uint32_t sample, struct zns_probe_drift *out, struct zns_err *err)
{
	struct zns_probe_map now = { 0 }, *m = p->map;
	int rc = probe_map_alloc(&now, p->nr);

	if (rc)
		return zns_fail(err, rc, "no memory for %u zones", p->nr);
	/* the rates are measured into a map of their own */
	p->map = &now;
	rc = probe_rates(p, err);
	p->map = m;
	m->written += now.written;
	m->resets += now.resets;
	m->reads += now.reads;
	m->read_bytes += now.read_bytes;
	out->scaling = now.scaling;
	out->domain_changed = now.one_domain != m->one_domain;
	out->zone_write_mibps = now.zone_write_mibps;
	out->zone_read_mibps = now.zone_read_mibps;
	out->rates_changed = changed(m->zone_write_mibps, now.zone_write_mibps) || changed(m->zone_read_mibps, now.zone_read_mibps);
	zns_probe_fini(&now);
	if (rc || m->one_domain || out->domain_changed)
		return rc;
	m->phase = ZNS_PROBE_DIES;
	rc = test_zones(p, sample ? sample : zns_max(64u, 2 * m->nr_groups), out, err);
	m->phase = ZNS_PROBE_CHANNELS;
	if (!rc && m->nr_channels > 1) {
		p->solo_ns = calloc(p->nr, sizeof(*p->solo_ns));
		rc = p->solo_ns ? test_channels(p, out, err) : zns_fail(err, -ENOMEM, "no memory for %u zones", p->nr);
		free(p->solo_ns);
	}
	return rc;
}

int zns_probe_verify(struct zns_dev *dev, const struct zns_probe_params *params, struct zns_probe_map *map, uint32_t sample,
		     struct zns_probe_drift *out, struct zns_err *err)
{
	struct probe p;
	int rc;

	*out = (struct zns_probe_drift) { 0 };
	map->phase = ZNS_PROBE_CALIBRATE;
	rc = probe_begin(&p, dev, params, map, err);
	if (!rc)
		rc = verify(&p, sample, out, err);
	rc = probe_clean(&p, rc, err);
	probe_free(&p);
	return rc;
}
