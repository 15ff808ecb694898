/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Measures how much longer it takes to read two dies at once than one alone. Each sample is taken
 * between two reads of one die alone, and is valid only if these took their usual time.
 */
#include <math.h>

#include "probe_priv.h"

#define SOLO 16u /* samples of one die alone */
#define SAMPLES PROBE_LOSS_MAX
#define JITTER 24u /* samples of a pair from which the variation of times is computed */
#define ALONE 0.15 /* a die alone is disturbed if its time exceeds the usual one by this part */

/* Measures @n times: reading both dies at once, or @a alone if @b is ZNS_PROBE_NONE. */
static int samples(struct probe *p, uint32_t a, uint32_t b, double *v, uint32_t n,
		   struct zns_err *err)
{
	for (uint32_t i = 0; i < n; i++) {
		uint64_t ns;
		int ret = probe_read_units(p, i % 2 && b != ZNS_PROBE_NONE ? b : a,
					   i % 2 && b != ZNS_PROBE_NONE ? a : b, &ns, err);

		if (ret)
			return ret;
		v[i] = ns;
	}
	return 0;
}

/* Returns the time of one die alone, which is measured once for each zone. */
static int solo(struct probe *p, uint32_t zone, double *ns, struct zns_err *err)
{
	double v[SOLO];
	int ret;

	if (p->solo_ns[zone] <= 0) {
		ret = samples(p, zone, ZNS_PROBE_NONE, v, SOLO, err);
		if (ret)
			return ret;
		p->solo_ns[zone] = probe_quartile(v, SOLO);
	}
	*ns = p->solo_ns[zone];
	return 0;
}

/* Does one die alone take its usual time at this moment? */
static int undisturbed(struct probe *p, uint32_t zone, bool *yes, struct zns_err *err)
{
	double ns, usual = p->solo_ns[zone];
	int ret = samples(p, zone, ZNS_PROBE_NONE, &ns, 1, err);

	*yes = !ret && ns < usual * (1 + zns_max(ALONE, 2 * p->jitter));
	/* it is much faster than usual, so the usual time was measured during a disturbance */
	if (!ret && ns < usual * (1 - zns_max(ALONE, 2 * p->jitter)))
		p->solo_ns[zone] = ns;
	return ret;
}

/*
 * Reads both dies at once, between reads of one die alone as a control. A sample is valid if the
 * controls took their usual time. Takes up to @n samples; *got may be less.
 */
static int controlled(struct probe *p, uint32_t a, uint32_t b, double *v, uint32_t n, uint32_t *got,
		      struct zns_err *err)
{
	bool before;
	int ret = undisturbed(p, b, &before, err);

	*got = 0;
	for (uint32_t i = 0; !ret && *got < n && i < 4 * n; i++) {
		bool after = false;

		ret = samples(p, i % 2 ? b : a, i % 2 ? a : b, &v[*got], 1, err);
		if (!ret)
			ret = undisturbed(p, i % 2 ? b : a, &after, err);
		*got += before && after;
		before = after;
	}
	return ret;
}

int probe_loss(struct probe *p, uint32_t a, uint32_t b, uint32_t n, double *ratio, double *spread,
	       struct zns_err *err)
{
	double v[SAMPLES + 1], x, y, low;
	uint32_t got;
	int ret = solo(p, a, &x, err);

	n = zns_min(n, SAMPLES);
	if (!ret)
		ret = solo(p, b, &y, err);
	if (!ret)
		ret = controlled(p, a, b, v, n, &got, err);
	if (ret)
		return ret;
	*ratio = 1;
	*spread = PROBE_UNTOLD;
	if (got < n)
		return 0;
	x = zns_max(p->solo_ns[a], p->solo_ns[b]);
	low = probe_quartile(v, n);
	*ratio = low / x;
	/*
	 * The standard deviation of a lower quartile, from the width of the faster half. It is
	 * large if disturbances reach into that half.
	 */
	*spread = 0.87 * zns_max((v[n / 2] - v[0]) / x, p->jitter) / sqrt(n);
	if (*ratio >= 1 - zns_max(PROBE_GAP, 4 * *spread))
		return 0;
	/*
	 * Two at once cannot be faster than the slower one alone, so the time alone was disturbed:
	 * measure it again.
	 */
	p->solo_ns[a] = p->solo_ns[b] = 0;
	*ratio = 1;
	*spread = PROBE_UNTOLD;
	return 0;
}

int probe_jitter(struct probe *p, uint32_t a, uint32_t b, struct zns_err *err)
{
	double v[JITTER], low;
	int ret = samples(p, a, b, v, JITTER, err);

	if (ret)
		return ret;
	low = probe_quartile(v, JITTER);
	p->jitter = zns_min((v[JITTER / 2] - v[0]) / low, p->jitter);
	return 0;
}
