/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Sharing while dumps run. Since dumps come and go, the choice that was made at admission becomes
 * unfair. A dump that gets less than its max-min fair share gains groups. While a dump gets much
 * less, dumps that could get more than their share are limited to it; the other writers of their
 * groups get the rest.
 */
#include <string.h>
#include "alloc_priv.h"
#include "zns/util.h"

/* Documentation/inside/sharing.md gives the reasons for these values and measures others. */
#define LESS 0.97 /* a dump that gets less than this part of its fair share gains groups */
/* a dump gains a group only if the other writers of that group keep this part of their fair shares,
 * or a larger part than the gaining dump then has of its own */
#define SPARED 0.98
#define LACK 0.90 /* a dump lacks bandwidth if it gets less than this part of its fair share */
/* while a dump lacks bandwidth, dumps that could have more than their fair share are limited to
 * this multiple of it */
#define LIMIT 1.02
/* a group must add at least this to the dump's rate, in units of a zone's rate */
#define WORTH 0.02
#define ROUNDS 6

/* One writer of a group: the part of the group's time that it would take, and the part that it
 * gets. */
struct part {
	uint32_t who;
	double weight, would, gets;
};

/* Distributes the group among its writers by their weights, but gives none more than it would
 * take. */
static void fill(struct part *p, uint32_t nr)
{
	double left = 1, heavy = 0;
	uint32_t n = nr;
	bool again = true;

	for (uint32_t i = 0; i < nr; i++) {
		p[i].gets = -1;
		heavy += p[i].weight;
	}
	while (again && n) {
		double level = left / heavy;

		again = false;
		for (uint32_t i = 0; i < nr; i++) {
			if (p[i].gets >= 0 || p[i].would > level * p[i].weight)
				continue;
			p[i].gets = p[i].would;
			left -= p[i].would;
			heavy -= p[i].weight;
			n--;
			again = true;
		}
	}
	for (uint32_t i = 0; i < nr; i++)
		if (p[i].gets < 0)
			p[i].gets = left / heavy * p[i].weight;
}

/* Computes the rate of each dump if dump i goes no faster than @limit[i] (0: no limit). A limited
 * dump takes less of each of its groups, by the same factor. */
static int shares(const struct spread *s, uint32_t nr, const double *limit, double *rate)
{
	cleanup_free uint32_t *first = calloc(nr + 2, sizeof(*first));
	cleanup_free struct part *part = NULL;
	uint32_t sum = 0, g, i, k;

	for (i = 0; i < s->nr_sharers; i++)
		sum += s->sharers[i].nr_groups;
	part = calloc(sum + 1, sizeof(*part));
	if (!first || !part)
		return -1;
	/* Sort the parts by group (a counting sort). Afterwards the parts of group g are those from
	 * first[g] to first[g + 1] - 1. */
	for (i = 0; i < s->nr_sharers; i++)
		for (k = 0; k < s->sharers[i].nr_groups; k++)
			first[s->sharers[i].groups[k] + 2]++;
	for (g = 0; g < nr; g++)
		first[g + 2] += first[g + 1];
	for (i = 0; i < s->nr_sharers; i++)
		for (k = 0; k < s->sharers[i].nr_groups; k++)
			part[first[s->sharers[i].groups[k] + 1]++] = (struct part){
				.who = i, .weight = spread_weight(&s->sharers[i]), .would = 2
			};
	for (int round = 0; round < ROUNDS; round++) {
		for (g = 0; g < nr; g++)
			fill(part + first[g], first[g + 1] - first[g]);
		memset(rate, 0, s->nr_sharers * sizeof(*rate));
		for (g = 0; g < nr; g++)
			for (i = first[g]; i < first[g + 1]; i++)
				rate[part[i].who] += part[i].gets * zns_group_worth(&s->groups[g]);
		for (i = 0; i < sum; i++) {
			double most = limit[part[i].who], has = rate[part[i].who];

			if (most > 0 && has > 0 && (has > most || part[i].would <= 1))
				part[i].would = zns_min(zns_max(part[i].gets, 0.001) * most / has,
							2.0);
		}
	}
	for (i = 0; i < s->nr_sharers; i++)
		if (limit[i] > 0)
			rate[i] = zns_min(rate[i], limit[i]);
	return 0;
}

/* Finds the first group in @order where the others lose least; if possible, one without writers. */
static uint32_t best_gain(const struct spread *s, const uint32_t *order, uint32_t first,
			  uint32_t found, double weight, const bool *tried)
{
	uint32_t best = found;
	double most = 0;

	for (uint32_t i = first; i < found; i++) {
		double rest = spread_poorest(s, order[i], weight);

		/* Skip a group where a restore reads, or where a dump writes that does not
		 * share. */
		if (tried[order[i]] || s->groups[order[i]].nr_leases > s->users[order[i]] ||
		    (best < found && rest <= most + 1e-9))
			continue;
		most = rest;
		best = i;
	}
	return best;
}

/* Does the gain leave no other dump poorer, relative to its fair share, than the gaining dump?
 * Because of this condition the gains end, in whatever order the dumps gain. */
static bool suits(const struct spread *s, uint32_t self, const double *now, const double *then)
{
	double level = zns_min(SPARED, then[self] / s->party[self].fair);

	if (then[self] < now[self] + WORTH)
		return false;
	for (uint32_t i = 0; i < s->nr_sharers; i++)
		if (i != self && then[i] < now[i] - 1e-6 && then[i] < level * s->party[i].fair)
			return false;
	return true;
}

/* Without limits, would a dump whose bottleneck is its groups get less than LACK of its fair
 * share? */
static bool somebody_lacks(const struct spread *s)
{
	for (uint32_t i = 0; i < s->nr_sharers; i++)
		if (s->sharers[i].waits && s->party[i].rate < LACK * s->party[i].fair)
			return true;
	return false;
}

uint32_t zns_alloc_gain(const struct zns_group_state *groups, uint32_t nr,
			const struct zns_sharer *sharers, uint32_t nr_sharers, uint32_t self,
			uint32_t most, double ceiling, uint32_t *order, uint32_t found,
			double *limit)
{
	cleanup_free struct zns_sharer *list = calloc(nr_sharers + 1, sizeof(*list));
	cleanup_free struct party *party = calloc(nr_sharers + 1, sizeof(*party));
	cleanup_free double *v = calloc(3 * ((size_t)nr_sharers + 1), sizeof(*v));
	double *limits = v, *now = v + nr_sharers, *then = v + 2 * (size_t)nr_sharers;
	cleanup_free uint32_t *users = calloc(nr ? nr : 1, sizeof(*users));
	cleanup_free bool *tried = calloc(nr ? nr : 1, sizeof(*tried));
	cleanup_free double *heavy = calloc(nr ? nr : 1, sizeof(*heavy));
	cleanup_free uint32_t *mine = NULL;
	struct spread s = { groups, list, nr_sharers, party, users, heavy };
	double weight;
	uint32_t n = 0, i;

	*limit = 0;
	if (self >= nr_sharers || !list || !party || !v || !users || !tried || !heavy)
		return 0;
	memcpy(list, sharers, nr_sharers * sizeof(*list));
	most = zns_min(most, found);
	mine = calloc(list[self].nr_groups + most + 1, sizeof(*mine));
	if (!mine)
		return 0;
	memcpy(mine, list[self].groups, list[self].nr_groups * sizeof(*mine));
	list[self].groups = mine;
	weight = spread_weight(&list[self]);
	spread_take_stock(&s, nr, order, found, 0, 1, ceiling);
	if (somebody_lacks(&s))
		for (i = 0; i < nr_sharers; i++)
			limits[i] = list[i].grows ? LIMIT * party[i].fair : 0;
	if (shares(&s, nr, limits, now))
		return 0;
	while (list[self].waits && n < most && now[self] < LESS * party[self].fair) {
		uint32_t best = best_gain(&s, order, n, found, weight, tried), group;

		if (best == found)
			break;
		group = order[best];
		tried[group] = true;
		mine[list[self].nr_groups++] = group;
		if (shares(&s, nr, limits, then))
			break;
		if (!suits(&s, self, now, then)) {
			list[self].nr_groups--;
			continue;
		}
		memmove(&order[n + 1], &order[n], (best - n) * sizeof(*order));
		order[n++] = group;
		/* leave the dump itself out of the sum, as it takes nothing from itself */
		list[self].nr_groups--;
		spread_join(&s, group, weight);
		list[self].nr_groups++;
		party[self].rate += zns_group_worth(&groups[group]) * weight / heavy[group];
		memcpy(now, then, nr_sharers * sizeof(*now));
	}
	if (limits[self] > 0 && party[self].rate > limits[self])
		*limit = limits[self];
	return n;
}
