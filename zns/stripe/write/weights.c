/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Weights that follow the speeds of the zones. While a dump runs, a lane may become slower because
 * another dump came to its die, and fast again when that one ends. Every write is timed. If the
 * known units would be written notably earlier with another distribution, the segment ends and the
 * next one has other weights: first such that all lanes finish what they already have at the same
 * time, then in proportion to their rates.
 *
 * Units that have a place but were not taken by a worker are taken back and distributed again. All
 * code here runs under the writer's lock.
 */
#include <math.h>
#include <string.h>
#include "writer.h"

#define RUN 3 /* writes in one sample: several, since a device programs in units of another size */
#define WINDOW 4 /* samples over which a lane's rate is averaged */
/* weights are only changed if that saves at least this part of the time; less may be noise */
#define GAIN 0.04
#define SIGMAS 2.0
#define HORIZON 16 /* how many units of each lane a plan covers */
/* if two consecutive samples differ from the mean by this part, in the same direction, the lane has
 * another rate now */
#define STEP 0.12
#define GRAIN 1.5 /* in units: a smaller gain only comes from rounding to whole units */
#define APART 6 /* between two changes of weights each lane must write at least this many units */
/* between two changes of weights all lanes together must write 1/64 of all units so far, so that
 * the number of changes only grows with the logarithm of the number of units */
#define CHANGES 64
/* weights are the smallest whole numbers that are in proportion to the rates, with an error of at
 * most this part */
#define TOLERANCE 0.05

static double lane_rate(const struct lane *l) /* in bytes per ns */
{
	return l->ns_per_byte > 0 ? 1 / l->ns_per_byte : 0;
}

void weights_sample(struct lane *l, const struct wzone *z, uint64_t off, uint64_t len,
		    uint64_t start_ns, uint64_t ns, bool paced)
{
	bool in_row = start_ns <= l->end_ns + ns / 4;
	uint64_t before = l->end_ns;
	double x, part, off_mean;

	l->end_ns = start_ns + ns;
	l->row = (uint8_t)(l->row << 1 | in_row);
	/*
	 * Two kinds of samples tell nothing about the zone: the first writes to an idle zone, which
	 * its buffer accepts at once, and writes that the token bucket slowed down. Then the known
	 * rate is kept until the lane is limited by its zone again.
	 */
	if (off < z->slot.start + 2 * len || (!in_row && (!l->samples || paced))) {
		l->run = 0;
		return;
	}
	/* If the last write of a full zone and the first one of the next zone overlap, count the
	 * common time once. */
	if (!l->run++)
		l->run_ns = l->run_bytes = 0;
	l->run_ns += l->end_ns - zns_min(zns_max(start_ns, before), l->end_ns);
	l->run_bytes += len;
	if (l->run < RUN)
		return;
	l->run = 0;
	x = (double)l->run_ns / (double)l->run_bytes;
	off_mean = x / l->ns_per_byte - 1;
	if (l->samples > 1 && fabs(off_mean) > STEP && fabs(l->last / l->ns_per_byte - 1) > STEP &&
	    (off_mean > 0) == (l->last > l->ns_per_byte)) {
		l->samples = 1;
		l->ns_per_byte = l->last;
		l->deviation = 0;
	}
	l->last = x;
	l->samples++; /* incremented here, since zns_min would evaluate it twice */
	part = 1.0 / zns_min(l->samples, (uint32_t)WINDOW);
	l->deviation += (fabs(x - l->ns_per_byte) * (l->samples > 1) - l->deviation) * part;
	l->ns_per_byte += (x - l->ns_per_byte) * part;
}

/* Does the lane write without a pause, so that only its zone limits it? */
bool weights_saturated(const struct lane *l)
{
	return __builtin_popcount(l->row & 0xf) >= 3;
}

/*
 * Fills in the rates of all lanes. A lane that is not always busy may be faster than its samples:
 * it counts as fast as the fastest busy lane. But if the token bucket limits the dump, it keeps its
 * last rate. False: rates are not known, or no lane is limited by its zone.
 */
NEEDS_LOCK static bool rates(const struct zns_writer *w, double *rate, double *chance)
{
	double fastest = 0, most;

	*chance = 0;
	for (uint32_t i = 0; i < w->lanes.nr; i++) {
		const struct lane *l = &w->lanes.v[i];

		if (l->ns_per_byte <= 0)
			return false;
		rate[i] = lane_rate(l);
		if (weights_saturated(l)) {
			fastest = zns_max(fastest, rate[i]);
			*chance = zns_max(*chance, l->deviation / l->ns_per_byte);
		}
	}
	*chance *= SIGMAS / sqrt(WINDOW);
	most = fastest;
	if (w->bucket && zns_bucket_rate(w->bucket))
		most = zns_max(most, (double)MIB(w->zone_mibps) / 1e9);
	for (uint32_t i = 0; i < w->lanes.nr; i++)
		if (!weights_saturated(&w->lanes.v[i]))
			rate[i] = zns_min(rate[i], most);
	return fastest > 0;
}

/*
 * Distributes @bytes more such that all lanes finish at the same time, including the backlog of
 * each. @part gets the bytes of each lane. Returns that time.
 */
NEEDS_LOCK static double deal(const struct zns_writer *w, const double *rate, double bytes,
			      double *part)
{
	bool out[ZNS_STRIPE_MAX_WIDTH] = { false }, again = true;
	double end = 0;

	while (again) {
		double sum = bytes, all = 0;

		for (uint32_t i = 0; i < w->lanes.nr; i++) {
			if (out[i])
				continue;
			sum += (double)w->lanes.v[i].backlog;
			all += rate[i];
		}
		end = sum / all;
		again = false;
		for (uint32_t i = 0; i < w->lanes.nr; i++) {
			part[i] = out[i] ? 0 : end * rate[i] - (double)w->lanes.v[i].backlog;
			if (part[i] >= 0)
				continue;
			out[i] = again = true; /* the lane has more bytes queued than its share */
		}
	}
	return end;
}

/* Finds the smallest whole numbers up to @most that are approximately in proportion to @part; 0 for
 * a part that is almost nothing. */
static void whole_numbers(const double *part, uint32_t nr, bool none, uint32_t *weights)
{
	double largest = 0, best = HUGE_VAL;
	uint32_t scale = 1;

	for (uint32_t i = 0; i < nr; i++)
		largest = zns_max(largest, part[i]);
	for (uint32_t m = 1; m <= ZNS_STRIPE_MAX_WEIGHT && best > TOLERANCE; m++) {
		double worst = 0;

		for (uint32_t i = 0; i < nr; i++) {
			double want = part[i] * m / largest,
			       got = zns_max(round(want), none ? 0.0 : 1.0);

			worst = zns_max(worst, none ? fabs(got - want) / m :
						      fabs(got - want) / zns_max(want, 0.5));
		}
		if (worst >= best)
			continue;
		best = worst;
		scale = m;
	}
	for (uint32_t i = 0; i < nr; i++)
		weights[i] = (uint32_t)zns_max(round(part[i] * scale / largest), none ? 0.0 : 1.0);
}

/*
 * Which part of the time would a better distribution save? For @bytes more, it is compared with the
 * present weights; with @bytes 0, for the queued units. Gains that only come from rounding to whole
 * units do not count.
 */
NEEDS_LOCK static double gain(const struct zns_writer *w, const double *rate, double bytes)
{
	double part[ZNS_STRIPE_MAX_WIDTH], sum = 0, late = 0, end = 0, all = 0;

	for (uint32_t i = 0; i < w->lanes.nr; i++) {
		sum += w->lanes.v[i].weight;
		all += rate[i];
		end += (double)w->lanes.v[i].backlog;
	}
	end = bytes > 0 ? deal(w, rate, bytes, part) : end / all;
	for (uint32_t i = 0; i < w->lanes.nr; i++) {
		double mine = (double)w->lanes.v[i].backlog + bytes * w->lanes.v[i].weight / sum -
			      GRAIN * w->unit;

		late = zns_max(late, mine / rate[i] - end);
	}
	return end > 0 ? late / end : 0;
}

/* Takes away the place of a queued unit, which must be the last one in its zone. */
static void unplace(struct zns_writer *w, struct job *j)
{
	uint64_t len = zns_align_up(j->len, w->block);

	j->wz->pos -= len;
	j->lane->backlog -= len;
	j->lane->load -= zns_min(j->lane->load, len / j->lane->weight);
	j->wz = NULL;
	j->lane = NULL;
}

/* Finds units that can be distributed again: those of the image being written that are at the end
 * of the queue and that no worker has begun, as long as nothing behind them in their zones was
 * begun either. Returns how many there are; *first: the first of them. */
NEEDS_LOCK static uint32_t untouched(const struct zns_writer *w, uint64_t *first)
{
	uint64_t next = 0;
	uint32_t n = 0;

	if (!w->cur.img)
		return 0;
	for (const struct job *j = w->queue.first; j; j = j->next) {
		if (j->img != w->cur.img || j->k < w->cur.run_first)
			continue;
		/* the lane has already retired this zone, so the rest of the zone is not used any
		 * more */
		if (j->lane->wz != j->wz) {
			n = 0;
			continue;
		}
		if (!n || j->k != next) {
			*first = j->k;
			n = 0;
		}
		next = j->k + 1;
		n++;
	}
	return n && next == w->cur.img->nr_units ? n : 0;
}

/* Removes these units from the queue, in order, and takes their places away. */
NEEDS_LOCK static struct job *take_back(struct zns_writer *w, uint32_t nr, uint64_t first)
{
	struct zns_wimage *img = w->cur.img;
	struct job **p = &w->queue.first, *list = NULL, **tail = &list;

	if (!nr)
		return NULL;
	while (*p) {
		struct job *j = *p;

		if (j->img != img || j->k < first) {
			p = &j->next;
			continue;
		}
		*p = j->next;
		unplace(w, j);
		j->next = NULL;
		*tail = j;
		tail = &j->next;
	}
	w->queue.tail = p;
	w->queue.nr -= nr;
	image_cut(img, first * w->unit);
	return list;
}

NEEDS_LOCK static void put_back(struct zns_writer *w, struct job *list, uint32_t nr)
{
	while (list) {
		struct job *j = list;

		list = j->next;
		if (w->err.code || lanes_place_again(w, j, nr--)) {
			if (!j->data)
				j->img->ungathered--;
			job_free(w, j);
			continue;
		}
		queue_push(w, j);
	}
	writer_wake(w);
}

void weights_look(struct zns_writer *w, bool more)
{
	double rate[ZNS_STRIPE_MAX_WIDTH] = { 0 }, part[ZNS_STRIPE_MAX_WIDTH], chance;
	uint32_t weights[ZNS_STRIPE_MAX_WIDTH], ahead = HORIZON * w->lanes.nr, nr;
	struct job *list;
	uint64_t first = 0;

	if (w->err.code || w->lanes.placing || w->zones.nr_unrepaired || w->lanes.nr < 2 ||
	    w->tune.looked == w->tune.written)
		return;
	if (!w->tune.widened && !w->tune.told &&
	    w->tune.written < w->tune.changed + zns_max((uint64_t)APART * w->lanes.nr,
							w->tune.written / CHANGES))
		return;
	w->tune.looked = w->tune.written;
	if (!rates(w, rate, &chance))
		return;
	w->tune.told = false;
	nr = untouched(w, &first);
	if (nr < 2 * w->lanes.nr)
		nr = 0;
	if (!more && !nr)
		return; /* there is nothing to distribute */
	if (!w->tune.widened && gain(w, rate, more ? (double)ahead * w->unit : 0) <= GAIN + chance)
		return;
	w->tune.widened = false;
	placing_begin(w); /* cannot wait, since `placing` was false above */
	list = take_back(w, nr, first);
	lanes_end_segment(w);
	w->tune.changed = w->tune.written;
	w->stats.nr_reweighed++;
	w->tune.plan_units = nr ? nr : ahead;
	deal(w, rate, (double)w->unit * (double)w->tune.plan_units, part);
	whole_numbers(part, w->lanes.nr, true, w->tune.plan);
	whole_numbers(rate, w->lanes.nr, false, weights);
	for (uint32_t i = 0; i < w->lanes.nr; i++) {
		w->lanes.v[i].weight = weights[i];
		w->lanes.v[i].load = w->lanes.v[i].backlog / weights[i];
	}
	put_back(w, list, nr);
	placing_end(w);
}
