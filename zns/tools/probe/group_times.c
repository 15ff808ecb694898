/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Measures the time of a zone of each group alone, and joins groups whose zones wait for each
 * other's writes. The groups come from reads. But planes of a die, or dies that are programmed in
 * pairs, are independent for reads and not for writes. The map is used for writes, so writes
 * decide.
 */
#include <string.h>

#include "probe_priv.h"

#define TRIES 3u
/*
 * least ratio of the time of a set of double length to that of a single one: below it the set is
 * too short to show a wait
 */
#define TWICE 1.7
#define LENGTH_ZONES 2u /* number of zones by which the length of a set is chosen */
#define SHRINK_TRIES 1u /* tries of a subset while a set that waits is reduced */
#define BLOCK 4u /* groups in a block; two blocks are written together */

int probe_set_length(struct probe *p, const struct probe_index *x, struct zns_err *err)
{
	uint32_t all = x->first[p->map->nr_groups], most = probe_long_units(p);

	for (uint32_t i = 0; i < LENGTH_ZONES && all && 2 * p->set_units <= most; i++) {
		uint32_t zone = x->zone[probe_random(p, all)];
		double once, twice;
		int ret = probe_best_alone(p, zone, p->set_units, TRIES, &once, err);

		if (!ret)
			ret = probe_best_alone(p, zone, 2 * p->set_units, TRIES, &twice, err);
		if (ret)
			return ret;
		if (twice >= TWICE * once)
			continue;
		/*
		 * a longer set also makes the pairs of the prediction longer, so increase the
		 * budget
		 */
		if (!p->par->budget)
			p->budget += (uint64_t)2 * all * (most - p->set_units) * p->unit;
		p->set_units = most;
	}
	return 0;
}

static void note_quickest(struct probe *p, uint32_t zone, double ns)
{
	struct probe_alone *q = &p->quickest;

	if (!q->units || ns * q->units < q->ns * p->set_units)
		*q = (struct probe_alone){ .zone = zone, .units = p->set_units, .ns = ns };
}

int probe_group_times(struct probe *p, const struct probe_index *x, struct zns_err *err)
{
	struct zns_probe_map *m = p->map;

	for (uint32_t g = 0; g < m->nr_groups; g++) {
		uint32_t n = x->first[g + 1] - x->first[g];
		double least = 0, next = 0;

		p->group_ns[g] = 0;
		for (uint32_t i = 0; n && i < TRIES; i++) {
			uint32_t z = x->zone[x->first[g] + probe_random(p, n)];
			double ns;
			int ret = probe_write_set(p, &z, 1, p->set_units, &ns, err);

			if (ret)
				return ret;
			note_quickest(p, z, ns);
			next = i && ns > least ? ns : i ? least : ns;
			least = !i || ns < least ? ns : least;
			/* two times that agree suffice */
			if (i && next <= PROBE_ALIKE * least)
				break;
		}
		p->group_ns[g] = least;
		m->group_write_mibps[g] =
			least > 0 ? (uint32_t)(probe_set_mibps(p, 1, p->set_units, least) + 0.5) :
				    0;
		probe_tick(p, g + 1, m->nr_groups);
	}
	return 0;
}

/*
 * Writes a random zone of each of these groups at once. *ratio: the shortest of several times,
 * relative to the time of the slowest group alone.
 */
static int together(struct probe *p, const struct probe_index *x, const uint32_t *groups,
		    uint32_t nr, uint32_t tries, double *ratio, struct zns_err *err)
{
	uint32_t zones[PROBE_WRITE_BATCH];
	double alone = 0;

	*ratio = PROBE_UNTOLD;
	for (uint32_t i = 0; i < nr; i++)
		alone = zns_max(alone, p->group_ns[groups[i]]);
	for (uint32_t k = 0; k<tries && * ratio> PROBE_APART; k++) {
		double ns;
		int ret;

		for (uint32_t i = 0; i < nr; i++) {
			uint32_t first = x->first[groups[i]], n = x->first[groups[i] + 1] - first;

			zones[i] = x->zone[first + probe_random(p, n)];
		}
		ret = probe_write_set(p, zones, nr, p->set_units, &ns, err);
		if (ret)
			return ret;
		*ratio = zns_min(*ratio, ns / alone);
	}
	return 0;
}

/*
 * Reduces a set that waits to two groups that wait for each other. *found: false if no two groups
 * wait, but all together do, for something that they share. Tries halves first, then leaves out one
 * group at a time as long as the others still wait.
 */
static int shrink(struct probe *p, const struct probe_index *x, uint32_t *set, uint32_t nr,
		  bool *found, struct zns_err *err)
{
	*found = false;
	for (bool again = true; again && nr > 3;) {
		again = false;
		for (uint32_t k = 0; !again && k < 2; k++) {
			uint32_t from = k ? nr / 2 : 0, n = k ? nr - nr / 2 : nr / 2;
			double ratio;
			int ret = together(p, x, set + from, n, SHRINK_TRIES, &ratio, err);

			if (ret)
				return ret;
			if (ratio <= PROBE_APART)
				continue;
			memmove(set, set + from, n * sizeof(*set));
			nr = n;
			again = true;
		}
	}
	for (bool again = true; again && nr > 2;) {
		again = false;
		for (uint32_t i = 0; i < nr && nr > 2; i++) {
			uint32_t without[PROBE_WRITE_BATCH], n = 0;
			double ratio;
			int ret;

			for (uint32_t k = 0; k < nr; k++)
				if (k != i)
					without[n++] = set[k];
			ret = together(p, x, without, n, SHRINK_TRIES, &ratio, err);
			if (ret)
				return ret;
			if (ratio <= PROBE_APART)
				continue;
			memcpy(set, without, n * sizeof(*set));
			nr = n;
			i--;
			again = true;
		}
	}
	if (nr == 2) {
		double ratio;
		int ret = together(p, x, set, 2, TRIES, &ratio, err);

		if (ret)
			return ret;
		*found = ratio >= PROBE_SAME;
	}
	return 0;
}

static void join(struct probe *p, uint32_t keep, uint32_t gone)
{
	struct zns_probe_map *m = p->map;

	for (uint32_t z = 0; z < p->nr; z++)
		if (m->zone_group[z] == gone)
			m->zone_group[z] = keep;
	if (m->group_channel[keep] != m->group_channel[gone])
		m->group_channel[keep] = ZNS_PROBE_NONE;
	m->group_channel[gone] = ZNS_PROBE_NONE;
	p->joined[gone] = true;
	m->nr_joined++;
}

/* Numbers the remaining groups without gaps. */
static void close_up(struct probe *p)
{
	struct zns_probe_map *m = p->map;
	uint32_t n = 0;

	for (uint32_t g = 0; g < m->nr_groups; g++) {
		if (p->joined[g])
			continue;
		for (uint32_t z = 0; z < p->nr && n != g; z++)
			if (m->zone_group[z] == g)
				m->zone_group[z] = n;
		m->pivot[n] = m->pivot[g];
		m->group_channel[n] = m->group_channel[g];
		m->channel_confidence[n] = m->channel_confidence[g];
		m->group_write_mibps[n] = m->group_write_mibps[g];
		p->group_ns[n] = p->group_ns[g];
		n++;
	}
	memset(p->joined, 0, m->nr_groups * sizeof(*p->joined));
	m->nr_groups = n;
}

/*
 * Joins groups of this set until the remaining ones are independent, or wait for something other
 * than a die.
 */
static int settle(struct probe *p, const struct probe_index *x, uint32_t *set, uint32_t nr,
		  struct zns_err *err)
{
	while (nr > 1) {
		uint32_t few[PROBE_WRITE_BATCH], n = 0;
		double ratio;
		bool found;
		int ret = together(p, x, set, nr, SHRINK_TRIES + 1, &ratio, err);

		if (ret || ratio <= PROBE_APART)
			return ret;
		memcpy(few, set, nr * sizeof(*few));
		ret = shrink(p, x, few, nr, &found, err);
		if (ret || !found)
			return ret;
		join(p, few[0], few[1]);
		for (uint32_t i = 0; i < nr; i++)
			if (set[i] != few[1])
				set[n++] = set[i];
		nr = n;
	}
	return 0;
}

/*
 * Sorts groups by their time alone: in a set with a much slower group it would not show if two fast
 * ones wait for each other.
 */
static void by_time(const struct probe *p, uint32_t *v, uint32_t n)
{
	for (uint32_t i = 1; i < n; i++) {
		uint32_t g = v[i], k = i;

		for (; k && p->group_ns[v[k - 1]] > p->group_ns[g]; k--)
			v[k] = v[k - 1];
		v[k] = g;
	}
}

/*
 * Two groups of one die take the same time alone. So only groups with similar times, which are
 * neighbours in a sorted set, are written together.
 */
static int settle_alike(struct probe *p, const struct probe_index *x, const uint32_t *set,
			uint32_t nr, struct zns_err *err)
{
	double was = 0;
	int ret = 0;

	for (uint32_t from = 0, done = 0; !ret && from < nr && done < nr; from++) {
		double least = p->group_ns[set[from]];
		uint32_t near[PROBE_WRITE_BATCH], n = 0, k;

		if (least <= PROBE_ALIKE * was)
			continue;
		was = least;
		for (k = from; k < nr && p->group_ns[set[k]] <= PROBE_ONE_RATE * least; k++)
			if (!p->joined[set[k]])
				near[n++] = set[k];
		done = k;
		ret = settle(p, x, near, n, err);
	}
	return ret;
}

int probe_join_groups(struct probe *p, const struct probe_index *x, struct zns_err *err)
{
	uint32_t nr = p->map->nr_groups, n = 0,
		 most = zns_min(zns_min(p->room, p->open_room), 2 * BLOCK), block = most / 2;
	cleanup_free uint32_t *order = calloc(nr + 1, sizeof(*order));
	int ret = 0;

	if (!order)
		return zns_fail(err, -ENOMEM, "no memory for %u groups", nr);
	for (uint32_t g = 0; g < nr; g++)
		if (p->group_ns[g] > 0)
			order[n++] = g;
	by_time(p, order, n);
	for (uint32_t a = 0; !ret && block && a < n; a += block)
		for (uint32_t b = a + block < n ? a + block : a; !ret && b < n; b += block) {
			uint32_t set[PROBE_WRITE_BATCH], k = 0;

			for (uint32_t i = a; i < zns_min(a + block, n); i++)
				if (!p->joined[order[i]])
					set[k++] = order[i];
			for (uint32_t i = b; b != a && i < zns_min(b + block, n); i++)
				if (!p->joined[order[i]])
					set[k++] = order[i];
			ret = settle_alike(p, x, set, k, err);
			probe_tick(p, a, n);
		}
	if (p->map->nr_joined)
		close_up(p);
	return ret;
}

int probe_join_pairs(struct probe *p, const struct probe_index *x, uint32_t *joined,
		     struct zns_err *err)
{
	uint32_t nr = p->map->nr_groups, before = p->map->nr_joined;
	int ret = 0;

	for (uint32_t a = 0; !ret && a < nr; a++) {
		for (uint32_t b = a + 1; !ret && b < nr && !p->joined[a]; b++) {
			uint32_t pair[2] = { a, b };
			double low = zns_min(p->group_ns[a], p->group_ns[b]), ratio;

			if (p->joined[b] || low <= 0 ||
			    zns_max(p->group_ns[a], p->group_ns[b]) > PROBE_ONE_RATE * low)
				continue;
			ret = together(p, x, pair, 2, TRIES, &ratio, err);
			if (!ret && ratio >= PROBE_SAME)
				join(p, a, b);
		}
		probe_tick(p, a, nr);
	}
	*joined = p->map->nr_joined - before;
	if (*joined)
		close_up(p);
	return ret;
}
