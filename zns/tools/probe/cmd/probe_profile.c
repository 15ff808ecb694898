/* SPDX-License-Identifier: GPL-2.0-only */
/* Converts between a probe's map and the profile on the device. */
#include <string.h>
#include "probe_cmd.h"
#include "zns/probe.h"

/*
 * Renumbers groups: a group gets the number of an old group if it has most of the old group's
 * zones, since reservations and checkpoints refer to these numbers. @number: by group of @m.
 */
static int number(const struct zns_probe_map *m, const ZnsPb__Profile *old, uint32_t *to)
{
	uint32_t n = m->nr_groups, nr_old = old ? old->n_groups : 0, next = 0;
	cleanup_free uint32_t *size = calloc(n, sizeof(*size)),
			      *count = calloc(nr_old + 1, sizeof(*count));
	cleanup_free bool *taken = calloc(n, sizeof(*taken));

	if (!size || !count || !taken)
		return -ENOMEM;
	for (uint32_t g = 0; g < n; g++) {
		uint32_t best = 0, total = 0;

		to[g] = UINT32_MAX;
		if (!old || old->n_zone_group != m->nr_zones)
			continue;
		memset(count, 0, nr_old * sizeof(*count));
		for (uint32_t z = 0; z < m->nr_zones; z++) {
			if (m->zone_group[z] != g || old->zone_group[z] >= nr_old)
				continue;
			count[old->zone_group[z]]++;
			total++;
		}
		for (uint32_t o = 0; o < nr_old; o++)
			if (count[o] > count[best])
				best = o;
		if (nr_old && best < n && count[best] * 2 > total && !taken[best]) {
			to[g] = best;
			taken[best] = true;
		}
	}
	for (uint32_t g = 0; g < n; g++) {
		if (to[g] != UINT32_MAX)
			continue;
		while (taken[next])
			next++;
		to[g] = next;
		taken[next] = true;
	}
	return 0;
}

static int fill(ZnsPb__Profile *p, const struct zns_probe_map *m, const uint32_t *to)
{
	cleanup_free double *sum = calloc(m->nr_groups + 1, sizeof(*sum));
	cleanup_free uint32_t *n = calloc(m->nr_groups + 1, sizeof(*n));
	char unit[16], method[200];
	bool unknown = false;

	p->groups = calloc(m->nr_groups + 1, sizeof(*p->groups));
	p->group_confidence = calloc(m->nr_groups + 1, sizeof(*p->group_confidence));
	p->zone_group = calloc(m->nr_zones, sizeof(*p->zone_group));
	p->group_write_mibps = calloc(m->nr_groups + 1, sizeof(*p->group_write_mibps));
	p->group_read_mibps = calloc(m->nr_groups + 1, sizeof(*p->group_read_mibps));
	snprintf(
		method, sizeof(method),
		m->one_domain ?
			"measured by writing: %2$.2f times one zone's rate with several zones, units of %1$s" :
			"measured by conflicts of reads, checked by writing; units of %1$s, several zones write %2$.2f times as fast as one",
		zns_format_size(m->unit, unit, sizeof(unit)), m->scaling);
	p->method = strdup(method);
	p->source = strdup(m->one_domain ? "one-domain" : "probe");
	if (!sum || !n || !p->groups || !p->group_confidence || !p->zone_group ||
	    !p->group_write_mibps || !p->group_read_mibps || !p->method || !p->source)
		return -ENOMEM;
	for (uint32_t z = 0; z < m->nr_zones; z++) {
		uint32_t g = m->zone_group[z] == ZNS_PROBE_NONE ? m->nr_groups :
								  to[m->zone_group[z]];

		unknown |= g == m->nr_groups;
		p->zone_group[p->n_zone_group++] = g;
		sum[g] += m->zone_confidence[z];
		n[g]++;
	}
	for (uint32_t g = 0; g < m->nr_groups + unknown; g++) {
		ZnsPb__DieGroup *d = calloc(1, sizeof(*d));

		if (!d)
			return -ENOMEM;
		zns_pb__die_group__init(d);
		d->id = g;
		p->groups[p->n_groups++] = d;
		p->group_confidence[p->n_group_confidence++] = n[g] ? sum[g] / n[g] : 0;
	}
	for (uint32_t g = 0; g < m->nr_groups; g++) {
		ZnsPb__DieGroup *d = p->groups[to[g]];

		d->has_channel = m->group_channel[g] != ZNS_PROBE_NONE;
		d->channel = d->has_channel ? m->group_channel[g] : 0;
		if (d->has_channel)
			p->group_confidence[to[g]] *= m->channel_confidence[g];
	}
	p->n_group_write_mibps = p->n_group_read_mibps = p->n_groups;
	for (uint32_t g = 0; g < m->nr_groups; g++) {
		p->group_write_mibps[to[g]] = m->group_write_mibps[g];
		p->group_read_mibps[to[g]] = m->group_read_mibps[g];
	}
	p->has_unknown_group = unknown;
	p->unknown_group = m->nr_groups;
	return 0;
}

int probe_to_profile(const struct zns_probe_map *m, const ZnsPb__Profile *old, ZnsPb__Profile **out,
		     struct zns_err *err)
{
	cleanup_free uint32_t *to = calloc(m->nr_groups + 1, sizeof(*to));
	ZnsPb__Profile *p = calloc(1, sizeof(*p));
	int ret = to && p ? number(m, old, to) : -ENOMEM;

	if (p)
		zns_pb__profile__init(p);
	if (!ret)
		ret = fill(p, m, to);
	if (ret) {
		if (p)
			zns_pb__profile__free_unpacked(p, NULL);
		return zns_fail_sys(err, ret, "cannot make the profile");
	}
	p->zone_write_mibps = m->zone_write_mibps;
	p->zone_read_mibps = m->zone_read_mibps;
	p->confidence = m->confidence;
	p->has_scaling = 1;
	p->scaling = m->scaling;
	p->has_device_write_mibps = m->device_write_mibps > 0;
	p->device_write_mibps = m->device_write_mibps;
	p->has_load = 1;
	p->load = zns_max(m->load, 1.0);
	p->has_created_ns = 1;
	p->created_ns = zns_now_ns();
	*out = p;
	return 0;
}

int probe_from_profile(const ZnsPb__Profile *p, struct zns_probe_map *m, struct zns_err *err)
{
	uint32_t nr = p->n_zone_group, channels = 0;

	if (zns_probe_alloc(m, nr))
		return zns_fail(err, -ENOMEM, "no memory for the profile");
	m->nr_groups = p->n_groups;
	for (uint32_t z = 0; z < nr; z++) {
		bool unknown = p->has_unknown_group && p->zone_group[z] == p->unknown_group;

		m->zone_group[z] = unknown ? ZNS_PROBE_NONE : p->zone_group[z];
	}
	for (uint32_t g = 0; g < p->n_groups; g++) {
		m->group_channel[g] = p->groups[g]->has_channel ? p->groups[g]->channel :
								  ZNS_PROBE_NONE;
		if (p->groups[g]->has_channel)
			channels = zns_max(channels, p->groups[g]->channel + 1);
		if (g < p->n_group_write_mibps)
			m->group_write_mibps[g] = p->group_write_mibps[g];
		if (g < p->n_group_read_mibps)
			m->group_read_mibps[g] = p->group_read_mibps[g];
	}
	m->nr_channels = channels;
	m->one_domain = p->n_groups - !!p->has_unknown_group == 1;
	m->load = p->has_load ? p->load : 0;
	m->zone_write_mibps = p->zone_write_mibps;
	m->zone_read_mibps = p->zone_read_mibps;
	m->device_write_mibps = p->has_device_write_mibps ? p->device_write_mibps : 0;
	return 0;
}
