/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Decides which zone waits for which. A burst of small reads goes to one zone, and other zones are
 * read behind it. A zone that has to wait is on the same die. A disturbance usually affects a whole
 * measurement: the host does not run, or all dies collect garbage, and then every zone seems to
 * wait. So a vote is valid only if the burst took its usual time and the controls, zones on other
 * dies, did not wait.
 */
#include <math.h>
#include <string.h>

#include "probe_priv.h"

#define CONTROLS 3u
#define VOTES_MAX 25u
#define VOIDS_MAX 40u /* after this many disturbed votes, a question is postponed */
#define SURE 11.5 /* log odds at which an answer is accepted: wrong once in 100,000 */
#define BURST_READS 8 /* length of a burst, in reads one after another */
#define TRIES 6u /* tries to reduce the suspects to one */
#define SAMPLES 64u /* samples of the time of a burst */
#define SPREAD_LEAST 8u /* fewest zones over which a burst is spread */
#define SPREAD_SETS 8u
/* multiple of one zone's rate: zones that reach less together when written may do so when read */
#define SPREAD_SCALING 1.6
/* a die whose pace is between PACE_LOW and PACE_HIGH counts as usual */
#define PACE_LOW 0.75
#define PACE_HIGH 1.35
#define PACE_SAMPLES 9u
/*
 * Part of the time of a burst on one zone: a spread burst that takes longer than this does not wait
 * for dies.
 */
#define AS_SLOW 0.85

/*
 * Times relative to that of a usual burst. QUICK: the read did not wait for the burst; WAITED: it
 * did; ODD: it waited for something else.
 */
enum seen { QUICK, WAITED, ODD };

struct controls {
	/* the first @sure of them are certainly on other dies */
	uint32_t zone[CONTROLS], nr, sure;
};

static enum seen judge(uint64_t usual, uint64_t ns)
{
	return ns <= usual / 2 ? QUICK : ns <= usual + usual * 3 / 4 ? WAITED : ODD;
}

/* The usual time of a burst on this zone. */
static uint64_t usual(const struct probe *p, uint32_t zone)
{
	return p->pace[zone] > 0 ? (uint64_t)(p->burst_ns * (double)p->pace[zone]) : p->burst_ns;
}

/* Makes the k-th small read of a zone. Each one reads another page, as long as there are more. */
static struct zns_race small(struct probe *p, uint32_t zone, uint32_t k, uint32_t slot,
			     uint64_t *done)
{
	uint32_t len = zns_min(p->small, p->readable[zone]);
	uint32_t pages = zns_max(p->readable[zone] / (uint32_t)PROBE_PAGE, 1u);

	return (struct zns_race){ .zone = zone,
				  .off = k % pages * PROBE_PAGE,
				  .len = len,
				  .count = 1,
				  .buf = p->rbuf + (size_t)slot * p->small,
				  .done_ns = done };
}

/* Replaces a single read by two, of different pages if the zone has more than one. */
static void twice(const struct probe *p, struct zns_race *r)
{
	r->count = 2;
	if (r->off + PROBE_PAGE + r->len <= p->readable[r->zone])
		r->step = PROBE_PAGE;
	else if (r->off >= PROBE_PAGE)
		r->off -= PROBE_PAGE, r->step = PROBE_PAGE;
	else if (r->off + 2 * r->len > p->readable[r->zone])
		r->count = 1;
}

/*
 * Sends a burst of @size reads to @zones in turn, and two reads to each of @others. The first of
 * the two may arrive before the burst; when the second arrives, the burst is certainly in the die's
 * queue. *own: the time of the burst; @after: the times of the second reads.
 */
static int burst(struct probe *p, const uint32_t *zones, uint32_t nr_zones, uint32_t size,
		 const uint32_t *others, uint32_t nr, uint64_t *own, uint64_t *after,
		 struct zns_err *err)
{
	struct zns_race r[PROBE_BURST_MAX + PROBE_SET_MAX];
	uint64_t done[PROBE_BURST_MAX] = { 0 }, behind[2 * PROBE_SET_MAX] = { 0 };
	int ret;

	for (uint32_t i = 0; i < size; i++)
		r[i] = small(p, zones[i % nr_zones], i, i, &done[i]);
	for (uint32_t i = 0; i < nr; i++) {
		r[size + i] = small(p, others[i], p->votes + i, size + i, &behind[2 * i]);
		twice(p, &r[size + i]);
	}
	ret = probe_race(p, r, size + nr, err);
	if (ret)
		return ret;
	for (uint32_t i = 0; i < nr; i++)
		after[i] = behind[2 * i + r[size + i].count - 1];
	for (uint32_t i = *own = 0; i < size; i++)
		*own = zns_max(*own, done[i]);
	return 0;
}

/* Measures a burst of @size on one zone or, with @spread, over all of them. */
static int alone(struct probe *p, const uint32_t *zones, uint32_t nr, bool spread, uint32_t size,
		 uint32_t samples, uint64_t *ns, struct zns_err *err)
{
	double v[SAMPLES];

	for (uint32_t k = 0; k < samples; k++) {
		uint64_t own;
		int ret = burst(p, spread ? zones : &zones[k % nr], spread ? nr : 1, size, NULL, 0,
				&own, NULL, err);

		if (ret)
			return ret;
		v[k] = own;
	}
	*ns = probe_quartile(v, samples);
	return 0;
}

/*
 * Checks that the same burst is faster when it is spread over many zones. Otherwise its time
 * depends on the host, not on a die. Several sets are tried, since the zones of one set may share
 * few dies by chance.
 */
static int spread_out(struct probe *p, const uint32_t *zones, uint32_t nr, struct zns_err *err)
{
	uint64_t best = UINT64_MAX;

	if (nr < SPREAD_LEAST)
		return 0;
	for (uint32_t k = 0; k < SPREAD_SETS; k++) {
		uint32_t set[PROBE_BURST_MAX], n = zns_min(p->burst, PROBE_BURST_MAX);
		uint64_t ns;
		int ret;

		for (uint32_t i = 0; i < n; i++)
			set[i] = k ? zones[probe_random(p, nr)] : zones[i % nr];
		ret = alone(p, set, n, true, n, SAMPLES / 4, &ns, err);
		if (ret)
			return ret;
		best = zns_min(best, ns);
	}
	/* zones that are hardly faster together when written may also be so when read */
	if (best < AS_SLOW * p->burst_ns || p->map->scaling < SPREAD_SCALING)
		return 0;
	return zns_fail(
		err, -EAGAIN,
		"cannot be measured: a burst of %u reads takes as long when spread over %u zones (%.2f ms) as on one (%.2f ms), although zones are written independently: what takes the time is not a die but the host, the link or a cache; nothing is stored",
		p->burst, nr, best / 1e6, p->burst_ns / 1e6);
}

/*
 * Chooses the size of the burst so large that waiting for it differs clearly from the time of a
 * read.
 */
int probe_calibrate_burst(struct probe *p, const uint32_t *zones, uint32_t nr, struct zns_err *err)
{
	uint32_t few = zns_min(nr, 4u);
	int ret = alone(p, zones, few, false, 1, SAMPLES, &p->single_ns, err);

	for (p->burst = 8; !ret; p->burst = zns_min(p->burst + p->burst / 2, PROBE_BURST_MAX)) {
		ret = alone(p, zones, few, false, p->burst, SAMPLES, &p->burst_ns, err);
		if (!ret &&
		    (p->burst_ns >= BURST_READS * p->single_ns || p->burst == PROBE_BURST_MAX))
			break;
	}
	return ret ? ret : spread_out(p, zones, nr, err);
}

/*
 * Measures the pace of a zone's die, since dies may differ in speed. If it is not the usual pace,
 * makes the burst so long that a read of a slow die differs from waiting for a fast one.
 */
static int know_pace(struct probe *p, uint32_t zone, struct zns_err *err)
{
	uint64_t ns = 0;
	double pace, reads;
	int ret;

	if (p->pace[zone] > 0 || p->readable[zone] < p->unit)
		return 0;
	ret = alone(p, &zone, 1, false, p->burst, 1, &ns, err);
	pace = (double)ns / p->burst_ns;
	if (!ret && (pace < PACE_LOW || pace > PACE_HIGH)) {
		ret = alone(p, &zone, 1, false, p->burst, PACE_SAMPLES, &ns, err);
		pace = (double)ns / p->burst_ns;
	}
	if (ret)
		return ret;
	p->pace[zone] = pace < PACE_LOW || pace > PACE_HIGH ? pace : 1;
	reads = BURST_READS * zns_max(pace, 1 / pace);
	if (p->pace[zone] == 1 || p->burst_ns >= reads * p->single_ns ||
	    p->burst == PROBE_BURST_MAX)
		return 0;
	pace = (double)(p->burst_ns - zns_min(p->burst_ns, p->single_ns)) / (p->burst - 1);
	reads = ceil((reads * p->single_ns - p->single_ns) / zns_max(pace, 1.0)) + 1;
	p->burst = reads < PROBE_BURST_MAX ? (uint32_t)reads : PROBE_BURST_MAX;
	p->burst_ns = p->single_ns + (uint64_t)(pace * (p->burst - 1));
	return 0;
}

/*
 * Is the zone, or another zone of its die, among the controls? Two controls of one die would wait
 * for each other, which looks as if they waited for the burst.
 */
static bool beside(const struct probe *p, const struct controls *c, uint32_t zone)
{
	uint32_t group = p->map->zone_group[zone];

	for (uint32_t i = 0; i < c->nr; i++)
		if (c->zone[i] == zone ||
		    (group != ZNS_PROBE_NONE && p->map->zone_group[c->zone[i]] == group))
			return true;
	return false;
}

/*
 * Picks control zones for a vote on @a and @b, from other groups if groups are known. Otherwise any
 * zone may be used: most are on other dies, and each vote uses other zones.
 */
static void pick_controls(struct probe *p, uint32_t a, uint32_t b, struct controls *c)
{
	uint32_t ga = p->map->zone_group[a], gb = p->map->zone_group[b], any[CONTROLS], nr_any = 0;

	c->nr = c->sure = 0;
	/* the pivots of other groups, if they are readable */
	for (uint32_t tries = 0; tries < CONTROLS && p->map->nr_groups &&
				 (ga != ZNS_PROBE_NONE || gb != ZNS_PROBE_NONE);
	     tries++) {
		uint32_t g = probe_random(p, p->map->nr_groups), z = p->map->pivot[g];

		if (!beside(p, c, z) && g != ga && g != gb && z != a && z != b && p->have[z])
			c->zone[c->nr++] = z;
	}
	for (uint32_t tries = 0; p->nr_ours && tries < 4 * CONTROLS && c->nr < CONTROLS; tries++) {
		uint32_t z = p->ours[probe_random(p, p->nr_ours)], g = p->map->zone_group[z], i;
		/*
		 * The control is on another die than one of the two zones, so it must not wait for
		 * that one.
		 */
		bool other = g != ZNS_PROBE_NONE && (ga != ZNS_PROBE_NONE || gb != ZNS_PROBE_NONE);

		if (z == a || z == b || (g != ZNS_PROBE_NONE && (g == ga || g == gb)))
			continue;
		if (other && !beside(p, c, z))
			c->zone[c->nr++] = z;
		for (i = 0; i < nr_any && any[i] != z; i++)
			;
		if (i == nr_any && nr_any < CONTROLS && !other)
			any[nr_any++] = z;
	}
	c->sure = c->nr;
	/*
	 * If one control is certainly on another die, uncertain ones would only do harm: all of
	 * them may be on one die.
	 */
	for (uint32_t i = 0; !c->sure && i < nr_any && c->nr < CONTROLS; i++)
		c->zone[c->nr++] = any[i];
}

/*
 * Did a control that is certainly on another die wait, or at least half of those that only probably
 * are?
 */
static bool controls_waited(const struct controls *c, uint64_t time, const uint64_t *after)
{
	uint32_t late = 0;

	for (uint32_t i = 0; i < c->nr; i++) {
		if (judge(time, after[i]) == QUICK)
			continue;
		if (i < c->sure)
			return true;
		late++;
	}
	return late && late * 2 >= c->nr - c->sure;
}

/* Did the burst take an unusual time? Then other zones may have waited for the same cause. */
static bool disturbed(struct probe *p, uint32_t zone, uint64_t own)
{
	/*
	 * Noise makes nothing faster, so the usual time was disturbed. A zone with less than a unit
	 * is not considered: reading the same few pages again and again may be faster.
	 */
	if (own * 5 < usual(p, zone) * 3 && p->readable[zone] == p->unit) {
		if (p->pace[zone] > 0 && p->pace[zone] != 1)
			p->pace[zone] = (double)own / p->burst_ns;
		else
			p->burst_ns = own;
		return true;
	}
	return own * 5 > usual(p, zone) * 8;
}

int probe_suspects(struct probe *p, uint32_t zone, const uint32_t *others, uint32_t nr,
		   uint32_t *out, uint32_t *nr_out, bool *told, struct zns_err *err)
{
	int ret = know_pace(p, zone, err);

	*nr_out = 0;
	*told = true;
	if (ret)
		return ret;
	for (uint32_t at = 0; at < nr;) {
		uint32_t n = zns_min(nr - at, p->set_max), good = 0, left = n, spoiled = 0;
		bool late[PROBE_SET_MAX];

		memset(late, true, sizeof(late));
		/*
		 * At most one of them is on the die. A zone that waits each time is a suspect; one
		 * quick read clears it.
		 */
		while (left > (good ? 1 : 0) && good < TRIES) {
			uint64_t own, after[PROBE_SET_MAX];
			ret = burst(p, &zone, 1, p->burst, others + at, n, &own, after, err);

			if (!ret && ++p->races && disturbed(p, zone, own)) {
				p->spoiled++;
				ret = probe_hopeless(p, err);
				if (!ret && ++spoiled < VOIDS_MAX)
					continue;
				*told = false;
				return ret;
			}
			if (ret)
				return ret;
			good++;
			for (uint32_t i = left = 0; i < n; i++)
				left += late[i] &= judge(usual(p, zone), after[i]) != QUICK;
		}
		/* More than two always waited, but at most one can be on the die of @zone. So they
		 * waited for each other: try fewer at once. */
		if (left > 2 && n > 4) {
			p->set_max = zns_max(n / 2, 4u);
			continue;
		}
		for (uint32_t i = 0; i < n; i++)
			if (late[i])
				out[(*nr_out)++] = at + i;
		at += n;
	}
	return 0;
}

/* The weight of one vote, from how often votes were outvoted so far. */
static double weight(const struct probe *p)
{
	double wrong = (p->dissents + 3.0) / (p->votes + 60.0);

	wrong = zns_min(zns_max(wrong, 0.003), 0.4);
	return log((1 - wrong) / wrong);
}

/* Does @b wait for a burst on @a? *spoiled: the vote was disturbed and is not valid. */
static int vote(struct probe *p, uint32_t a, uint32_t b, bool *waited, bool *spoiled,
		struct zns_err *err)
{
	uint32_t others[1 + CONTROLS] = { b };
	uint64_t own, time, after[1 + CONTROLS];
	struct controls c;
	int ret;

	ret = know_pace(p, a, err);
	if (!ret)
		ret = know_pace(p, b, err);
	if (ret)
		return ret;
	pick_controls(p, a, b, &c);
	memcpy(others + 1, c.zone, c.nr * sizeof(*c.zone));
	ret = burst(p, &a, 1, p->burst, others, 1 + c.nr, &own, after, err);
	if (ret)
		return ret;
	time = usual(p, a);
	*waited = judge(time, after[0]) == WAITED;
	*spoiled = disturbed(p, a, own) || judge(time, after[0]) == ODD ||
		   (*waited && controls_waited(&c, time, after + 1));
	p->races++;
	p->spoiled += *spoiled;
	return *spoiled ? probe_hopeless(p, err) : 0;
}

int probe_same_die(struct probe *p, uint32_t a, uint32_t b, bool quick_no, int *same, float *conf,
		   struct zns_err *err)
{
	uint32_t yes = 0, no = 0, void_votes = 0;
	double odds = 0;

	*same = -1;
	*conf = 0;
	while (yes + no < VOTES_MAX && void_votes < VOIDS_MAX) {
		bool swap = (yes + no) % 2, waited, spoiled;
		int ret = vote(p, swap ? b : a, swap ? a : b, &waited, &spoiled, err);

		if (ret)
			return ret;
		void_votes += spoiled;
		if (spoiled)
			continue;
		*(waited ? &yes : &no) += 1;
		odds = (yes > no ? yes - no : no - yes) * weight(p);
		if (yes + no >= 2 && odds >= SURE)
			break;
		if (quick_no && no && !yes) {
			*same = 0;
			return 0;
		}
	}
	p->votes += yes + no;
	p->dissents += zns_min(yes, no);
	*conf = 1 / (1 + exp(-odds));
	if (odds >= SURE)
		*same = yes > no;
	return 0;
}
