/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Handles the case that sets of several groups wait, but no two groups do. Either the set was too
 * short: the first unit of each zone has to pass something that all zones share, before its die can
 * begin. Or something that several dies share, such as a channel, is slower than these dies
 * together. Then the groups are right, and the promised rate of each becomes what it gets while the
 * others write.
 */
#include "probe_priv.h"

#define TRIES 6u /* tries after a promise was lowered; each try takes a larger set */
/* Greatest slow-down that a channel can explain, as a multiple of the time alone. */
#define LOWEST 8.0

/* Are only sets of several groups wrong, and all pairs within a group right? */
static bool only_together(const struct probe *p, const struct zns_probe_drift *d)
{
	const struct zns_probe_seen *s = p->map->seen;

	return !s[ZNS_PROBE_SHARE].wrong && s[ZNS_PROBE_APART].wrong && !d->zones_moved;
}

static int group_times(struct probe *p, const struct probe_index *x, uint32_t units,
		       struct zns_err *err)
{
	p->set_units = units;
	return probe_group_times(p, x, err);
}

static int set_length(struct probe *p, const struct probe_index *x, uint32_t units,
		      struct zns_err *err)
{
	int ret = group_times(p, x, units, err);

	if (!ret)
		probe_promise_least(p);
	return ret ? ret : probe_ceiling(p, err);
}

static int predict_again(struct probe *p, struct zns_probe_drift *d, struct zns_err *err)
{
	uint64_t budget = p->budget, before = p->map->written;
	int ret;

	*d = (struct zns_probe_drift){ 0 };
	/*
	 * a budget of the user stays; the default one covers one prediction only, so it is lifted
	 */
	if (!p->par->budget)
		p->budget = UINT64_MAX / 2; /* half, since more is added to it later */
	ret = probe_predict_apart(p, d, err);
	if (!p->par->budget)
		p->budget = budget + p->map->written - before;
	return ret;
}

/* Lowers all promised rates until they are reached in each set that is tried. */
static int lower(struct probe *p, struct zns_probe_drift *d, struct zns_err *err)
{
	struct zns_probe_map *m = p->map;
	int ret = 0;

	for (uint32_t k = 0; !ret && k < TRIES && only_together(p, d) && p->load < LOWEST; k++) {
		double times = m->seen[ZNS_PROBE_APART].high;

		p->load *= times;
		for (uint32_t g = 0; g < m->nr_groups; g++)
			m->group_write_mibps[g] =
				zns_max((uint32_t)(m->group_write_mibps[g] / times), 1u);
		probe_promise_least(p);
		ret = predict_again(p, d, err);
	}
	m->load = p->load;
	return ret;
}

int probe_loaded(struct probe *p, struct probe_index *x, struct zns_probe_drift *d, bool *again,
		 struct zns_err *err)
{
	uint32_t units = p->set_units, joined = 0, most = probe_long_units(p);
	int ret;

	*again = false;
	if (!only_together(p, d))
		return 0;
	ret = probe_index_build(p, x, err);
	if (!ret && most > units) {
		ret = set_length(p, x, most, err);
		if (!ret)
			ret = predict_again(p, d, err);
		if (ret || !only_together(p, d))
			return ret;
		ret = group_times(p, x, units, err);
	}
	if (!ret)
		ret = probe_join_pairs(p, x, &joined, err);
	*again = joined;
	if (ret || joined)
		return ret;
	/* a drive that has become hot since the last prediction needs another one */
	if (most > units) {
		ret = set_length(p, x, most, err);
		if (!ret)
			ret = predict_again(p, d, err);
	}
	return ret ? ret : lower(p, d, err);
}
