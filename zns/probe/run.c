/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A probe from begin to end: its phases, its numbering, what it reports. */
#include <stdlib.h>
#include <string.h>

#include "probe_priv.h"

#define UNIT_DEFAULT	KIB(192)
#define TICK_NS		UINT64_C(200000000)
#define CHECKPOINT_NS	UINT64_C(2000000000)

uint32_t zns_probe_unit(const struct zns_geometry *geo, uint32_t wanted)
{
	uint64_t most = zns_max(zns_align_down(geo->zone_capacity / 8, geo->block_size), (uint64_t)geo->block_size);

	return zns_min(wanted ? zns_align_up(wanted, geo->block_size) : UNIT_DEFAULT, most);
}

uint64_t zns_probe_budget(const struct zns_geometry *geo, uint32_t unit)
{
	return zns_max(geo->nr_zones * geo->zone_capacity / 100, (uint64_t)geo->nr_zones * 8 * unit);
}

int probe_map_alloc(struct zns_probe_map *m, uint32_t nr)
{
	m->nr_zones = nr;
	m->zone_group = calloc(nr, sizeof(*m->zone_group));
	m->zone_confidence = calloc(nr, sizeof(*m->zone_confidence));
	m->pivot = calloc(nr, sizeof(*m->pivot));
	m->group_channel = calloc(nr, sizeof(*m->group_channel));
	m->channel_confidence = calloc(nr, sizeof(*m->channel_confidence));
	m->tested = calloc(nr, sizeof(*m->tested));
	if (!m->zone_group || !m->zone_confidence || !m->pivot || !m->group_channel || !m->channel_confidence || !m->tested) {
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
	free(m->group_channel);
	free(m->channel_confidence);
	free(m->tested);
	*m = (struct zns_probe_map) { 0 };
}

static void save_state(struct probe *p, uint64_t now)
{
	void *state;
	size_t len;

	p->last_checkpoint = now;
	if (!p->par->checkpoint || zns_probe_save(p->map, &state, &len))
		return;
	p->par->checkpoint(p->par->arg, state, len);
	free(state);
}

void probe_tick(struct probe *p, uint32_t done, uint32_t total)
{
	uint64_t now = zns_mono_ns();
	double spent = (now - p->phase_wall0) / 1e9;

	if (now - p->last_checkpoint >= CHECKPOINT_NS && p->map->phase != ZNS_PROBE_CALIBRATE)
		save_state(p, now);
	if (!p->par->progress || (now - p->last_progress < TICK_NS && done != total))
		return;
	p->last_progress = now;
	p->par->progress(p->par->arg, &(struct zns_probe_progress) {
		.phase = p->map->phase,
		.done = zns_min(done, total),
		.total = total,
		.groups = p->map->nr_groups,
		.written = p->map->written,
		.budget = p->budget,
		.left_s = done && spent > 0.5 ? spent / done * (total - zns_min(done, total)) : -1,
	});
}

void probe_count(struct probe *p)
{
	struct zns_probe_map *m = p->map;
	uint32_t usable = 0;
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
	usable -= zns_min(usable, m->nr_failed);
	m->confidence = usable ? zns_min(sum / usable, 1.0) : 0;
}

/* Groups in the order of their first zones, channels in that of their first groups. */
static int number_groups(struct zns_probe_map *m, struct zns_err *err)
{
	uint32_t n = m->nr_groups, next = 0;
	cleanup_free uint32_t *to = malloc(n * sizeof(*to)), *pivot = calloc(n, sizeof(*pivot)),
			      *channel = calloc(n, sizeof(*channel)), *to_channel = malloc(n * sizeof(*to_channel));
	cleanup_free float *sure = calloc(n, sizeof(*sure));

	if (!to || !pivot || !channel || !sure || !to_channel)
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
	return 0;
}

static void enter_phase(struct probe *p, enum zns_probe_phase phase)
{
	p->map->phase = phase;
	p->phase_wall0 = zns_mono_ns();
	p->last_progress = 0;
	if (phase != ZNS_PROBE_DONE)
		save_state(p, p->phase_wall0);
}

static int phases(struct probe *p, struct zns_err *err)
{
	struct zns_probe_map *m = p->map;
	int rc = 0;

	if (m->phase == ZNS_PROBE_CALIBRATE) {
		rc = probe_rates(p, err);
		if (rc)
			return rc;
		if (!m->one_domain)
			enter_phase(p, ZNS_PROBE_DIES);
	}
	if (m->phase == ZNS_PROBE_DIES) {
		rc = probe_dies(p, err);
		if (rc)
			return rc;
		if (!m->nr_groups)
			return zns_fail(err, -ENODATA, "%s: no zone could be tested", p->d->path);
		if (m->nr_groups == 1)
			return zns_fail(err, -EPROTO,
					"cannot be measured: zones together are written %.2f times as fast as one, so they are on several dies, but every one seems to wait for every other when it is read; nothing is stored: let the device and this host be idle and probe again",
					m->scaling);
		enter_phase(p, ZNS_PROBE_CHANNELS);
	}
	if (m->one_domain)
		return 0;
	if (m->phase == ZNS_PROBE_CHANNELS) {
		rc = probe_channels(p, err);
		if (rc)
			return rc;
		enter_phase(p, ZNS_PROBE_CHECK);
	}
	rc = probe_check(p, err);
	if (!rc)
		rc = probe_retest(p, err);
	return rc ? rc : probe_ceiling(p, err);
}

int zns_probe_run(struct zns_dev *dev, const struct zns_probe_params *params, struct zns_probe_map *map, struct zns_err *err)
{
	struct probe p;
	int rc = probe_begin(&p, dev, params, map, err);

	if (!rc)
		rc = phases(&p, err);
	if (!rc)
		rc = number_groups(map, err);
	if (p.kind)
		probe_count(&p);
	if (!rc)
		rc = probe_judge(&p, err);
	if (!rc)
		enter_phase(&p, ZNS_PROBE_DONE);
	rc = probe_clean(&p, rc, err);
	/* what is doubted is nothing to go on with */
	if (rc && rc != -EAGAIN && rc != -EPROTO && map->phase != ZNS_PROBE_CALIBRATE && map->phase != ZNS_PROBE_DONE && map->zone_group)
		save_state(&p, zns_mono_ns());
	probe_free(&p);
	return rc;
}
