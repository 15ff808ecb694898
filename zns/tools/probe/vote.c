/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which zone waits for which? A burst of small reads goes to one zone, and other zones are read behind
 * it. A zone that has to wait lies on the same die. A disturbance usually hits a whole measurement:
 * the host does not run, or all dies collect garbage, and then every zone seems to wait. So a vote
 * counts only if the burst took its usual time and the controls, zones on other dies, did not wait.
 */
#include <math.h>
#include <string.h>

#include "probe_priv.h"

#define CONTROLS 3u
#define VOTES_MAX 25u
#define VOIDS_MAX 40u /* after this many disturbed votes a question is put off */
#define SURE 11.5 /* log odds at which an answer counts: wrong once in 100,000 */
#define BURST_READS 8 /* length of a burst, in reads one after another */
#define TRIES 6u /* tries to reduce the suspects to one */
#define SAMPLES 64u /* samples of a burst's time */
#define SPREAD_LEAST 8u /* least number of zones over which a burst is spread */
#define SPREAD_SETS 8u
#define SPREAD_SCALING \
	1.6 /* times one zone's rate: zones that scale less in writes may do so in reads */
#define PACE_LOW 0.75 /* a die with a pace between these two counts as one of the usual pace */
#define PACE_HIGH 1.35
#define PACE_SAMPLES 9u
/* Part of a burst's time on one zone: a spread burst that slow does not wait for dies. */
#define AS_SLOW 0.85

/* Relative to a burst's usual time: @QUICK did not wait for it, @WAITED did, @ODD waited for
 * something else. */
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

/* The k-th small read of a zone. Uses another page each time, while there are more. */
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

/* Turns a single read into two, of different pages if the zone has more than one. */
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
 * Sends a burst of @size reads to @zones in turn, and two reads to each of @others. The first of the two
 * may arrive before the burst; at the second one the burst is in the die's queue for certain.
 * *own: the time of the burst; @after: those of the second reads.
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

/* The time of a burst of @size on one zone, or with @spread over all of them. */
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

/* The same burst must be faster over many zones. Otherwise its time comes from the host, not
 * from a die. Tries several sets: the zones of one set may share few dies by chance. */
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
	/* zones that are hardly faster together when written may be so when read */
	if (best < AS_SLOW * p->burst_ns || p->map->scaling < SPREAD_SCALING)
		return 0;
	return zns_fail(
		err, -EAGAIN,
		"cannot be measured: a burst of %u reads takes as long when spread over %u zones (%.2f ms) as on one (%.2f ms), although zones are written independently: what takes the time is not a die but the host, the link or a cache; nothing is stored",
		p->burst, nr, best / 1e6, p->burst_ns / 1e6);
}

/* Makes the burst so large that a wait for it differs clearly from a read's own time. */
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

/* Measures the pace of a zone's die, since dies need not be equally fast. If it is not the usual one,
 * makes the burst so long that a read of a slow die differs from a wait for a quick one. */
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

/* Is the zone, or another one of its die, among the controls? Two controls of one die would wait
 * for each other, as if for the burst. */
static bool beside(const struct probe *p, const struct controls *c, uint32_t zone)
{
	uint32_t group = p->map->zone_group[zone];

	for (uint32_t i = 0; i < c->nr; i++)
		if (c->zone[i] == zone ||
		    (group != ZNS_PROBE_NONE && p->map->zone_group[c->zone[i]] == group))
			return true;
	return false;
}

/* Picks control zones for a vote on @a and @b, from other groups if groups are known. Otherwise
 * any zone will do: most are on other dies, and each vote uses others. */
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
		/* It is on another die than a zone in question, so it must not wait for that one. */
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
	/* Beside a control that is certainly on another die, uncertain ones would only do harm: all
	 * of them may be on one die. */
	for (uint32_t i = 0; !c->sure && i < nr_any && c->nr < CONTROLS; i++)
		c->zone[c->nr++] = any[i];
}

/* Did a control on another die wait, or at least half of the controls that are only likely on
 * another die? */
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

/* Did the burst take an unusual time? Then other zones may have waited for the cause of that. */
static bool disturbed(struct probe *p, uint32_t zone, uint64_t own)
{
	/* Noise makes nothing faster, so it was the usual time that was disturbed. A zone with less
	 * than a unit does not count: the same few pages again and again may be read quicker. */
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
		/* At most one of them is on the die. A zone that waits each time is suspect; one
		 * quick read clears it. */
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
		/* that many cannot share the die, so they wait for each other: try fewer at once */
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

/* The weight of one vote, from how often votes were overruled so far. */
static double weight(const struct probe *p)
{
	double wrong = (p->dissents + 3.0) / (p->votes + 60.0);

	wrong = zns_min(zns_max(wrong, 0.003), 0.4);
	return log((1 - wrong) / wrong);
}

/* Does @b wait for a burst on @a? If *spoiled, the vote was disturbed and does not count. */
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
