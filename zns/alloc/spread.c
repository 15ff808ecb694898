/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Sharing if there are not enough free groups: chooses groups for a new dump, including groups that
 * other dumps must share with it (design.md §5, sharing.md). The writers of a group share its rate
 * by their weights, so a dump's rate is the sum over its groups. The aim is its max-min fair share:
 * nobody gets more than it asked for, and nobody could get more without taking from a dump that has
 * less for its weight.
 */
#include <string.h>
#include "alloc_priv.h"
#include "zns/util.h"

/* Documentation/inside/sharing.md gives the reasons for these values and measures others. */
/* a dump that keeps this part of its fair share may have to share more of its groups */
#define CONTENT 0.96
#define ENOUGH 0.998 /* tolerance, since sums of fractions are not exact */

struct claim {
	double want, weight;
};

/* Sorts claims by what they want per unit of weight. */
static int cmp_claim(const void *a, const void *b)
{
	const struct claim *x = a, *y = b;
	const double l = x->want * y->weight, r = y->want * x->weight;

	return (l > r) - (l < r);
}

double zns_alloc_fair(const double *wants, const double *weights, uint32_t nr, double capacity)
{
	cleanup_free struct claim *sorted = calloc(nr ? nr : 1, sizeof(*sorted));
	double left = capacity, heavy = 0;

	if (!nr || !sorted)
		return nr ? 0 : capacity;
	for (uint32_t i = 0; i < nr; i++) {
		sorted[i] = (struct claim){ wants[i], weights ? weights[i] : 1 };
		heavy += sorted[i].weight;
	}
	qsort(sorted, nr, sizeof(*sorted), cmp_claim);
	for (uint32_t i = 0; i < nr; i++) {
		double level = left / heavy;

		if (sorted[i].want > level * sorted[i].weight)
			return level;
		left -= sorted[i].want;
		heavy -= sorted[i].weight;
	}
	/* every dump gets what it wants, so return a level above all of @wants */
	return sorted[nr - 1].want / sorted[nr - 1].weight + left;
}

bool spread_has_group(const struct zns_sharer *s, uint32_t group)
{
	for (uint32_t i = 0; i < s->nr_groups; i++)
		if (s->groups[i] == group)
			return true;
	return false;
}

/* By how much the rate of a writer falls, per unit of its weight, if a dump of weight @weight joins
 * the group. */
static double loss_of(const struct spread *s, uint32_t group, double weight)
{
	return s->users[group] ?
		       zns_group_worth(&s->groups[group]) *
			       (1.0 / s->heavy[group] - 1.0 / (s->heavy[group] + weight)) :
		       0;
}

double spread_poorest(const struct spread *s, uint32_t group, double weight)
{
	double least = 1e9, loss = loss_of(s, group, weight);

	if (!s->users[group])
		return least;
	for (uint32_t i = 0; i < s->nr_sharers; i++)
		if (spread_has_group(&s->sharers[i], group) && s->party[i].fair > 0)
			least = zns_min(least,
					(s->party[i].rate - loss * spread_weight(&s->sharers[i])) /
						s->party[i].fair);
	return least;
}

struct offer {
	uint32_t reservations;
	bool taken, leased;
	double content, rest; /* see spread_poorest: its result, limited to CONTENT and unlimited */
};

/* Free groups come first. Then groups where all dumps keep CONTENT, in the usual order. Then groups
 * whose poorest dump keeps most. */
static bool better(const struct offer *a, const struct offer *b)
{
	if (a->taken != b->taken)
		return b->taken;
	if (!a->taken)
		return false; /* equal offers keep their order */
	if (a->content > b->content + 1e-9 || b->content > a->content + 1e-9)
		return a->content > b->content;
	if (a->reservations != b->reservations)
		return a->reservations < b->reservations;
	if (a->leased != b->leased)
		return b->leased;
	return a->rest > b->rest + 1e-9;
}

static struct offer offer_of(const struct spread *s, uint32_t group, double weight)
{
	const struct zns_group_state *g = &s->groups[group];
	double rest = spread_poorest(s, group, weight);

	return (struct offer){ .reservations = g->nr_reservations,
			       .leased = g->nr_leases > 0,
			       .taken = g->nr_reservations || g->nr_leases,
			       .rest = rest,
			       .content = zns_min(rest, CONTENT) };
}

void spread_join(struct spread *s, uint32_t group, double weight)
{
	double loss = loss_of(s, group, weight);

	for (uint32_t i = 0; i < s->nr_sharers; i++)
		if (spread_has_group(&s->sharers[i], group))
			s->party[i].rate -= loss * spread_weight(&s->sharers[i]);
	s->users[group]++;
	s->heavy[group] += weight;
}

double spread_take_stock(struct spread *s, uint32_t nr, const uint32_t *order, uint32_t found,
			 double want, double weight, double ceiling)
{
	cleanup_free double *wants = calloc(2 * ((size_t)s->nr_sharers + 1), sizeof(*wants));
	double *weights = wants + s->nr_sharers + 1;
	cleanup_free bool *there = calloc(nr ? nr : 1, sizeof(*there));
	double capacity = 0, fair;
	uint32_t i, k;

	if (!wants || !there)
		return want;
	for (i = 0; i < found; i++)
		there[order[i]] = true;
	for (i = 0; i < s->nr_sharers; i++) {
		double has = 0;

		for (k = 0; k < s->sharers[i].nr_groups; k++) {
			has += zns_group_worth(&s->groups[s->sharers[i].groups[k]]);
			s->users[s->sharers[i].groups[k]]++;
			s->heavy[s->sharers[i].groups[k]] += spread_weight(&s->sharers[i]);
			there[s->sharers[i].groups[k]] = true;
		}
		weights[i] = spread_weight(&s->sharers[i]);
		wants[i] = s->sharers[i].want;
		if (!s->sharers[i].grows)
			wants[i] = zns_min(wants[i], has);
	}
	for (i = 0; i < nr; i++)
		capacity += there[i] ? zns_group_worth(&s->groups[i]) : 0;
	wants[s->nr_sharers] = want;
	weights[s->nr_sharers] = weight;
	fair = zns_alloc_fair(wants, weights, s->nr_sharers + (want > 0),
			      ceiling > 0 ? zns_min(ceiling, capacity) : capacity);
	for (i = 0; i < s->nr_sharers; i++) {
		s->party[i].fair = zns_min(wants[i], fair * weights[i]);
		for (k = 0; k < s->sharers[i].nr_groups; k++)
			s->party[i].rate += zns_group_worth(&s->groups[s->sharers[i].groups[k]]) *
					    weights[i] / s->heavy[s->sharers[i].groups[k]];
	}
	return zns_min(want, fair * weight);
}

uint32_t zns_alloc_spread(const struct zns_group_state *groups, uint32_t nr,
			  const struct zns_sharer *sharers, uint32_t nr_sharers, double want,
			  double weight, uint32_t least, uint32_t most, uint32_t first,
			  double ceiling, uint32_t *order, uint32_t found)
{
	cleanup_free struct party *party = calloc(nr_sharers + 1, sizeof(*party));
	cleanup_free uint32_t *users = calloc(nr ? nr : 1, sizeof(*users));
	cleanup_free double *heavy = calloc(nr ? nr : 1, sizeof(*heavy));
	struct spread s = { groups, sharers, nr_sharers, party, users, heavy };
	double fair, now = 0, later = 0;
	uint32_t n;

	most = zns_min(most, found);
	if (!party || !users || !heavy)
		return zns_min(least, most);
	weight = weight > 0 ? weight : 1;
	fair = spread_take_stock(&s, nr, order, found, want, weight, ceiling);
	for (n = 0; n < most; n++) {
		uint32_t best = n, group;
		struct offer o = offer_of(&s, order[n], weight);

		for (uint32_t i = n + 1; n >= first && i < found; i++) {
			struct offer p = offer_of(&s, order[i], weight);

			if (!better(&p, &o))
				continue;
			o = p;
			best = i;
		}
		group = order[best];
		/*
		 * The dump has enough groups if it has its fair share now, and would get as much as
		 * it wants from free groups when the owners of reserved groups come. It also stops
		 * if a further group would take from a dump that is poorer than itself.
		 */
		if (n >= least && users[group] && (now >= fair * ENOUGH || o.rest < now / fair))
			break;
		if (n >= least && !users[group] && later >= want * ENOUGH)
			break;
		if (n >= first && n < least && users[group] && now >= fair * ENOUGH &&
		    o.rest < CONTENT)
			break;
		memmove(&order[n + 1], &order[n], (best - n) * sizeof(*order));
		order[n] = group;
		spread_join(&s, group, weight);
		now += zns_group_worth(&groups[group]) * weight / heavy[group];
		later += zns_group_worth(&groups[group]) / (1 + groups[group].nr_reservations);
	}
	return n;
}
