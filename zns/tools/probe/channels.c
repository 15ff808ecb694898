/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Finds the channels of dies. Reading a whole unit of each of two dies at once takes as long as
 * reading one die alone, or longer if the dies share a channel. How much longer depends on the
 * drive. So the times of many pairs form two classes, or one.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "probe_priv.h"

#define BASES 4u /* number of dies that are compared with all others, to find the classes */
#define OTHERS 64u /* most dies with which each of these BASES dies is compared */
#define UNEQUAL 0.1 /* two dies are not equally fast if their times alone differ by this part */
/* the dies of one channel differ from all others if their times alone differ by this part */
#define APART 0.03
#define ALL_PAIRS 128u /* up to this number of dies, all pairs are tried */
#define PAIRS (BASES * OTHERS)
#define FIRST 6u /* first samples of a pair */
#define CONFIRM 16u /* fewest samples before two dies count as sharing a channel */
#define EDGE 4u /* number of pairs on each side of the border that are measured again */
#define LOOKS 6u
#define RETRIES 4u /* further tries for a disturbed pair */
/* If all pairs take this many times as long as one die, all dies share a channel. */
#define SHARED_BY_ALL 1.15
/*
 * as a part of a pair's time: with a larger spread, it is not proved that there is only one class
 */
#define BLURRED 0.025
#define UNTOLD_MAX 2u /* passes in which the channel of a die may stay undecided */
#define SURE 0.999
/* The search ends after this many undecided results, or more on a large drive. */
#define UNTOLD_ENOUGH 8u

struct pair {
	uint32_t a, b;
	double ratio, noise;
	bool firm; /* a second measurement was on the same side of the border */
};

static int by_ratio(const void *a, const void *b)
{
	double x = ((const struct pair *)a)->ratio, y = ((const struct pair *)b)->ratio;

	return (x > y) - (x < y);
}

/*
 * Finds the widest gap between neighbours. Returns the index of its upper end, or 0 if there is
 * none.
 */
static uint32_t widest(const struct pair *v, uint32_t n, double *gap)
{
	uint32_t at = 0;

	*gap = 0;
	for (uint32_t i = 1; i < n; i++) {
		if (v[i].ratio - v[i - 1].ratio <= *gap)
			continue;
		*gap = v[i].ratio - v[i - 1].ratio;
		at = i;
	}
	return at;
}

static double middle(const struct pair *v, uint32_t n, bool noise)
{
	double x[PAIRS];

	for (uint32_t i = 0; i < n; i++)
		x[i] = noise ? v[i].noise : v[i].ratio;
	return probe_median(x, n);
}

static int measure(struct probe *p, struct pair *v, uint32_t n, struct zns_err *err)
{
	int ret = probe_need_pair(p, v->a, v->b, err);

	return ret ? ret : probe_loss(p, v->a, v->b, n, &v->ratio, &v->noise, err);
}

/*
 * Moves the pairs that were measured undisturbed to the front; *n: their number. Disturbed ones are
 * measured up to RETRIES times more.
 */
static int tell(struct probe *p, struct pair *v, uint32_t all, uint32_t *n, struct zns_err *err)
{
	*n = 0;
	for (uint32_t k = 0; k <= RETRIES; k++) {
		for (uint32_t i = *n; i < all; i++) {
			int ret = k ? measure(p, &v[i], FIRST, err) : 0;
			struct pair now = v[i];

			if (ret)
				return ret;
			if (now.noise >= PROBE_UNTOLD)
				continue;
			v[i] = v[*n];
			v[(*n)++] = now;
		}
	}
	return 0;
}

/* Measures all pairs with more samples. */
static int sharpen(struct probe *p, struct pair *v, uint32_t *n, struct zns_err *err)
{
	for (uint32_t i = 0; i < *n; i++) {
		int ret = measure(p, &v[i], 6 * FIRST, err);

		if (ret)
			return ret;
	}
	return tell(p, v, *n, n, err);
}

/* Measures the pairs near the gap again. *settled: each stayed on its side of @border. */
static int look_again(struct probe *p, struct pair *v, uint32_t n, double border, bool *settled,
		      struct zns_err *err)
{
	*settled = true;
	for (uint32_t i = 0; i < n; i++) {
		struct pair now = v[i];
		int ret = now.firm ? 0 : measure(p, &now, 4 * FIRST, err);

		if (ret)
			return ret;
		now.firm = now.noise < PROBE_UNTOLD &&
			   (now.ratio > border) == (v[i].ratio > border);
		*settled &= now.firm;
		if (now.noise < PROBE_UNTOLD)
			v[i] = now;
	}
	return 0;
}

/*
 * Decides whether there are two classes. A disturbed pair looks like a class of its own. So pairs
 * at the gap are measured again, with more samples, until each stays on its side.
 */
static int classes(struct probe *p, struct pair *v, uint32_t n, struct zns_err *err)
{
	double gap, noise;
	uint32_t at = 0, all = n;
	bool settled = false;
	int ret;

	ret = tell(p, v, n, &n, err);
	if (ret)
		return ret;
	noise = middle(v, n, true);
	if (noise > BLURRED) {
		ret = sharpen(p, v, &n, err);
		if (ret)
			return ret;
		noise = middle(v, n, true);
	}
	p->border_found = false;
	if (n * 2 < all + 1) {
		probe_doubt_channels(
			p,
			"the channels cannot be told: reads of %u of %u pairs of dies were disturbed each time",
			all - n, all);
		return 0;
	}
	qsort(v, n, sizeof(*v), by_ratio);
	at = widest(v, n, &gap);
	for (uint32_t look = 0; look < LOOKS && !settled && at && gap > PROBE_GAP; look++) {
		uint32_t was = at, below = zns_min(at, EDGE);

		ret = look_again(p, v + at - below, below + zns_min(n - at, EDGE),
				 (v[at - 1].ratio + v[at].ratio) / 2, &settled, err);
		if (ret)
			return ret;
		qsort(v, n, sizeof(*v), by_ratio);
		at = widest(v, n, &gap);
		if (at == was)
			continue;
		settled = false;
		for (uint32_t i = 0; i < n; i++)
			v[i].firm = false;
	}
	/* if they never all stayed, disturbed pairs have caused the gap */
	p->border_found = settled && at && gap > PROBE_GAP && gap > 4 * noise;
	p->lost_low = p->lost_high = middle(v, n, false);
	if (p->border_found) {
		p->lost_low = middle(v, at, false);
		p->lost_high = middle(v + at, n - at, false);
		p->border = (v[at - 1].ratio + v[at].ratio) / 2;
	} else if (noise > BLURRED) {
		probe_doubt_channels(
			p,
			"the channels cannot be told: times of reading two dies at once vary by %.1f %%",
			100 * noise);
	} else if (gap > PROBE_GAP && !settled) {
		probe_doubt_channels(
			p,
			"the channels cannot be told: some pairs of dies that are read at once take another time in each try");
	}
	return 0;
}

/*
 * Compares the bases with all others, as many at a time as can stay readable together with the
 * bases.
 */
static int find_border(struct probe *p, const uint32_t *zones, uint32_t nr, struct zns_err *err)
{
	uint32_t bases = zns_min(nr, zns_min(BASES, zns_max(p->room / 2, 1u))),
		 each = nr <= p->room ? nr : p->room - bases, n = 0,
		 block = nr <= p->room ? nr : zns_max(p->room / 2, 1u);
	bool few = nr * (nr - 1) / 2 <= ALL_PAIRS;
	cleanup_free struct pair *v = calloc(PAIRS, sizeof(*v));
	int ret = 0;

	if (!v)
		return zns_fail(err, -ENOMEM, "no memory for %u pairs", PAIRS);
	p->border_found = false;
	p->jitter = 0.5;
	/*
	 * With few dies compare all pairs, block by block, since perhaps only two of them share a
	 * channel.
	 */
	for (uint32_t b = 0; few && !ret && b < nr; b += block)
		for (uint32_t c = b; !ret && c < nr; c += block)
			for (uint32_t i = b; !ret && i < zns_min(b + block, nr); i++) {
				uint32_t k = zns_max(c, i + 1);

				if (k < zns_min(c + block, nr))
					ret = probe_need_pair(p, zones[i], zones[k], err);
				if (!ret && k < zns_min(c + block, nr))
					ret = probe_jitter(p, zones[i], zones[k], err);
				for (; !ret && k < zns_min(c + block, nr); k++, n++) {
					v[n] = (struct pair){ .a = zones[i], .b = zones[k] };
					ret = measure(p, &v[n], FIRST, err);
				}
				probe_tick(p, 0, p->map->nr_groups);
			}
	for (uint32_t at = 0; !few && !ret && at < nr; at += each) {
		uint32_t end = zns_min(at + each, nr);

		if (at) /* keep the bases readable */
			ret = probe_drop(p, zones + zns_max(at - each, bases),
					 at - zns_max(at - each, bases), err);
		if (!ret)
			ret = probe_need(p, zones, bases, err);
		if (!ret)
			ret = probe_need(p, zones + at, end - at, err);
		for (uint32_t i = 0; !ret && i < bases; i++) {
			if (end > zns_max(i + 1, at))
				ret = probe_jitter(p, zones[i], zones[end - 1], err);
			/* each pair only once */
			for (uint32_t k = zns_max(i + 1, at); !ret && k < end; k++, n++) {
				v[n] = (struct pair){ .a = zones[i], .b = zones[k] };
				ret = measure(p, &v[n], FIRST, err);
			}
			probe_tick(p, 0, p->map->nr_groups);
		}
	}
	return ret || !n ? ret : classes(p, v, n, err);
}

/*
 * Do two dies share a channel? Takes more samples of a pair near the border. *sure: the probability
 * that *yes is right; less than SURE if it stays undecided.
 */
static int share_channel(struct probe *p, uint32_t a, uint32_t b, bool *yes, double *sure,
			 struct zns_err *err)
{
	double width = p->lost_high - p->lost_low, ratio, spread, z = 0;

	for (uint32_t n = FIRST; n <= PROBE_LOSS_MAX; n *= 2) {
		int ret = probe_loss(p, a, b, n, &ratio, &spread, err);

		if (ret)
			return ret;
		*yes = ratio > p->border;
		z = fabs(ratio - p->border) / zns_max(spread, 0.05 * width);
		/* The class is clear: stop. But a pair far above the slow class was disturbed, so
		 * take more samples of it. */
		if (z > 4 && (!*yes || (n >= CONFIRM && ratio < p->border + 2 * width)))
			break;
		z = zns_min(z, 2.0);
	}
	*sure = (1 + erf(z / sqrt(2))) / 2;
	return 0;
}

/* Returns a zone of the die that has a whole unit to read, or can get one. */
static uint32_t representative(const struct probe *p, uint32_t group)
{
	uint32_t zone = p->map->pivot[group], data = ZNS_PROBE_NONE;

	if (p->kind[zone] == KIND_EMPTY)
		return zone;
	for (uint32_t z = 0; z < p->nr; z++) {
		if (p->map->zone_group[z] != group)
			continue;
		if (p->kind[z] == KIND_EMPTY)
			return z;
		if (p->readable[z] == p->unit)
			data = z;
	}
	return data;
}

struct dies {
	uint32_t *zone; /* by group: its representative zone; ZNS_PROBE_NONE: none */
	uint32_t *first; /* by channel: its first group */
	uint32_t *list;
	uint32_t *untold; /* by group: how often its channel was undecided */
};

static int border(struct probe *p, const struct dies *d, struct zns_err *err)
{
	uint32_t n = 0, nr = p->map->nr_groups;
	cleanup_free uint32_t *list = calloc(nr, sizeof(*list));

	if (!list)
		return zns_fail(err, -ENOMEM, "no memory for %u groups", nr);
	for (uint32_t g = 0; g < nr; g++)
		if (d->zone[g] != ZNS_PROBE_NONE)
			list[n++] = d->zone[g];
	/* choose among many dies at random, since the first ones may all have different channels */
	for (uint32_t i = 0; n > OTHERS && i < OTHERS; i++) {
		uint32_t k = i + probe_random(p, n - i), zone = list[k];

		list[k] = list[i];
		list[i] = zone;
	}
	/* keep them readable while the limits allow it: they are needed again soon */
	return find_border(p, list, zns_min(n, OTHERS), err);
}

/*
 * Finds the channel of a die, or makes the die the first one of a new channel, of which there are
 * at most @cap in this pass. *kept: the die stays readable as the first one of its channel.
 */
static int one_die(struct probe *p, const struct dies *d, uint32_t group, uint32_t first_channel,
		   uint32_t cap, bool *kept, struct zns_err *err)
{
	struct zns_probe_map *m = p->map;
	double sure, least = 1;

	*kept = false;
	/* in a regular map the channels alternate: try the likely one first */
	for (uint32_t k = 0, n = m->nr_channels - first_channel; k < n; k++) {
		uint32_t c = first_channel + (group + k) % n;
		bool yes;
		int ret = share_channel(p, d->zone[group], d->zone[d->first[c]], &yes, &sure, err);

		if (ret)
			return ret;
		least = zns_min(least, sure);
		if (!yes || sure < SURE)
			continue;
		m->group_channel[group] = c;
		m->channel_confidence[group] = sure;
		return 0;
	}
	/*
	 * a disturbed test does not prove that the die has a channel of its own: try again in the
	 * next pass
	 */
	if (least < SURE) {
		d->untold[group]++;
		p->dies_untold++;
		return 0;
	}
	if (m->nr_channels - first_channel == cap)
		return 0; /* wait for the next pass */
	d->first[m->nr_channels] = group;
	m->group_channel[group] = m->nr_channels++;
	m->channel_confidence[group] = least;
	*kept = true;
	return 0;
}

/* Resets zones that are readable but do not represent a channel of this pass. */
static int make_room(struct probe *p, const struct dies *d, uint32_t first_channel,
		     struct zns_err *err)
{
	uint32_t n = 0;

	for (uint32_t g = 0; g < p->map->nr_groups; g++) {
		uint32_t c = p->map->group_channel[g];

		if (d->zone[g] != ZNS_PROBE_NONE &&
		    (c == ZNS_PROBE_NONE || c < first_channel || d->first[c] != g))
			d->list[n++] = d->zone[g];
	}
	return probe_drop(p, d->list, n, err);
}

static int one_pass(struct probe *p, const struct dies *d, uint32_t *left, struct zns_err *err)
{
	struct zns_probe_map *m = p->map;
	uint32_t first = m->nr_channels, cap = zns_max(p->room, 2u) - 1, done = 0;
	int ret = 0;

	*left = 0;
	for (uint32_t g = 0; !ret && g < m->nr_groups && p->dies_untold <= UNTOLD_ENOUGH + g / 4;
	     g++) {
		bool kept;

		done += m->group_channel[g] != ZNS_PROBE_NONE;
		if (m->group_channel[g] != ZNS_PROBE_NONE || d->zone[g] == ZNS_PROBE_NONE ||
		    d->untold[g] == UNTOLD_MAX)
			continue;
		if (p->nr_ours >= p->room && !p->have[d->zone[g]])
			ret = make_room(p, d, first, err);
		if (!ret)
			ret = probe_need(p, &d->zone[g], 1, err);
		if (!ret)
			ret = one_die(p, d, g, first, cap, &kept, err);
		if (!ret && !kept)
			ret = probe_drop(p, &d->zone[g], 1, err);
		*left += m->group_channel[g] == ZNS_PROBE_NONE && d->untold[g] < UNTOLD_MAX;
		probe_tick(p, ++done, m->nr_groups);
	}
	for (uint32_t c = first; !ret && c < m->nr_channels; c++)
		ret = probe_drop(p, &d->zone[d->first[c]], 1, err);
	return ret;
}

static int run(struct probe *p, const struct dies *d, struct zns_err *err)
{
	struct zns_probe_map *m = p->map;
	uint32_t left = m->nr_groups;
	int ret = border(p, d, err);

	if (ret)
		return ret;
	m->nr_channels = 0;
	for (uint32_t g = 0; g < m->nr_groups; g++) {
		m->group_channel[g] = ZNS_PROBE_NONE;
		m->channel_confidence[g] = 0;
	}
	if (!p->border_found) {
		m->channel_loss = 0;
		/* if no two dies slow each other down, channels cannot be found */
		if (p->lost_low < SHARED_BY_ALL + p->jitter / 2)
			return 0;
		m->channel_loss = 1 - 1 / p->lost_low;
		m->nr_channels = 1;
		for (uint32_t g = 0; g < m->nr_groups; g++) {
			m->group_channel[g] = 0;
			m->channel_confidence[g] = 1;
		}
		return probe_test_channels(p, d->zone, err);
	}
	m->channel_loss = 1 - p->lost_low / p->lost_high;
	for (uint32_t pass = 0; !ret && left && pass < PROBE_PASSES &&
				p->dies_untold <= UNTOLD_ENOUGH + m->nr_groups / 4;
	     pass++)
		ret = one_pass(p, d, &left, err);
	for (uint32_t g = 0; g < m->nr_groups; g++)
		if (m->group_channel[g] == ZNS_PROBE_NONE && d->zone[g] != ZNS_PROBE_NONE)
			probe_doubt_channels(
				p,
				"the channels of some dies cannot be told, because the times of reading them vary too much");
	return ret ? ret : probe_test_channels(p, d->zone, err);
}

void probe_forget_channels(struct zns_probe_map *m)
{
	m->nr_channels = m->channel_tests = m->channel_tests_wrong = 0;
	m->channel_loss = m->channels_right = 0;
	for (uint32_t g = 0; g < m->nr_groups; g++) {
		m->group_channel[g] = ZNS_PROBE_NONE;
		m->channel_confidence[g] = 0;
	}
}

/* Do the dies take different times alone? Then the losses of pairs do not form two classes. */
static bool unequal(const struct probe *p, const uint32_t *zone)
{
	double least = 0, most = 0;

	for (uint32_t g = 0; g < p->map->nr_groups; g++) {
		double ns = zone[g] == ZNS_PROBE_NONE ? 0 : p->solo_ns[zone[g]];

		if (ns <= 0)
			continue;
		least = least > 0 ? zns_min(least, ns) : ns;
		most = zns_max(most, ns);
	}
	return most > least * (1 + zns_max(UNEQUAL, 4 * p->jitter));
}

/*
 * Are all dies of a channel slower alone than all others, or faster? Read
 * together with a slower die, a die takes less extra time, whether they share a channel or not.
 */
static bool apart_by_rate(const struct probe *p, const uint32_t *zone)
{
	const struct zns_probe_map *m = p->map;
	double by = 1 + zns_max(APART, p->jitter);

	for (uint32_t c = 0; c < m->nr_channels; c++) {
		double least[2] = { HUGE_VAL, HUGE_VAL }, most[2] = { 0 };

		for (uint32_t g = 0; g < m->nr_groups; g++) {
			double ns = zone[g] == ZNS_PROBE_NONE ? 0 : p->solo_ns[zone[g]];
			bool own = m->group_channel[g] == c;

			if (ns <= 0)
				continue;
			least[own] = zns_min(least[own], ns);
			most[own] = zns_max(most[own], ns);
		}
		if (most[0] > 0 && most[1] > 0 &&
		    (least[1] > most[0] * by || most[1] * by < least[0]))
			return true;
	}
	return false;
}

int probe_channels(struct probe *p, struct zns_err *err)
{
	uint32_t n = p->map->nr_groups;
	struct dies d = { .zone = calloc(n, sizeof(*d.zone)),
			  .first = calloc(n, sizeof(*d.first)),
			  .list = calloc(zns_max(n, p->nr), sizeof(*d.list)),
			  .untold = calloc(n, sizeof(*d.untold)) };
	int ret = 0;

	p->solo_ns = calloc(p->nr, sizeof(*p->solo_ns));
	if (!d.zone || !d.first || !d.list || !d.untold || !p->solo_ns)
		ret = zns_fail(err, -ENOMEM, "no memory for %u groups", n);
	for (uint32_t g = 0; !ret && g < n; g++)
		d.zone[g] = representative(p, g);
	if (!ret && n > 1)
		ret = run(p, &d, err);
	if (!ret && n > 1) {
		for (uint32_t g = 0; g < n; g++)
			d.list[g] = d.zone[g];
		for (uint32_t g = 0; !ret && g < n; g++)
			if (d.list[g] != ZNS_PROBE_NONE)
				ret = probe_drop(p, &d.list[g], 1, err);
	}
	if (!ret && p->map->nr_channels && (unequal(p, d.zone) || apart_by_rate(p, d.zone)))
		probe_doubt_channels(
			p,
			"some dies are faster than others, so what two of them lose when read at once does not tell their channel");
	if (p->map->channel_doubt[0])
		probe_forget_channels(p->map);
	free(p->solo_ns);
	p->solo_ns = NULL;
	free(d.zone);
	free(d.first);
	free(d.list);
	free(d.untold);
	return ret;
}
