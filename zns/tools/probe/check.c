/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The last test of a map: sets of zones that are written together must take as long as the map
 * predicts. If not, the map is corrected or refused.
 */
#include <string.h>

#include "probe_priv.h"

#define SPLITS 2u /* each split can separate one die from a group, and a die may be in two groups */
/* Part of a zone's usual rate: if a group is below it, the promised rate is lowered. */
#define UNEQUAL 0.93

static uint32_t wrong(const struct zns_probe_map *m)
{
	uint32_t n = 0;

	for (int i = 0; i < ZNS_PROBE_CLAIMS; i++)
		n += m->seen[i].wrong;
	return n;
}

/*
 * Drops the result that all zones are one domain: some pairs of zones are independent, so the drive
 * has groups.
 */
static void forget_domain(struct probe *p)
{
	struct zns_probe_map *m = p->map;

	m->one_domain = false;
	m->nr_groups = 0;
	m->doubt[0] = '\0';
	memset(m->zone_group, 0xff, p->nr * sizeof(*m->zone_group));
	memset(m->zone_confidence, 0, p->nr * sizeof(*m->zone_confidence));
}

void probe_promise_least(struct probe *p)
{
	struct zns_probe_map *m = p->map;

	m->zone_write_mibps = p->usual_mibps;
	for (uint32_t g = 0; g < m->nr_groups; g++)
		if (m->group_write_mibps[g] &&
		    m->group_write_mibps[g] < UNEQUAL * m->zone_write_mibps)
			m->zone_write_mibps = m->group_write_mibps[g];
}

/* Gives all groups the same rate if their rates differ by no more than measurements do. */
static void even_out(struct probe *p)
{
	struct zns_probe_map *m = p->map;

	for (uint32_t g = 0; g < m->nr_groups; g++)
		if (m->group_write_mibps[g] >= UNEQUAL * p->usual_mibps &&
		    UNEQUAL * m->group_write_mibps[g] <= p->usual_mibps)
			m->group_write_mibps[g] = p->usual_mibps;
}

static int refuse(struct probe *p, const struct zns_probe_drift *d, struct zns_err *err)
{
	const struct zns_probe_seen *s = &p->map->seen[ZNS_PROBE_SHARE],
				    *a = &p->map->seen[ZNS_PROBE_APART],
				    *r = &p->map->seen[ZNS_PROBE_READ];

	if (s->wrong && 2 * s->low >= PROBE_SAME)
		return zns_fail(
			err, -EAGAIN,
			"two zones of one die together take up to %.1f times as long as one alone (%u of %u pairs), and not twice as long: the device's rate changes while it is measured, as that of a device that gets hot and is throttled; nothing is stored: let the device cool down and probe again",
			2 * s->high, s->wrong, s->sets);
	if (s->wrong)
		return zns_fail(
			err, -EAGAIN,
			"zones that disturb each other's reads do not disturb each other's writes (%u of %u pairs, the first is of zone %u), so the groups found are of no use; nothing is stored: let the device and this host be idle and probe again; if the result stays the same, the drive places reads and writes by different rules",
			s->wrong, s->sets, d->zones_moved ? d->moved[0] : 0);
	if (a->wrong)
		return zns_fail(
			err, -EAGAIN,
			"zones that do not disturb each other's reads do disturb each other's writes (%u of %u sets, which take up to %.1f times as long as alone), so the groups found are of no use; nothing is stored: let the device and this host be idle and probe again; if the result stays the same, something that all dies share is slower than two of them",
			a->wrong, a->sets, a->high);
	return zns_fail(
		err, -EAGAIN,
		"small reads take up to %.1f times as long while zones of other groups are written (%u of %u tries), so the groups found are of no use; nothing is stored: let the device and this host be idle and probe again",
		r->high, r->wrong, r->sets);
}

/*
 * Do times change? The default budget suffices for one prediction after a split, unless many times
 * have to be measured again.
 */
static int times_change(struct probe *p, struct zns_err *err)
{
	char size[16];

	return zns_fail(
		err, -EAGAIN,
		"cannot be measured: the default budget of %s was used up since times were measured again and again: the device's rate changes while it is measured; nothing is stored: let the device and this host be idle and probe again",
		zns_format_size(p->budget, size, sizeof(size)));
}

static int predict(struct probe *p, struct probe_index *x, struct zns_probe_drift *d,
		   struct zns_err *err)
{
	int ret = probe_index_build(p, x, err);

	p->kinds = 0; /* results about an earlier map are not valid for this one */
	if (!ret && !p->map->one_domain)
		ret = probe_set_length(p, x, err);
	if (!ret)
		ret = probe_group_times(p, x, err);
	if (!ret && !p->map->one_domain)
		ret = probe_place_unknown(p, x, err);
	if (!ret && !p->map->one_domain)
		ret = probe_join_groups(p, x, err);
	if (!ret)
		probe_promise_least(p);
	if (!ret && !p->map->one_domain)
		ret = probe_ceiling(p, err);
	return ret ? ret : probe_predict(p, 0, d, err);
}

/* Runs the prediction, and lowers the promised rates if groups share something slow. */
static int predict_all(struct probe *p, struct probe_index *x, struct zns_probe_drift *d,
		       struct zns_err *err)
{
	uint64_t before = p->map->written;
	bool again;
	int ret = predict(p, x, d, err);

	if (ret || p->map->one_domain)
		return ret;
	before = p->map->written - before;
	ret = probe_loaded(p, x, d, &again, err);
	if (ret || !again)
		return ret;
	/* the default budget covers one prediction, so add the same amount again */
	if (!p->par->budget)
		p->budget += before;
	*d = (struct zns_probe_drift){ 0 };
	ret = predict(p, x, d, err);
	return ret ? ret : probe_loaded(p, x, d, &again, err);
}

/*
 * Tries longer sets if most pairs of one domain did not wait as they should. Most of the time of a
 * short set may be the filling and emptying of a large program unit, for which zones do not wait.
 */
static int longer_sets(struct probe *p, struct probe_index *x, struct zns_probe_drift *d,
		       struct zns_err *err)
{
	const struct zns_probe_seen *s = &p->map->seen[ZNS_PROBE_SHARE];
	uint32_t units = p->set_units;
	bool most = s->wrong * 2 > s->sets;
	int ret = 0;

	p->set_units = probe_long_units(p);
	if (most && p->set_units > units) {
		*d = (struct zns_probe_drift){ 0 };
		ret = predict(p, x, d, err);
		if ((ret && ret != -EDQUOT) || !wrong(p->map))
			return ret;
	}
	p->set_units = units;
	forget_domain(p);
	return ret;
}

static int check(struct probe *p, struct probe_index *x, struct zns_err *err)
{
	struct zns_probe_drift d = { 0 };
	uint64_t spent;
	int ret;

	p->usual_mibps = p->map->zone_write_mibps;
	spent = p->map->written;
	ret = predict_all(p, x, &d, err);
	spent = p->map->written - spent;
	if ((ret && ret != -EDQUOT) || !wrong(p->map))
		return ret;
	if (p->map->one_domain)
		return longer_sets(p, x, &d, err);
	for (uint32_t k = 0; k < SPLITS && !ret && p->map->seen[ZNS_PROBE_SHARE].wrong; k++) {
		uint32_t groups = p->map->nr_groups;

		ret = probe_index_build(p, x, err);
		if (!ret)
			ret = probe_split_groups(p, x, err);
		/* the default budget would have sufficed if times had not changed */
		if (ret == -EDQUOT && !p->par->budget)
			break;
		if (ret)
			return ret;
		if (p->map->nr_groups == groups)
			break;
		/* the default budget covers one prediction, so add the same amount again */
		if (!p->par->budget)
			p->budget += spent;
		d = (struct zns_probe_drift){ 0 };
		ret = predict_all(p, x, &d, err);
		if (ret == -EDQUOT && !p->par->budget && !wrong(p->map))
			return times_change(p, err);
		if ((ret && ret != -EDQUOT) || !wrong(p->map))
			return ret;
	}
	return refuse(p, &d, err);
}

static int rates(struct probe *p, struct probe_index *x, struct zns_err *err)
{
	struct zns_probe_map *m = p->map;
	bool raised = false;
	int ret = probe_index_build(p, x, err);
	uint32_t read;

	if (!ret)
		ret = probe_group_rates(p, x, &raised, err);
	read = probe_usual(m, m->group_read_mibps);
	if (!ret && read)
		m->zone_read_mibps = read;
	if (!ret && !m->one_domain && (raised || m->device_write_mibps))
		ret = probe_long_ceiling(p, err);
	if (!ret || ret == -EDQUOT) /* the rates of groups may have been raised before */
		probe_promise_least(p);
	return ret;
}

int probe_check(struct probe *p, struct zns_err *err)
{
	struct probe_index x = { 0 };
	int ret = check(p, &x, err);
	struct zns_probe_map *m = p->map;

	/*
	 * Sets of several groups may wait because their zones share some of the dies. The map has
	 * passed the test already, so if a user's budget is too small for this check, that is no
	 * reason to refuse the map.
	 */
	if (!ret && !m->one_domain && !wrong(m) && p->load > 1) {
		ret = probe_overlap(p, err);
		ret = ret == -EDQUOT ? 0 : ret;
	}
	if (!ret && !wrong(m)) {
		ret = rates(p, &x, err);
		ret = ret == -EDQUOT ? 0 : ret;
	}
	if (!ret && !m->one_domain && !wrong(m)) {
		ret = probe_crowd(p, err);
		ret = ret == -EDQUOT ? 0 : ret;
	}
	probe_index_free(&x);
	if (!ret)
		even_out(p);
	m->load = zns_max(m->load, 1.0);
	p->proved = !ret && !m->one_domain && !wrong(m) && m->miss <= PROBE_PASS;
	if (p->proved)
		m->right = zns_max(m->right, 1 - PROBE_WRONG_ZONES);
	return ret;
}
