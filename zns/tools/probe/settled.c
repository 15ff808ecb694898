/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Does a flush empty the write cache? If capacitors protect the cache, a flush need not wait for
 * the medium, and then all measured times of writes are only those of the cache. But data in the
 * cache are read faster than data on the medium, or, if not, these reads wait for the programs. So
 * a zone is read right after a flush and some time later. If the flush has written all data to the
 * medium, both reads take the same time.
 */
#include "probe_priv.h"

/*
 * number of rounds: a busy host changes the times of reads too, but not in the same direction each
 * time
 */
#define TRIES 3u
#define UNITS 40u
#define READS 32u
/* Ratio of the second time to the first: if it is larger, a flush does not empty the cache. */
#define CHANGED 1.2
#define WAIT 30u /* the second read comes after this multiple of the time of the write */
#define WAIT_MAX_NS UINT64_C(1000000000)

/* Measures the usual time of a small read. */
static int read_time(struct probe *p, uint32_t zone, double *ns, struct zns_err *err)
{
	uint64_t done[READS];
	struct zns_race r = { .zone = zone,
			      .len = p->small,
			      .count = READS,
			      .step = (uint64_t)READS * PROBE_PAGE <= p->unit ?
					      (uint32_t)PROBE_PAGE :
					      p->small,
			      .buf = p->rbuf,
			      .done_ns = done };
	double v[READS];
	int ret;

	r.count = zns_min(READS, p->unit / r.step);
	ret = probe_race(p, &r, 1, err);
	for (uint32_t i = 0; i < r.count; i++)
		v[i] = done[i] - (i ? done[i - 1] : 0);
	*ns = probe_median(v, r.count);
	return ret;
}

/* Measures the time of a small read right after a flush, and some time later. */
static int look(struct probe *p, uint32_t zone, double *first, double *last, struct zns_err *err)
{
	uint32_t units = zns_min(UNITS, (uint32_t)(p->d->geo.zone_capacity / p->unit));
	uint64_t start;
	double ns;
	int ret = probe_write_timed(p, &zone, 1, units, &ns, err);

	if (!ret)
		ret = read_time(p, zone, first, err);
	start = zns_dev_now_ns(p->d);
	ns = zns_min(ns * WAIT, (double)WAIT_MAX_NS);
	*last = *first;
	while (!ret && zns_dev_now_ns(p->d) - start < ns)
		ret = read_time(p, zone, last, err);
	return ret ? ret : probe_drop(p, &zone, 1, err);
}

int probe_settled(struct probe *p, struct zns_err *err)
{
	double first = 0, last = 0;
	uint32_t zones[TRIES], n = probe_pick_empty(p, zones, TRIES), slower = 0, quicker = 0;

	for (uint32_t i = 0; i < n; i++) {
		int ret = look(p, zones[i], &first, &last, err);

		if (ret)
			return ret;
		slower += last > CHANGED * first;
		quicker += last * CHANGED < first;
		if (slower <= i && quicker <= i)
			return 0;
	}
	return !n ? 0 :
		    zns_fail(
			    err, -EAGAIN,
			    "cannot be measured: a small read of what was just written takes %.0f us right after a flush and %.0f us later, so writes go into a cache that a flush does not empty; nothing is stored",
			    first / 1e3, last / 1e3);
}
