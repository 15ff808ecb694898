/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The measurements: who waits for whom, and for how long. */
#include <math.h>
#include <string.h>

#include "probe_priv.h"

#define VOTES_MAX	25
#define SURE		11.5	/* log odds: wrong once in 100,000 */

int probe_race(struct probe *p, const struct zns_race *r, uint32_t nr, struct zns_err *err)
{
	if (probe_stopped(p))
		return zns_fail(err, -EINTR, "interrupted");
	for (uint32_t i = 0; i < nr; i++) {
		if (r[i].write)
			continue;
		p->map->reads += r[i].count;
		p->map->read_bytes += (uint64_t)r[i].count * r[i].len;
	}
	return zns_dev_race(p->d, r, nr, err);
}

/* The k-th small read of a zone: another page each time, as far as there are. */
static struct zns_race small(struct probe *p, uint32_t zone, uint32_t k, uint32_t slot, uint64_t *done)
{
	uint32_t len = zns_min(p->small, p->readable[zone]);
	uint32_t pages = zns_max(p->readable[zone] / (uint32_t)PROBE_PAGE, 1u);

	return (struct zns_race) { .zone = zone, .off = k % pages * PROBE_PAGE, .len = len, .count = 1,
				   .buf = p->rbuf + (size_t)slot * p->small, .done_ns = done };
}

/* And the next page, if there is one. */
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
 * A burst on @zone and, behind it, two reads of each of @others, one after the other; @after: how long those took. The
 * second comes when the burst is in the die's queue for certain, in whatever order the first ones arrived.
 */
static int burst(struct probe *p, uint32_t zone, uint32_t size, const uint32_t *others, uint32_t nr, uint64_t *own,
		 uint64_t *after, struct zns_err *err)
{
	struct zns_race r[PROBE_BURST_MAX + PROBE_SET_MAX];
	uint64_t done[PROBE_BURST_MAX] = { 0 }, behind[2 * PROBE_SET_MAX] = { 0 };
	int rc;

	for (uint32_t i = 0; i < size; i++)
		r[i] = small(p, zone, i, i, &done[i]);
	for (uint32_t i = 0; i < nr; i++) {
		r[size + i] = small(p, others[i], p->votes + i, size + i, &behind[2 * i]);
		twice(p, &r[size + i]);
	}
	rc = probe_race(p, r, size + nr, err);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < nr; i++)
		after[i] = behind[2 * i + r[size + i].count - 1];
	for (uint32_t i = *own = 0; i < size; i++)
		*own = zns_max(*own, done[i]);
	return 0;
}

static int alone(struct probe *p, const uint32_t *zones, uint32_t nr, uint32_t size, uint64_t *ns, struct zns_err *err)
{
	double v[64];
	uint32_t n = 0;

	for (uint32_t k = 0; k < 64 / zns_max(nr, 1u); k++) {
		for (uint32_t i = 0; i < nr; i++) {
			uint64_t own;
			int rc = burst(p, zones[i], size, NULL, 0, &own, NULL, err);

			if (rc)
				return rc;
			v[n++] = own;
		}
	}
	*ns = probe_median(v, n);
	return 0;
}

/* So large that waiting for a burst cannot be mistaken for a read's own time. */
int probe_calibrate_burst(struct probe *p, const uint32_t *zones, uint32_t nr, struct zns_err *err)
{
	int rc = alone(p, zones, nr, 1, &p->single_ns, err);

	for (p->burst = 8; !rc; p->burst = zns_min(p->burst + p->burst / 2, PROBE_BURST_MAX)) {
		rc = alone(p, zones, nr, p->burst, &p->burst_ns, err);
		if (!rc && (p->burst_ns >= 8 * p->single_ns || p->burst == PROBE_BURST_MAX))
			break;
	}
	return rc;
}

static bool waited(const struct probe *p, uint64_t ns)
{
	return ns > p->burst_ns / 2;
}

int probe_suspects(struct probe *p, uint32_t zone, const uint32_t *groups, uint32_t nr, uint32_t *out, uint32_t *nr_out,
		   struct zns_err *err)
{
	*nr_out = 0;
	for (uint32_t at = 0; at < nr;) {
		uint32_t n = zns_min(nr - at, p->set_max), pivots[PROBE_SET_MAX], late = 0;
		uint64_t own, after[PROBE_SET_MAX];
		int rc;

		for (uint32_t i = 0; i < n; i++)
			pivots[i] = p->map->pivot[groups[at + i]];
		rc = burst(p, zone, p->burst, pivots, n, &own, after, err);
		if (rc)
			return rc;
		for (uint32_t i = 0; i < n; i++)
			late += waited(p, after[i]);
		/* at most one is on the die: so many wait for something that all use */
		if (late > 2 && n > 4) {
			p->set_max = zns_max(n / 2, 4u);
			continue;
		}
		for (uint32_t i = 0; i < n; i++)
			if (waited(p, after[i]))
				out[(*nr_out)++] = groups[at + i];
		at += n;
	}
	return 0;
}

/* What one vote is worth, by how often votes were overruled so far. */
static double weight(const struct probe *p)
{
	double wrong = (p->dissents + 3.0) / (p->votes + 60.0);

	wrong = zns_min(zns_max(wrong, 0.003), 0.4);
	return log((1 - wrong) / wrong);
}

int probe_same_die(struct probe *p, uint32_t a, uint32_t b, uint32_t control, bool quick_no, int *same, float *conf,
		   struct zns_err *err)
{
	uint32_t yes = 0, no = 0, void_votes = 0;
	double odds = 0;

	*same = -1;
	while (yes + no < VOTES_MAX) {
		bool swap = (yes + no) % 2;
		uint32_t others[2] = { swap ? a : b, control };
		uint64_t own, after[2];
		int rc = burst(p, swap ? b : a, p->burst, others, control == ZNS_PROBE_NONE ? 1 : 2, &own, after, err);

		if (rc)
			return rc;
		if (control != ZNS_PROBE_NONE && waited(p, after[0]) && waited(p, after[1])) {
			if (++void_votes == VOTES_MAX)
				break;
			continue;
		}
		*(waited(p, after[0]) ? &yes : &no) += 1;
		odds = (yes > no ? yes - no : no - yes) * weight(p);
		if (yes + no >= 2 && odds >= SURE)
			break;
		if (quick_no && no && !yes) {
			*same = 0;
			*conf = 0;
			return 0;
		}
	}
	p->votes += yes + no;
	p->dissents += zns_min(yes, no);
	*conf = 1 / (1 + exp(-odds));
	if (odds >= SURE / 2)
		*same = yes > no;
	return 0;
}

int probe_read_units(struct probe *p, uint32_t a, uint32_t b, uint64_t *ns, struct zns_err *err)
{
	uint64_t done[2] = { 0, 0 };
	struct zns_race r[2] = {
		{ .zone = a, .len = p->readable[a], .count = 1, .buf = p->rbuf, .done_ns = &done[0] },
	};
	int rc;

	if (b != ZNS_PROBE_NONE)
		r[1] = (struct zns_race) { .zone = b, .len = p->readable[b], .count = 1, .buf = p->rbuf + p->unit,
					   .done_ns = &done[1] };
	rc = probe_race(p, r, b == ZNS_PROBE_NONE ? 1 : 2, err);
	*ns = zns_max(done[0], done[1]);
	return rc;
}

int probe_write_together(struct probe *p, const uint32_t *zones, uint32_t nr, uint32_t count, double *mibps, struct zns_err *err)
{
	struct zns_race r[PROBE_WRITE_BATCH] = { 0 };
	cleanup_free uint64_t *done = calloc((size_t)nr * count, sizeof(*done));
	uint32_t skip = zns_min(count / 2, 6u);
	int rc;

	if (!done)
		return zns_fail(err, -ENOMEM, "no memory for %u clients", nr);
	rc = probe_spend(p, (uint64_t)nr * count * p->unit, err);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < nr; i++) {
		probe_fill(p, p->wbuf + (size_t)i * p->unit, zones[i]);
		r[i] = (struct zns_race) { .write = true, .zone = zones[i], .len = p->unit, .count = count,
					   .buf = p->wbuf + (size_t)i * p->unit, .done_ns = done + (size_t)i * count };
		p->have[zones[i]] = count;
		p->readable[zones[i]] = p->unit;
		p->nr_ours++;
	}
	rc = probe_race(p, r, nr, err);
	*mibps = 0;
	for (uint32_t i = 0; !rc && i < nr; i++) {
		const uint64_t *t = done + (size_t)i * count;

		*mibps += (double)(count - 1 - skip) * p->unit / MIB(1) / ((t[count - 1] - t[skip] + 1) / 1e9);
	}
	for (uint32_t i = 0; !rc && i < nr && p->d->geo.max_open; i++)
		rc = zns_dev_close_zone(p->d, zones[i], err);
	return rc ? rc : zns_dev_flush(p->d, err);
}

/* Four commands in flight, each client on its own quarter. */
int probe_read_rate(struct probe *p, uint32_t zone, uint32_t units, double *mibps, struct zns_err *err)
{
	uint32_t clients = zns_min(units, 4u), each = units / clients;
	cleanup_free uint64_t *done = calloc(units, sizeof(*done));
	struct zns_race r[4] = { 0 };
	uint64_t end = 1;
	int rc;

	if (!done)
		return zns_fail(err, -ENOMEM, "no memory for %u reads", units);
	for (uint32_t i = 0; i < clients; i++)
		r[i] = (struct zns_race) { .zone = zone, .off = (uint64_t)i * each * p->unit, .len = p->unit, .count = each,
					   .buf = p->rbuf + (size_t)i * p->unit, .done_ns = done + i * each };
	rc = probe_race(p, r, clients, err);
	for (uint32_t i = 0; i < clients * each; i++)
		end = zns_max(end, done[i]);
	*mibps = (double)clients * each * p->unit / MIB(1) / (end / 1e9);
	return rc;
}
