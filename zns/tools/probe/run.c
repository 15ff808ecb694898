/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Runs the phases of a probe one after the other. */
#include "probe_priv.h"

static void enter_phase(struct probe *p, enum zns_probe_phase phase)
{
	p->map->phase = phase;
	p->phase_wall0 = zns_mono_ns();
	p->last_progress = 0;
	if (phase != ZNS_PROBE_DONE)
		probe_save_state(p, p->phase_wall0);
}

static int one_group(struct probe *p, struct zns_err *err)
{
	return zns_fail(
		err, -EAGAIN,
		"cannot be measured: several zones together are written %.2f times as fast as one, so they lie on several dies, but each zone seems to wait for each other zone; nothing is stored: let the device and this host be idle and probe again",
		p->map->scaling);
}

/*
 * Finds groups by reads, which give a quick first guess. Reads show nothing if their time depends
 * on something other than a die, or if nearly all zones are on one die: then writes assign the
 * zones. *reads: why reads have shown nothing.
 */
static int find_dies(struct probe *p, struct zns_err *reads, struct zns_err *err)
{
	struct zns_probe_map *m = p->map;
	uint32_t unit = p->unit;
	int ret = probe_dies(p, reads);

	if (!ret && !m->nr_groups)
		return zns_fail(err, -ENODATA, "%s: no zone could be tested", p->d->path);
	if (ret && ret != -EAGAIN)
		return zns_fail(err, ret, "%s", reads->msg);
	if (!ret && m->nr_groups > 1)
		return 0;
	if (!ret)
		one_group(p, reads);
	ret = probe_drop(p, p->ours, p->nr_ours, err);
	if (!ret)
		ret = probe_long_writes(p, err);
	if (!ret && m->one_domain)
		ret = probe_check(p, err);
	if (ret || m->one_domain)
		return ret;
	ret = probe_set_unit(p, unit, err);
	if (!ret)
		ret = probe_place_by_writes(p, err);
	return ret || m->nr_groups > 1 ? ret : one_group(p, err);
}

static int dies_and_channels(struct probe *p, struct zns_err *reads, struct zns_err *err)
{
	struct zns_probe_map *m = p->map;
	int ret = 0;

	if (m->phase == ZNS_PROBE_DIES) {
		ret = find_dies(p, reads, err);
		if (ret || m->one_domain)
			return ret;
		enter_phase(p, p->by_writes ? ZNS_PROBE_CHECK : ZNS_PROBE_CHANNELS);
	}
	if (m->phase == ZNS_PROBE_CHANNELS) {
		m->channel_doubt[0] = '\0';
		ret = probe_channels(p, err);
		if (ret)
			return ret;
		enter_phase(p, ZNS_PROBE_CHECK);
	}
	ret = p->by_writes ? 0 : probe_retest(p, err);
	return ret ? ret : probe_check(p, err);
}

static int phases(struct probe *p, struct zns_err *err)
{
	struct zns_probe_map *m = p->map;
	struct zns_err reads = ZNS_ERR_INIT;
	int ret = 0;

	if (m->phase == ZNS_PROBE_CALIBRATE) {
		ret = probe_rates(p, err);
		if (!ret && m->one_domain)
			ret = probe_check(p, err);
		if (ret || m->one_domain)
			return ret;
		enter_phase(p, ZNS_PROBE_DIES);
	}
	ret = dies_and_channels(p, &reads, err);
	/* writes have not shown anything either: report why reads have not */
	if (p->by_writes && (ret == -EAGAIN || ret == -EDQUOT))
		return zns_fail(err, -EAGAIN, "%s", reads.msg);
	return ret;
}

static int like_one_die(const struct probe *p, struct zns_err *err)
{
	return zns_fail(
		err, -EAGAIN,
		"cannot be mapped: some pairs of zones are written in %.2f times the time of others, though all wait for each other like zones of one die: zones lie on several dies behind something, such as a channel, that is hardly faster than one die, so which of them share a die cannot be told; nothing is stored: `znsctl format` without a map makes the drive one group",
		p->kinds);
}

/* Adds the reason if the drive is of a kind that no map can describe. */
static int refused(struct probe *p, int ret, struct zns_err *err)
{
	struct zns_err why = ZNS_ERR_INIT;

	if ((ret != -EAGAIN && ret != -EDQUOT) || p->map->phase == ZNS_PROBE_CALIBRATE)
		return ret;
	if (probe_overlap(p, &why) != -EAGAIN && probe_throttled(p, &why) != -EAGAIN)
		return ret == -EAGAIN && p->kinds > 0 ? like_one_die(p, err) : ret;
	return zns_fail(err, -EAGAIN, "%s", why.msg);
}

int zns_probe_run(struct zns_dev *dev, const struct zns_probe_params *params,
		  struct zns_probe_map *map, struct zns_err *err)
{
	struct probe p;
	int ret = probe_begin(&p, dev, params, map, err);

	if (!ret)
		ret = phases(&p, err);
	if (ret && p.kind)
		ret = refused(&p, ret, err);
	if (!ret)
		ret = probe_number_groups(map, err);
	if (p.kind)
		probe_count(&p);
	if (!ret)
		ret = probe_judge(&p, err);
	if (!ret)
		enter_phase(&p, ZNS_PROBE_DONE);
	ret = probe_clean(&p, ret, err);
	/* a later run must not continue from a doubtful result */
	if (ret && ret != -EAGAIN && map->phase != ZNS_PROBE_CALIBRATE &&
	    map->phase != ZNS_PROBE_DONE && map->zone_group)
		probe_save_state(&p, zns_mono_ns());
	probe_free(&p);
	return ret;
}
