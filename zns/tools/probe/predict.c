/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Does the map predict what it is used for? It predicts: zones of k groups that are written
 * together get the sustained rate of k zones; zones of one group get the rate of one; reads of a
 * group do not wait for writes of other groups. A map is returned only if it has predicted this
 * correctly for sets that are chosen as an allocator chooses them.
 *
 * Number of zones: let m of n zones be in a wrong group, with G groups. A group has n / G zones. So
 * each of the m zones makes n / G pairs wrong of which the map says that they share a die, and n /
 * G pairs that do share one without the map saying so. In total there are n * n / (2 * G) such
 * pairs, so the share of wrong ones is 2 * m / n: if 1 % of the pairs are wrong, m = n / 200 zones
 * are in a wrong group. Each zone of the sample is written together with another one of its group,
 * which shows whether it is wrong. A sample of N zones contains none of the m with the probability
 * C(n - m, N) / C(n, N); N is the least number for which this is at most 1/1000. For up to 200
 * zones, N is all of them, for 2,000 it is 998, for 30,000 it is 1,348. If a group is two dies, or
 * two groups are one die, more pairs are wrong, and more zones show it.
 *
 * Number of sets of several groups: if two groups are one die, a set that contains both shows it. A
 * random set of q of G groups contains a given pair with the probability c = q (q - 1) / (G (G -
 * 1)), and none of s sets does with the probability (1 - c)^s <= 1/1000. If sets have two groups,
 * all pairs together are fewer sets.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "probe_priv.h"

#define TRIES 6u
#define FEW_TRIES 2u /* tries of a subset of a set that is known to wait */
#define ALONE_TRIES 3u
#define QUIET 0.3 /* part of a unit's program time: a read that waits longer waits for a write */
#define SETS_LEAST 4u /* on average, each group takes part in this many sets of several groups */
/* Least number of sets of several groups if the device is slower than its groups together. */
#define CEILING_SETS 40u
#define READ_SETS 3u
#define READ_BESIDE 6u /* zones that are written during a read */
#define WRONG_ENOUGH 8u /* the prediction ends after this many wrong sets */
#define READS 64u
#define LINKED 24u /* if a group has at most this many zones, its pairs form a chain */
/* rounds in which pairs that may be of two kinds are compared; one may fail */
#define KINDS_ROUNDS 8u
/* two zones of a die take at least this many times as long as one in a long set */
#define TWICE_LOW 1.85
#define TWICE_HIGH 2.15
/*
 * if the slower pair takes this many times as long, pairs are of two kinds, and the group is no die
 */
#define KINDS 1.06
#define LONGER 3u /* in a set that is this many times as long, they must still be of two kinds */
/* multiple of set_units that a zone of a fast group gets at most, in order to take as long */
#define TIMES_MOST 8u

/* The fastest pair of a group and the slowest one. */
struct kinds {
	uint32_t quick[2], slow[2];
	double low, high;
};

struct predict {
	struct probe_index x;
	uint32_t *want; /* by group: number of its zones in the sample */
	uint32_t *order, nr; /* groups that have zones */
	struct zns_probe_drift *out;
	struct kinds *kinds; /* by group */
	double *long_ns; /* by group and number of units: the time of a zone alone; 0: unknown */
	uint32_t most; /* number of groups in a set */
	bool once_more; /* it is known that some sets wait, and only the time is needed */
	/* Pairs of groups that were found to be one die. */
	uint32_t pairs[WRONG_ENOUGH][2], nr_pairs;
};

static void note(struct zns_probe_seen *s, double ratio, bool right)
{
	s->low = s->sets ? zns_min(s->low, ratio) : ratio;
	s->high = s->sets ? zns_max(s->high, ratio) : ratio;
	s->mean += (ratio - s->mean) / ++s->sets;
	s->wrong += !right;
}

/*
 * Returns how many units a zone that takes @ns for set_units must get to take as long as the
 * slowest zone of a set. So a set is written in proportion to the promised rates of its groups. If
 * a fast zone ended much earlier, it would not show that it waits for another fast one, nor that a
 * channel is too slow for the promised rates of both.
 */
static uint32_t in_proportion(const struct probe *p, double ns, double slowest)
{
	uint32_t fit = zns_min((uint64_t)TIMES_MOST * p->set_units,
			       p->d->geo.zone_capacity / p->unit);

	/* the same die takes slightly more or less time each time */
	if (slowest <= PROBE_ALIKE * ns || ns <= 0)
		return p->set_units;
	return (uint32_t)zns_min(p->set_units * slowest / ns, (double)fit);
}

/* The time of a zone alone that gets this many units. The shorter of two that agree is used. */
static int alone_for(struct probe *p, uint32_t zone, uint32_t units, double *ns,
		     struct zns_err *err)
{
	double now;

	*ns = 0;
	for (uint32_t k = 0; k < ALONE_TRIES; k++) {
		int ret = probe_write_set(p, &zone, 1, units, &now, err);
		bool agrees = k && now <= PROBE_ALIKE * *ns && *ns <= PROBE_ALIKE * now;

		if (ret)
			return ret;
		*ns = k ? zns_min(*ns, now) : now;
		if (agrees)
			break;
	}
	return 0;
}

/* Do two zones wait for each other when they are written? */
static int waits(struct probe *p, uint32_t a, uint32_t b, bool *yes, struct zns_err *err)
{
	const uint32_t pair[2] = { a, b };
	uint32_t units[2];
	double ns[2] = { 0 }, slowest, both = 0;
	int ret = 0;

	for (uint32_t i = 0; !ret && i < 2; i++)
		ret = probe_write_set(p, &pair[i], 1, p->set_units, &ns[i], err);
	slowest = zns_max(ns[0], ns[1]);
	for (uint32_t i = 0; !ret && i < 2; i++) {
		units[i] = in_proportion(p, ns[i], slowest);
		if (units[i] > p->set_units)
			ret = alone_for(p, pair[i], units[i], &ns[i], err);
	}
	if (!ret)
		ret = probe_best_set(p, pair, units, 2, zns_max(ns[0], ns[1]), PROBE_APART, TRIES,
				     &both, err);
	*yes = both >= PROBE_SAME;
	return ret;
}

/*
 * Writes zones of several groups together. *ratio: their time divided by that of the slowest of
 * them alone; if promised rates were lowered for load, also divided by the load.
 */
static int try_groups(struct probe *p, struct predict *t, const uint32_t *zones, uint32_t nr,
		      uint32_t tries, double *ratio, struct zns_err *err)
{
	uint32_t units[PROBE_WRITE_BATCH];
	double slowest = 0, alone = 0;

	for (uint32_t i = 0; i < nr; i++)
		slowest = zns_max(slowest, p->group_ns[p->map->zone_group[zones[i]]]);
	for (uint32_t i = 0; i < nr; i++) {
		uint32_t g = p->map->zone_group[zones[i]];
		double *ns = &t->long_ns[(size_t)g * TIMES_MOST * p->set_units];

		units[i] = in_proportion(p, p->group_ns[g], slowest);
		/* the default budget covers set_units of each zone, so add the other units */
		if (!p->par->budget && units[i] > p->set_units)
			p->budget += (uint64_t)(units[i] - p->set_units) * p->unit;
		ns += units[i] - 1;
		if (units[i] > p->set_units && !(*ns > 0)) {
			int ret = alone_for(p, zones[i], units[i], ns, err);

			if (ret)
				return ret;
		}
		alone = zns_max(alone, units[i] > p->set_units ? *ns : p->group_ns[g]);
	}
	return probe_best_set(p, zones, units, nr, alone * p->load, PROBE_APART, tries, ratio, err);
}

static void moved(struct predict *t, uint32_t zone)
{
	struct zns_probe_drift *o = t->out;

	for (uint32_t i = 0; i < zns_min(o->zones_moved, (uint32_t)ZNS_ARRAY_SIZE(o->moved)); i++)
		if (o->moved[i] == zone)
			return;
	if (o->zones_moved++ < ZNS_ARRAY_SIZE(o->moved))
		o->moved[o->zones_moved - 1] = zone;
}

/*
 * Called when two zones of a group do not share a die. The zone that does not share one with a
 * third zone of the group either is in the wrong group. If this cannot be decided, both are noted.
 */
static int blame(struct probe *p, struct predict *t, uint32_t group, const uint32_t pair[2],
		 struct zns_err *err)
{
	uint32_t first = t->x.first[group], n = t->x.first[group + 1] - first;
	bool shares[2] = { false, false };
	int ret = 0;

	for (uint32_t tries = 0; n > 2 && tries < 3 && shares[0] == shares[1] && !ret; tries++) {
		uint32_t third = t->x.zone[first + probe_random(p, n)];

		if (third == pair[0] || third == pair[1])
			continue;
		for (uint32_t i = 0; !ret && i < 2; i++)
			ret = waits(p, pair[i], third, &shares[i], err);
	}
	for (uint32_t i = 0; i < 2; i++)
		if (!shares[i] || shares[1 - i])
			moved(t, pair[i]);
	return ret;
}

/*
 * Compares times alone. A zone of a slower die, written together with a zone of this group, may
 * take as long as two zones of one die. But alone it takes longer than zones of this group.
 */
static int own_times(struct probe *p, struct predict *t, uint32_t group, const uint32_t *zones,
		     uint32_t nr, bool *right, struct zns_err *err)
{
	for (uint32_t i = 0; i < nr; i++) {
		double ns = PROBE_UNTOLD * 1e9, now;

		for (uint32_t k = 0; k < TRIES && ns > PROBE_ONE_RATE * p->group_ns[group]; k++) {
			int ret = probe_write_set(p, &zones[i], 1, p->set_units, &now, err);

			if (ret)
				return ret;
			ns = zns_min(ns, now);
		}
		if (ns <= PROBE_ONE_RATE * p->group_ns[group])
			continue;
		*right = false;
		p->apart[group] = true;
		moved(t, zones[i]);
	}
	return 0;
}

static void note_kinds(struct kinds *k, const uint32_t pair[2], double ratio)
{
	if (!(k->high > 0) || ratio < k->low) {
		k->low = ratio;
		memcpy(k->quick, pair, sizeof(k->quick));
	}
	if (ratio > k->high) {
		k->high = ratio;
		memcpy(k->slow, pair, sizeof(k->slow));
	}
}

/*
 * The time of a pair with this many units for each zone, divided by the mean of both alone: 2 for
 * zones of one die, even if one of them is faster.
 */
static int long_pair(struct probe *p, const uint32_t pair[2], uint32_t units, double *ratio,
		     struct zns_err *err)
{
	double alone[2], both;
	int ret = 0;

	/* the default budget covers short pairs only, so add for these */
	if (!p->par->budget)
		p->budget += (uint64_t)4 * units * p->unit;
	for (uint32_t i = 0; !ret && i < 2; i++)
		ret = probe_write_set(p, &pair[i], 1, units, &alone[i], err);
	if (!ret)
		ret = probe_write_set(p, pair, 2, units, &both, err);
	if (!ret)
		*ratio = 2 * both / (alone[0] + alone[1]);
	return ret;
}

static int both_kinds(struct probe *p, const struct kinds *k, uint32_t units, double *quick,
		      double *slow, struct zns_err *err)
{
	int ret = long_pair(p, k->quick, units, quick, err);

	return ret ? ret : long_pair(p, k->slow, units, slow, err);
}

/*
 * Do the pairs differ in longer sets too? If a zone is striped over three dies, a set ends with an
 * incomplete round over them, and some pairs share a die in that round and others do not. That is
 * only one round, however long the set is. But what a channel takes is the same part of any set. So
 * if a longer set makes the difference small, the pairs are of one kind.
 */
static int still_differ(struct probe *p, const struct kinds *k, bool *yes, struct zns_err *err)
{
	uint32_t units = zns_min((uint64_t)LONGER * probe_long_units(p),
				 p->d->geo.zone_capacity / p->unit);
	double times[KINDS_ROUNDS];

	for (uint32_t i = 0; i < KINDS_ROUNDS; i++) {
		double quick, slow;
		int ret = both_kinds(p, k, units, &quick, &slow, err);

		if (ret)
			return ret;
		times[i] = slow / quick;
	}
	*yes = probe_median(times, KINDS_ROUNDS) >= KINDS;
	return 0;
}

/*
 * Are the pairs of a group of two kinds? All pairs of one die, or of one domain, are equal. Dies
 * behind a channel that is hardly faster than one of them look like one die, since a pair of two
 * dies waits for the channel. But a pair of one die waits for the die, and takes twice as long as
 * one zone. So the fastest pair and the slowest one are compared in long sets. A drive that becomes
 * hot changes its rate, but not by the same factor in most rounds.
 *
 * Computed for times of sets that vary independently (normal distribution): with a deviation of 3 %
 * a round finds two kinds in one die with the probability 0.11, and seven of eight rounds do with
 * 2e-6, so of right drives with 128 groups one in 4,000 is refused. With 5 % it is one in 350. A
 * pair of two dies that takes 1.8 times as long as one zone is found with the probability 0.85 for
 * a deviation of 2 %, and 0.5 for 3 %.
 */
static int two_kinds(struct probe *p, const struct kinds *k, uint32_t group, struct zns_err *err)
{
	double quick, slow, sum = 0;
	uint32_t seen = 0;
	bool yes = true;
	int ret;

	if (k->high <= KINDS * k->low)
		return 0;
	for (uint32_t i = 0; i < KINDS_ROUNDS && i < seen + 2; i++) {
		ret = both_kinds(p, k, probe_long_units(p), &quick, &slow, err);
		if (ret)
			return ret;
		if (quick < PROBE_APART || slow < KINDS * quick || slow < TWICE_LOW ||
		    slow > TWICE_HIGH)
			continue;
		sum += slow / quick;
		seen++;
	}
	if (seen + 1 < KINDS_ROUNDS)
		return 0;
	ret = still_differ(p, k, &yes, err);
	if (ret || !yes)
		return ret;
	p->kinds = sum / seen;
	p->apart[group] = true;
	p->map->seen[ZNS_PROBE_SHARE].wrong++;
	return 0;
}

/*
 * Writes the zones of a group in pairs. A group that is two dies would pass if no pair had a zone
 * of each die: with six zones of each that happens once in 46 times. So in a small group the pairs
 * form a chain, in which each pair has a zone of the one before: then some pair has a zone of each
 * die.
 */
static int same_group(struct probe *p, struct predict *t, uint32_t group, struct zns_err *err)
{
	uint32_t first = t->x.first[group], n = t->x.first[group + 1] - first;
	struct zns_probe_seen *s = &p->map->seen[ZNS_PROBE_SHARE];
	struct kinds *kinds = &t->kinds[group];
	bool linked = n <= LINKED;

	for (uint32_t i = 0; n > 1 && i + linked < t->want[group] && s->wrong < WRONG_ENOUGH;
	     i += linked ? 1 : 2) {
		uint32_t a = i, b = i + 1 < n ? i + 1 : probe_random(p, n - 1);
		uint32_t pair[2] = { t->x.zone[first + a], t->x.zone[first + b] };
		double ratio;
		int ret = probe_best_set(p, pair, NULL, 2, p->group_ns[group], PROBE_SAME_MOST,
					 TRIES, &ratio, err);
		bool right, paired;

		/* too long for two zones of one die: is one of them slower alone, too? */
		for (uint32_t k = 0; !ret && ratio > PROBE_SAME_MOST && k < 2; k++) {
			double ns;

			ret = alone_for(p, pair[k], p->set_units, &ns, err);
			p->apart[group] |= !ret && ns > PROBE_ONE_RATE * p->group_ns[group];
		}
		/* too short: was the group's time alone disturbed? */
		for (uint32_t k = 0; !ret && ratio < PROBE_SAME && k < 2; k++) {
			double ns;

			ret = probe_write_set(p, &pair[k], 1, p->set_units, &ns, err);
			if (ret || ns >= p->group_ns[group])
				continue;
			ratio *= p->group_ns[group] / ns;
			p->group_ns[group] = ns;
		}
		if (ret)
			return ret;
		right = paired = ratio >= PROBE_SAME && ratio <= PROBE_SAME_MOST;
		if (paired)
			ret = own_times(p, t, group, pair + (linked && i), 2 - (linked && i),
					&right, err);
		if (ret)
			return ret;
		note_kinds(kinds, pair, ratio);
		note(s, ratio / 2, right);
		p->map->zones_predicted += i + 1 < n && !(linked && i) ? 2 : 1;
		p->apart[group] |= ratio < PROBE_SAME;
		if (!paired)
			ret = blame(p, t, group, pair, err);
		if (ret)
			return ret;
		probe_tick(p, p->map->zones_predicted, p->map->zones_needed);
	}
	return 0;
}

/* Removes zones from the set one by one, as long as the others still wait. */
static int narrow(struct probe *p, struct predict *t, uint32_t *zones, uint32_t *nr,
		  struct zns_err *err)
{
	for (uint32_t i = 0; i<*nr && * nr> 2;) {
		/* tries to remove half of the zones first, then single ones */
		uint32_t cut = !i && *nr > 3 ? *nr / 2 : 1, rest[PROBE_WRITE_BATCH], n = 0;
		double ratio;
		int ret;

		for (uint32_t again = 0; again < (cut > 1 ? 3 : 1); again++) {
			uint32_t from = again == 1 ? *nr / 2 : i;

			if (again == 2)
				cut = 1;
			for (uint32_t k = n = 0; k < *nr; k++)
				if (k < from || k >= from + cut + (again == 1 ? *nr % 2 : 0))
					rest[n++] = zones[k];
			ret = try_groups(p, t, rest, n, FEW_TRIES, &ratio, err);
			if (ret)
				return ret;
			if (ratio > PROBE_APART)
				break;
		}
		if (ratio <= PROBE_APART) {
			i++;
			continue;
		}
		memcpy(zones, rest, n * sizeof(*zones));
		*nr = n;
	}
	return 0;
}

/*
 * Called when zones of groups that should be independent wait for each other. Finds out why: two
 * groups are one die, a zone is in a wrong group, or all wait for something that they share.
 */
static int find_joined(struct probe *p, struct predict *t, uint32_t *zones, uint32_t nr,
		       struct zns_err *err)
{
	struct zns_probe_drift *o = t->out;
	bool yes = false, others = false;
	uint32_t g[2], mate[2];
	int ret = narrow(p, t, zones, &nr, err);

	if (!ret && nr == 2)
		ret = waits(p, zones[0], zones[1], &yes, err);
	if (!ret && !yes)
		o->waits_together++;
	if (ret || !yes)
		return ret;
	for (uint32_t i = 0; i < 2; i++)
		g[i] = p->map->zone_group[zones[i]];
	for (uint32_t i = 0; i < 2; i++) {
		mate[i] = zones[i];
		for (uint32_t k = t->x.first[g[i]]; k < t->x.first[g[i] + 1]; k++)
			if (t->x.zone[k] != zones[i])
				mate[i] = t->x.zone[k];
	}
	ret = waits(p, mate[0], mate[1], &others, err);
	if (ret)
		return ret;
	for (uint32_t i = 0; !ret && !others && i < 2; i++) {
		ret = mate[i] == zones[i] ? 0 : waits(p, zones[i], mate[i], &yes, err);
		if (!ret && !yes)
			moved(t, zones[i]);
	}
	if (ret || !others)
		return ret;
	for (uint32_t i = 0; i < t->nr_pairs; i++)
		if (t->pairs[i][0] == zns_min(g[0], g[1]) && t->pairs[i][1] == zns_max(g[0], g[1]))
			return 0;
	t->pairs[t->nr_pairs][0] = o->joined[0] = zns_min(g[0], g[1]);
	t->pairs[t->nr_pairs++][1] = o->joined[1] = zns_max(g[0], g[1]);
	o->groups_joined++;
	return 0;
}

/* Notes the sets that took longest. */
static void note_crowd(struct probe *p, const uint32_t *zones, uint32_t nr, double ratio)
{
	struct probe_crowd *c = &p->crowd[0];

	for (uint32_t i = 1; i < PROBE_CROWDS; i++)
		if (!p->crowd[i].nr || (c->nr && p->crowd[i].ratio < c->ratio))
			c = &p->crowd[i];
	if (c->nr && c->ratio >= ratio)
		return;
	*c = (struct probe_crowd){ .nr = nr, .ratio = ratio };
	memcpy(c->zone, zones, nr * sizeof(*zones));
}

/*
 * Tries one zone of each of @nr groups, or of as many of them as may be promised rates at the same
 * time.
 */
static int apart(struct probe *p, struct predict *t, const uint32_t *groups, uint32_t nr,
		 uint32_t turn, double *ratio, struct zns_err *err)
{
	struct zns_probe_seen *s = &p->map->seen[ZNS_PROBE_APART];
	uint32_t zones[PROBE_WRITE_BATCH];
	double sum = 0;
	bool right;
	int ret;

	for (uint32_t i = 0; i < nr; i++) {
		uint32_t first = t->x.first[groups[i]], n = t->x.first[groups[i] + 1] - first;

		zones[i] = t->x.zone[first + turn % n];
		sum += p->map->group_write_mibps[groups[i]];
		if (i >= 2 && p->map->device_write_mibps && sum > probe_may_be_promised(p->map))
			nr = i;
	}
	ret = try_groups(p, t, zones, nr, t->once_more ? FEW_TRIES : TRIES, ratio, err);
	right = *ratio <= PROBE_APART;
	if (ret)
		return ret;
	note(s, *ratio, right);
	if (right)
		note_crowd(p, zones, nr, *ratio);
	return right || t->once_more || t->out->groups_joined + t->out->waits_together > 3 ?
		       0 :
		       find_joined(p, t, zones, nr, err);
}

/*
 * Takes the set that took longest, and replaces one of its groups by another. Random sets seldom
 * contain all groups of one channel; this finds them.
 */
static void swap_one(struct probe *p, const uint32_t *worst, uint32_t *groups, uint32_t n,
		     uint32_t q)
{
	uint32_t out = probe_random(p, q), in = q + probe_random(p, n - q), g;

	memcpy(groups, worst, n * sizeof(*groups));
	g = groups[out];
	groups[out] = groups[in];
	groups[in] = g;
}

/* The @k-th pair of @n groups. */
static void nth_pair(const uint32_t *all, uint32_t n, uint32_t k, uint32_t *pair)
{
	uint32_t i = 0;

	for (k %= n * (n - 1) / 2; k >= n - 1 - i; i++)
		k -= n - 1 - i;
	pair[0] = all[i];
	pair[1] = all[i + 1 + k];
}

/*
 * How many random sets of @q of @n groups are needed so that each pair of groups is in one of them?
 */
static uint32_t random_sets(uint32_t n, uint32_t q)
{
	double pair = (double)q * (q - 1) / ((double)n * (n - 1));

	return q == n ? 1 :
	       q == 2 ? n * (n - 1) / 2 :
			(uint32_t)ceil(log(PROBE_PASS) / log1p(-pair));
}

static int apart_sets(struct probe *p, struct predict *t, struct zns_err *err)
{
	uint32_t *groups = t->order, n = t->nr, turns = 0, sets, more, q = zns_min(n, t->most),
		 pair[2];
	cleanup_free uint32_t *worst = calloc(n + 1, sizeof(*worst));
	double longest = 0, ratio;
	int ret = 0;

	if (q < 2)
		return 0;
	if (!worst)
		return zns_fail(err, -ENOMEM, "no memory for %u groups", n);
	for (uint32_t i = 0; i < n; i++)
		turns = zns_max(turns, t->want[groups[i]]);
	sets = random_sets(n, q);
	/* These sets need not try each zone, since the pairs of a group did. */
	sets = zns_max(sets, zns_min(turns, SETS_LEAST) * ((n + q - 1) / q));
	/* If channels limit the device, only few sets of a few groups wait. */
	if (q < n && p->map->device_write_mibps)
		sets = zns_max(sets, CEILING_SETS);
	/*
	 * after that, sets similar to the one that took longest, and smaller ones, as in a small
	 * dump
	 */
	more = q > 2 && q < n ? (sets + 1) / 2 : 0;
	p->map->sets_needed += sets + more;
	/*
	 * the default budget covers a few sets only, so add for these; predict_again() adds for its
	 * own
	 */
	if (!p->par->budget && !t->once_more)
		p->budget += (uint64_t)(sets + more) * q * p->set_units * p->unit;
	for (uint32_t k = 0, enough = t->once_more ? FEW_TRIES : WRONG_ENOUGH;
	     !ret && k < sets + more && p->map->seen[ZNS_PROBE_APART].wrong < enough; k++) {
		uint32_t size = k >= sets && k % 4 == 3 ? 2 + probe_random(p, q - 1) : q;

		if (q == 2)
			nth_pair(groups, n, k, pair);
		else if (k >= sets && size == q)
			swap_one(p, worst, groups, n, q);
		else if (size < n)
			probe_shuffle(p, groups, n);
		ret = apart(p, t, q == 2 ? pair : groups, size, q < n ? k / ((n + q - 1) / q) : k,
			    &ratio, err);
		if (!ret && size == q && ratio > longest) {
			longest = ratio;
			memcpy(worst, groups, n * sizeof(*worst));
		}
		probe_tick(p, k + 1, sets + more);
	}
	return ret;
}

/*
 * Compares the median time of small reads of one group during writes of others with the time
 * without writes.
 */
static int one_read(struct probe *p, struct predict *t, uint32_t group, const uint32_t *others,
		    uint32_t nr, struct zns_err *err)
{
	struct zns_race r[PROBE_WRITE_BATCH] = { 0 };
	uint64_t done[PROBE_WRITE_BATCH * 2 * PROBE_SET_UNITS], reads[READS] = { 0 };
	uint32_t units = 2 * zns_min(p->set_units, PROBE_SET_UNITS);
	uint32_t zone = t->x.zone[t->x.first[group]], zones[PROBE_WRITE_BATCH],
		 pages = zns_max(p->unit / (uint32_t)PROBE_PAGE, 1u);
	double v[READS], alone, beside, program = p->group_ns[group] / p->set_units;
	int ret = probe_need(p, &zone, 1, err);

	if (!ret && p->kind[zone] == KIND_NO)
		return 0;
	for (uint32_t with = 0; !ret && with < 2; with++) {
		uint32_t k = with ? nr : 0, n = 0;

		ret = probe_spend(p, (uint64_t)k * units * p->unit, err);
		for (uint32_t i = 0; i < k; i++)
			zones[i] = t->x.zone[t->x.first[others[i]]];
		if (!ret)
			probe_write_race(p, r, zones, k, units, done);
		r[k] = (struct zns_race){ .zone = zone,
					  .len = p->small,
					  .count = READS,
					  .step = pages > READS ? (uint32_t)PROBE_PAGE : p->small,
					  .buf = p->rbuf,
					  .done_ns = reads };
		if ((uint64_t)READS * r[k].step > p->unit)
			r[k].count = p->unit / r[k].step;
		if (!ret)
			ret = probe_race(p, r, k + 1, err);
		for (uint32_t i = 0; i < r[k].count; i++)
			v[n++] = reads[i] - (i ? reads[i - 1] : 0);
		*(with ? &beside : &alone) = probe_median(v, n);
		if (!ret && k)
			ret = zns_dev_flush(p->d, err);
		if (!ret)
			ret = probe_drop(p, zones, k, err);
	}
	if (!ret)
		ret = probe_drop(p, &zone, 1, err);
	if (!ret)
		note(&p->map->seen[ZNS_PROBE_READ], beside / alone,
		     beside <= zns_max(2 * alone, alone + QUIET * program));
	return ret;
}

static int read_sets(struct probe *p, struct predict *t, struct zns_err *err)
{
	const struct zns_probe_map *m = p->map;
	int ret = 0;

	if ((uint64_t)2 * zns_min(p->set_units, PROBE_SET_UNITS) * p->unit >
	    p->d->geo.zone_capacity)
		return 0;
	for (uint32_t k = 0; !ret && k < READ_SETS; k++) {
		uint32_t own = t->order[probe_random(p, t->nr)], others[PROBE_WRITE_BATCH], n = 0,
			 from = probe_random(p, t->nr);

		for (uint32_t i = 0; i < t->nr && n + 2 <= zns_min(t->most, READ_BESIDE); i++) {
			uint32_t g = t->order[(from + i) % t->nr], channel = m->group_channel[g];
			bool known = channel != ZNS_PROBE_NONE &&
				     m->group_channel[own] != ZNS_PROBE_NONE;

			/*
			 * Dies of one channel slow down each other's reads. If the channel of
			 * either group is unknown, the group is used only if no promises had to be
			 * lowered because groups share something, such as a slow channel (load).
			 */
			if (g != own && (known ? channel != m->group_channel[own] : p->load <= 1))
				others[n++] = g;
		}
		if (n)
			ret = one_read(p, t, own, others, n, err);
	}
	return ret;
}

/* Lists the groups that have zones, and sets how many of them are written together at most. */
static int begin(struct probe *p, struct predict *t, struct zns_err *err)
{
	struct zns_probe_map *m = p->map;
	int ret = probe_index_build(p, &t->x, err);
	double sum = 0;

	t->want = calloc(m->nr_groups + 1, sizeof(*t->want));
	t->order = calloc(m->nr_groups + 1, sizeof(*t->order));
	t->kinds = calloc(m->nr_groups + 1, sizeof(*t->kinds));
	t->long_ns = calloc((size_t)m->nr_groups * TIMES_MOST * p->set_units + 1,
			    sizeof(*t->long_ns));
	if (!ret && (!t->want || !t->order || !t->kinds || !t->long_ns))
		return zns_fail(err, -ENOMEM, "no memory for %u groups", m->nr_groups);
	for (uint32_t g = 0; !ret && g < m->nr_groups; g++)
		if (t->x.first[g + 1] > t->x.first[g])
			t->order[t->nr++] = g;
	memset(p->crowd, 0, sizeof(p->crowd));
	t->most = zns_min(zns_min(p->room, p->open_room), PROBE_WRITE_BATCH);
	for (uint32_t i = 0; !ret && i < t->nr; i++)
		sum += m->group_write_mibps[t->order[i]];
	/*
	 * No more than the device can write is promised in total, so larger sets need not be
	 * independent; but two groups must be.
	 */
	if (m->device_write_mibps && sum > 0)
		t->most = zns_min(t->most,
				  zns_max((uint32_t)(probe_may_be_promised(m) * t->nr / sum), 2u));
	return ret;
}

/* Divides the sample among the groups: at least two zones of each, since it may be two dies. */
static void share_out(struct probe *p, struct predict *t, uint32_t sample)
{
	uint32_t usable = t->x.first[p->map->nr_groups];
	double share;

	p->map->zones_needed = sample ? zns_min(sample, usable) : probe_sample_size(usable);
	share = usable ? (double)p->map->zones_needed / usable : 0;
	for (uint32_t i = 0; i < t->nr; i++) {
		uint32_t g = t->order[i], n = t->x.first[g + 1] - t->x.first[g];

		t->want[g] = zns_min((uint32_t)ceil(n * share), n);
		t->want[g] = zns_min(zns_max(t->want[g], 2u), n);
	}
}

/* The number of groups with one zone: no pair tests these, but sets of several groups do. */
static uint32_t lonely(const struct predict *t)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < t->nr; i++)
		n += t->x.first[t->order[i] + 1] - t->x.first[t->order[i]] == 1;
	return n;
}

static int several_groups(struct probe *p, struct predict *t, struct zns_err *err)
{
	int ret = t->nr < 2 ? 0 : apart_sets(p, t, err);

	return ret || t->nr < 2 || t->most < 2 ? ret : read_sets(p, t, err);
}

/*
 * This is the last test, so that a map is not refused because a user's budget is too small for it.
 */
static int look_for_kinds(struct probe *p, struct predict *t, struct zns_err *err)
{
	int ret = 0;

	for (uint32_t i = 0; !ret && i < t->nr; i++)
		ret = two_kinds(p, &t->kinds[t->order[i]], t->order[i], err);
	if (ret != -EDQUOT)
		return ret;
	if (err)
		*err = (struct zns_err)ZNS_ERR_INIT;
	return 0;
}

static int end(struct probe *p, struct predict *t, int ret, struct zns_err *err)
{
	const struct zns_probe_seen *s = p->map->seen;

	/* the map is wrong, whatever budget is left */
	if (ret == -EDQUOT && (s[ZNS_PROBE_SHARE].wrong || s[ZNS_PROBE_APART].wrong)) {
		if (err)
			*err = (struct zns_err)ZNS_ERR_INIT;
		ret = 0;
	}
	t->out->zones_checked = p->map->zones_predicted;
	t->out->groups_checked = t->nr;
	probe_index_free(&t->x);
	free(t->want);
	free(t->order);
	free(t->kinds);
	free(t->long_ns);
	return ret;
}

int probe_predict(struct probe *p, uint32_t sample, struct zns_probe_drift *out,
		  struct zns_err *err)
{
	struct zns_probe_map *m = p->map;
	struct predict t = { .out = out };
	int ret = begin(p, &t, err);

	memset(m->seen, 0, sizeof(m->seen));
	m->zones_predicted = m->zones_needed = m->sets_needed = 0;
	if (!ret)
		share_out(p, &t, sample);
	for (uint32_t i = 0; !ret && i < t.nr && p->open_room > 1; i++)
		ret = same_group(p, &t, t.order[i], err);
	if (!ret)
		m->miss = probe_sample_misses(t.x.first[m->nr_groups],
					      m->zones_predicted + lonely(&t));
	if (!ret)
		ret = several_groups(p, &t, err);
	if (!ret)
		ret = look_for_kinds(p, &t, err);
	return end(p, &t, ret, err);
}

int probe_predict_apart(struct probe *p, struct zns_probe_drift *out, struct zns_err *err)
{
	struct zns_probe_map *m = p->map;
	struct predict t = { .out = out, .once_more = true };
	uint32_t needed = m->zones_needed;
	int ret = begin(p, &t, err);

	memset(&m->seen[ZNS_PROBE_APART], 0, sizeof(m->seen[0]));
	memset(&m->seen[ZNS_PROBE_READ], 0, sizeof(m->seen[0]));
	m->sets_needed = 0;
	if (!ret)
		share_out(p, &t, needed);
	if (!ret)
		ret = several_groups(p, &t, err);
	return end(p, &t, ret, err);
}
