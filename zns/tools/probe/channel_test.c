/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Are the channels real, or noise? This test uses neither the times nor the border by which the
 * dies were assigned. Each die is read together with another one of its channel. One die of each
 * channel is read together with one of each other channel. The order is random, so that a long
 * disturbance affects both kinds equally. The times must form two separate classes, and each pair
 * must be in its class. With noise a pair is in either class by chance.
 */
#include <stdlib.h>
#include <string.h>

#include "probe_priv.h"

/*
 * fewest tests of each kind: a random division into classes is right with a probability of 1 in
 * 12,870
 */
#define EACH 8u
/* Samples of the first measurement of a pair. Each further one takes four times as many. */
#define FIRST 16u
#define LOOKS 4u
#define SAMPLES 256u /* most samples of a pair */
/* a die whose time alone is longer by this part than in another test was disturbed */
#define ALONE 0.15
#define CHUNK 16u /* tests between two decisions whether to go on */
#define GAP 0.05 /* least gap between the two classes of times */
#define MARGIN 0.25 /* least distance of a time from the border, as a part of the gap */
#define SIGMAS 3.0 /* least distance of a time from the border, in its own standard deviations */

struct test {
	uint32_t a, b; /* the two groups */
	bool same; /* they share a channel according to the map */
	double ratio, spread;
	double alone[2]; /* time of each die alone, during this test */
};

struct held_out {
	struct test *t;
	uint32_t nr, done;
	const uint32_t *zone; /* by group: the zone to read; ZNS_PROBE_NONE: none */
	double *v, *best; /* by group: the time alone, and the least of all tests */
	double usual; /* greatest multiple of the best time that counts as undisturbed */
	/* Medians of both classes and the border between them, as measured by this test. */
	double low, border, high;
	uint32_t right, wrong, untold;
};

/* Returns a random die of the channel other than @not. ZNS_PROBE_NONE: there is none. */
static uint32_t die_of(struct probe *p, const struct held_out *h, uint32_t channel, uint32_t not )
{
	uint32_t n = p->map->nr_groups, from = probe_random(p, n);

	for (uint32_t k = 0; k < n; k++) {
		uint32_t g = (from + k) % n;

		if (g != not &&p->map->group_channel[g] == channel && h->zone[g] != ZNS_PROBE_NONE)
			return g;
	}
	return ZNS_PROBE_NONE;
}

/* Returns the number of tests of this kind. */
static uint32_t list_same(struct probe *p, struct held_out *h)
{
	uint32_t n = 0, before;

	do {
		before = n;
		for (uint32_t a = 0; a < p->map->nr_groups; a++) {
			uint32_t c = p->map->group_channel[a],
				 b = c == ZNS_PROBE_NONE ? c : die_of(p, h, c, a);

			if (b == ZNS_PROBE_NONE || h->zone[a] == ZNS_PROBE_NONE)
				continue;
			h->t[h->nr++] = (struct test){ .a = a, .b = b, .same = true };
			n++;
		}
	} while (n < EACH && n > before);
	return n;
}

static uint32_t list_apart(struct probe *p, struct held_out *h)
{
	uint32_t n = 0, before;

	do {
		before = n;
		for (uint32_t c = 0; c < p->map->nr_channels; c++) {
			for (uint32_t e = 0; e < c; e++) {
				uint32_t a = die_of(p, h, c, ZNS_PROBE_NONE),
					 b = die_of(p, h, e, ZNS_PROBE_NONE);

				if (a == ZNS_PROBE_NONE || b == ZNS_PROBE_NONE)
					continue;
				h->t[h->nr++] = (struct test){ .a = a, .b = b };
				n++;
			}
		}
	} while (n < EACH && n > before);
	return n;
}

static int measure(struct probe *p, const struct held_out *h, struct test *t, uint32_t n,
		   struct zns_err *err)
{
	const uint32_t zones[2] = { h->zone[t->a], h->zone[t->b] };
	int ret = probe_need_pair(p, zones[0], zones[1], err);

	if (ret)
		return ret;
	t->spread = PROBE_UNTOLD;
	if (p->kind[zones[0]] == KIND_NO || p->kind[zones[1]] == KIND_NO)
		return 0;
	/* measure the time of each die alone again in each test */
	p->solo_ns[zones[0]] = p->solo_ns[zones[1]] = 0;
	ret = probe_loss(p, zones[0], zones[1], zns_min(n, SAMPLES), &t->ratio, &t->spread, err);
	if (ret || t->spread >= PROBE_UNTOLD)
		return ret;
	for (int i = 0; i < 2; i++) {
		double *best = &h->best[i ? t->b : t->a];

		t->alone[i] = p->solo_ns[zones[i]];
		*best = *best > 0 ? zns_min(*best, t->alone[i]) : t->alone[i];
	}
	return 0;
}

/* Were the times of both dies alone undisturbed, compared with the other tests? */
static bool told(const struct held_out *h, const struct test *t)
{
	return t->spread < PROBE_UNTOLD && t->alone[0] <= h->best[t->a] * h->usual &&
	       t->alone[1] <= h->best[t->b] * h->usual;
}

static double middle(const struct held_out *h, bool same, double none)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < h->done; i++)
		if (h->t[i].same == same && told(h, &h->t[i]))
			h->v[n++] = h->t[i].ratio;
	return n ? probe_median(h->v, n) : none;
}

/* Does the test agree with the map? 1: yes; 0: no; -1: undecided. */
static int verdict(const struct held_out *h, const struct test *t)
{
	double by = t->same ? t->ratio - h->border : h->border - t->ratio;

	if (!told(h, t))
		return -1;
	if (by < 0)
		return 0;
	return by >= MARGIN * (h->high - h->low) && by >= SIGMAS * t->spread ? 1 : -1;
}

static void judge(struct held_out *h)
{
	/* if all dies share a channel, the low class is the time of one die alone */
	h->low = middle(h, false, 1);
	h->high = middle(h, true, h->low);
	h->border = (h->low + h->high) / 2;
	h->right = h->wrong = h->untold = 0;
	for (uint32_t i = 0; i < h->done; i++) {
		int is = verdict(h, &h->t[i]);

		h->right += is > 0;
		h->wrong += !is;
		h->untold += is < 0;
	}
}

/* Do so many tests disagree that more samples would not help? */
static bool hopeless(struct held_out *h)
{
	judge(h);
	return h->high - h->low < GAP || h->wrong + h->untold > h->done / 2;
}

static int measure_all(struct probe *p, struct held_out *h, struct zns_err *err)
{
	int ret = 0;

	for (h->done = 0; !ret && h->done < h->nr; h->done++) {
		if (h->done && h->done % CHUNK == 0 && h->done >= 4 * EACH && hopeless(h))
			return 0;
		ret = measure(p, h, &h->t[h->done], FIRST, err);
		probe_tick(p, h->done, h->nr);
	}
	for (uint32_t look = 1, n = 4 * FIRST; !ret && look < LOOKS && !hopeless(h); look++, n *= 4)
		for (uint32_t i = 0; !ret && h->right < h->done && i < h->nr; i++)
			if (verdict(h, &h->t[i]) != 1)
				ret = measure(p, h, &h->t[i], n, err);
	judge(h);
	return ret;
}

static void shuffle(struct probe *p, struct test *t, uint32_t n)
{
	for (uint32_t i = n; i > 1; i--) {
		uint32_t k = probe_random(p, i);
		struct test x = t[k];

		t[k] = t[i - 1];
		t[i - 1] = x;
	}
}

int probe_test_channels(struct probe *p, const uint32_t *zone, struct zns_err *err)
{
	struct zns_probe_map *m = p->map;
	size_t most = m->nr_groups + (size_t)m->nr_channels * (m->nr_channels - 1) / 2 + 4 * EACH;
	cleanup_free struct test *t = calloc(most, sizeof(*t));
	cleanup_free double *v = calloc(most + m->nr_groups, sizeof(*v));
	struct held_out h = { .t = t,
			      .v = v,
			      .best = v + most,
			      .zone = zone,
			      .usual = 1 + zns_max(ALONE, 2 * p->jitter) };
	uint32_t same, apart;
	int ret = 0;

	if (!t || !v)
		return zns_fail(err, -ENOMEM, "no memory for %zu tests", most);
	same = list_same(p, &h);
	apart = list_apart(p, &h);
	/*
	 * If there are two classes, there must be pairs of both kinds; otherwise the classes are
	 * wrong.
	 */
	if (!same || (!apart && p->border_found)) {
		probe_doubt_channels(
			p,
			"the channels cannot be told: some pairs of dies seemed to take longer than others when read at once, but in the end %s dies share a channel",
			same ? "all" : "no two");
	} else {
		shuffle(p, h.t, h.nr);
		ret = measure_all(p, &h, err);
	}
	if (ret)
		return ret;
	if (h.done && h.high - h.low < GAP)
		probe_doubt_channels(
			p,
			"the channels cannot be told: when tried once more, pairs of dies that seemed to share a channel take %.2f times as long as one alone, and other pairs %.2f times",
			h.high, h.low);
	else if (h.wrong || h.untold || h.done < h.nr)
		probe_doubt_channels(
			p,
			"of %u pairs of dies that were tried once more %u contradict the channels that were found, and %u had no clear answer",
			h.done, h.wrong, h.untold);
	m->channel_tests = h.right + h.wrong;
	m->channel_tests_wrong = h.wrong;
	m->channels_right = m->channel_tests ? probe_lower_bound(m->channel_tests, h.wrong) : 0;
	for (uint32_t g = 0; g < m->nr_groups; g++)
		if (m->group_channel[g] != ZNS_PROBE_NONE)
			m->channel_confidence[g] = zns_min((double)m->channel_confidence[g],
							   m->channels_right);
	return 0;
}
