/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The map that a probe makes: its arrays, the numbers of its groups, and how certain it is. Also
 * the unit and the budget for a device.
 */
#include <stdlib.h>
#include <string.h>

#include "probe_priv.h"

#define LEFT_OUT 0.05 /* share of all zones that may have data and stay without a group */

#define UNIT_DEFAULT KIB(192)
#define SETS 64u /* number of sets of several groups that the default budget covers */
/* if fewer zones than this may be active, sets are small, and more of them are needed */
#define FEW_ACTIVE 16u
/* sets that the default budget covers in addition if fewer than FEW_ACTIVE zones may be active */
#define SETS_OF_FEW 256u

uint32_t zns_probe_unit(const struct zns_geometry *geo, uint32_t wanted)
{
	uint64_t most = zns_max(zns_align_down(geo->zone_capacity / 8, geo->block_size),
				(uint64_t)geo->block_size);

	return zns_min(wanted ? zns_align_up(wanted, geo->block_size) : UNIT_DEFAULT, most);
}

uint64_t zns_probe_budget(const struct zns_geometry *geo, uint32_t unit)
{
	uint64_t each = 8, set = 128, sample = probe_sample_size(geo->nr_zones) + SETS;

	if (geo->max_active && geo->max_active < FEW_ACTIVE)
		sample += SETS_OF_FEW;

	return zns_max(geo->nr_zones * geo->zone_capacity / 100,
		       (geo->nr_zones * each + sample * set) * unit);
}

int zns_probe_alloc(struct zns_probe_map *m, uint32_t nr)
{
	m->nr_zones = nr;
	m->zone_group = calloc(nr, sizeof(*m->zone_group));
	m->zone_confidence = calloc(nr, sizeof(*m->zone_confidence));
	m->pivot = calloc(nr, sizeof(*m->pivot));
	m->group_write_mibps = calloc(nr, sizeof(*m->group_write_mibps));
	m->group_read_mibps = calloc(nr, sizeof(*m->group_read_mibps));
	m->group_channel = calloc(nr, sizeof(*m->group_channel));
	m->channel_confidence = calloc(nr, sizeof(*m->channel_confidence));
	m->tested = calloc(nr, sizeof(*m->tested));
	if (!m->zone_group || !m->zone_confidence || !m->pivot || !m->group_write_mibps ||
	    !m->group_read_mibps || !m->group_channel || !m->channel_confidence || !m->tested) {
		zns_probe_fini(m);
		return -ENOMEM;
	}
	memset(m->zone_group, 0xff, nr * sizeof(*m->zone_group));
	memset(m->group_channel, 0xff, nr * sizeof(*m->group_channel));
	return 0;
}

void zns_probe_fini(struct zns_probe_map *m)
{
	free(m->zone_group);
	free(m->zone_confidence);
	free(m->pivot);
	free(m->group_write_mibps);
	free(m->group_read_mibps);
	free(m->group_channel);
	free(m->channel_confidence);
	free(m->tested);
	*m = (struct zns_probe_map){ 0 };
}

/*
 * Returns the number of zones with other users' data that stay unknown: reads do not show their
 * die, and they cannot be written. No promise depends on them. So a few of them do not lower the
 * confidence in a map that has predicted every set of a full sample. If there are more, returns 0.
 */
static uint32_t left_out(const struct probe *p)
{
	uint32_t n = 0;

	for (uint32_t z = 0; z < p->nr && p->proved; z++)
		n += p->kind[z] == KIND_DATA && p->map->zone_group[z] == ZNS_PROBE_NONE;
	return n <= LEFT_OUT * p->nr ? n : 0;
}

void probe_count(struct probe *p)
{
	struct zns_probe_map *m = p->map;
	uint32_t usable = 0, out = left_out(p);
	double sum = 0;

	m->nr_unknown = 0;
	for (uint32_t z = 0; z < p->nr; z++) {
		if (p->kind[z] == KIND_NO && m->zone_group[z] == ZNS_PROBE_NONE && !p->given_up[z])
			continue;
		usable++;
		m->nr_unknown += m->zone_group[z] == ZNS_PROBE_NONE;
		if (!m->one_domain)
			m->zone_confidence[z] = zns_min((double)m->zone_confidence[z], m->right);
		if (m->zone_group[z] != ZNS_PROBE_NONE)
			sum += m->one_domain ? m->zone_confidence[z] : m->right;
	}
	usable -= zns_min(usable, m->nr_failed + out);
	m->confidence = usable ? zns_min(sum / usable, 1.0) : 0;
}

/*
 * Numbers groups in the order of their first zones, and channels in the order of their first
 * groups.
 */
int probe_number_groups(struct zns_probe_map *m, struct zns_err *err)
{
	uint32_t n = m->nr_groups, next = 0;
	cleanup_free uint32_t *to = malloc(n * sizeof(*to)), *pivot = calloc(n, sizeof(*pivot)),
			      *channel = calloc(n, sizeof(*channel)),
			      *to_channel = malloc(n * sizeof(*to_channel)),
			      *rate = calloc(n, sizeof(*rate)), *read = calloc(n, sizeof(*read));
	cleanup_free float *sure = calloc(n, sizeof(*sure));

	if (!to || !pivot || !channel || !sure || !to_channel || !rate || !read)
		return zns_fail(err, -ENOMEM, "no memory for %u groups", n);
	memset(to, 0xff, n * sizeof(*to));
	memset(to_channel, 0xff, n * sizeof(*to_channel));
	for (uint32_t z = 0; z < m->nr_zones; z++) {
		uint32_t g = m->zone_group[z];

		if (g == ZNS_PROBE_NONE)
			continue;
		if (to[g] == ZNS_PROBE_NONE)
			to[g] = next++;
		m->zone_group[z] = to[g];
	}
	for (uint32_t g = 0; g < n; g++) {
		pivot[to[g]] = m->pivot[g];
		channel[to[g]] = m->group_channel[g];
		sure[to[g]] = m->channel_confidence[g];
		rate[to[g]] = m->group_write_mibps[g];
		read[to[g]] = m->group_read_mibps[g];
	}
	next = 0;
	for (uint32_t g = 0; g < n; g++) {
		if (channel[g] == ZNS_PROBE_NONE)
			continue;
		if (to_channel[channel[g]] == ZNS_PROBE_NONE)
			to_channel[channel[g]] = next++;
		channel[g] = to_channel[channel[g]];
	}
	memcpy(m->pivot, pivot, n * sizeof(*pivot));
	memcpy(m->group_channel, channel, n * sizeof(*channel));
	memcpy(m->channel_confidence, sure, n * sizeof(*sure));
	memcpy(m->group_write_mibps, rate, n * sizeof(*rate));
	memcpy(m->group_read_mibps, read, n * sizeof(*read));
	return 0;
}
