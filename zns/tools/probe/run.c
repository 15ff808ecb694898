/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The phases of a probe, from begin to end. */
#include "probe_priv.h"

static void enter_phase(struct probe *p, enum zns_probe_phase phase)
{
	p->map->phase = phase;
	p->phase_wall0 = zns_mono_ns();
	p->last_progress = 0;
	if (phase != ZNS_PROBE_DONE)
		probe_save_state(p, p->phase_wall0);
}

static int phases(struct probe *p, struct zns_err *err)
{
	struct zns_probe_map *m = p->map;
	int ret = 0;

	if (m->phase == ZNS_PROBE_CALIBRATE) {
		ret = probe_rates(p, err);
		if (!ret && m->one_domain)
			ret = probe_check(p, err);
		if (ret)
			return ret;
		if (!m->one_domain)
			enter_phase(p, ZNS_PROBE_DIES);
	}
	if (m->phase == ZNS_PROBE_DIES) {
		ret = probe_dies(p, err);
		if (ret)
			return ret;
		if (!m->nr_groups)
			return zns_fail(err, -ENODATA, "%s: no zone could be tested", p->d->path);
		if (m->nr_groups == 1)
			return zns_fail(
				err, -EAGAIN,
				"cannot be measured: zones together are written %.2f times as fast as one, so they are on several dies, but every one seems to wait for every other when it is read; nothing is stored: let the device and this host be idle and probe again",
				m->scaling);
		enter_phase(p, ZNS_PROBE_CHANNELS);
	}
	if (m->one_domain)
		return 0;
	if (m->phase == ZNS_PROBE_CHANNELS) {
		m->channel_doubt[0] = '\0';
		ret = probe_channels(p, err);
		if (ret)
			return ret;
		enter_phase(p, ZNS_PROBE_CHECK);
	}
	ret = probe_retest(p, err);
	return ret ? ret : probe_check(p, err);
}

int zns_probe_run(struct zns_dev *dev, const struct zns_probe_params *params,
		  struct zns_probe_map *map, struct zns_err *err)
{
	struct probe p;
	int ret = probe_begin(&p, dev, params, map, err);

	if (!ret)
		ret = phases(&p, err);
	if (!ret)
		ret = probe_number_groups(map, err);
	if (p.kind)
		probe_count(&p);
	if (!ret)
		ret = probe_judge(&p, err);
	if (!ret)
		enter_phase(&p, ZNS_PROBE_DONE);
	ret = probe_clean(&p, ret, err);
	/* a doubtful result is nothing to continue with */
	if (ret && ret != -EAGAIN && map->phase != ZNS_PROBE_CALIBRATE &&
	    map->phase != ZNS_PROBE_DONE && map->zone_group)
		probe_save_state(&p, zns_mono_ns());
	probe_free(&p);
	return ret;
}
