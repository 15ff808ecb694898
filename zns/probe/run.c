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
			return zns_fail(
				err, -EPROTO,
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

int zns_probe_run(struct zns_dev *dev, const struct zns_probe_params *params,
		  struct zns_probe_map *map, struct zns_err *err)
{
	struct probe p;
	int rc = probe_begin(&p, dev, params, map, err);

	if (!rc)
		rc = phases(&p, err);
	if (!rc)
		rc = probe_number_groups(map, err);
	if (p.kind)
		probe_count(&p);
	if (!rc)
		rc = probe_judge(&p, err);
	if (!rc)
		enter_phase(&p, ZNS_PROBE_DONE);
	rc = probe_clean(&p, rc, err);
	/* a doubtful result is nothing to continue with */
	if (rc && rc != -EAGAIN && rc != -EPROTO && map->phase != ZNS_PROBE_CALIBRATE &&
	    map->phase != ZNS_PROBE_DONE && map->zone_group)
		probe_save_state(&p, zns_mono_ns());
	probe_free(&p);
	return rc;
}
