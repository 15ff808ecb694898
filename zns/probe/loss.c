/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What two dies lose when they are read at once, against one alone. Each sample stands between two
 * times of one alone: it counts only when these took their usual time.
 */
#include <math.h>

#include "probe_priv.h"

#define SOLO 16u /* samples of one alone */
#define SAMPLES PROBE_LOSS_MAX
#define JITTER 24u /* samples of two, to see how much they vary */
#define ALONE 0.15 /* more than usual is disturbed */

static int samples(struct probe *p, uint32_t a, uint32_t b, double *v, uint32_t n,
		   struct zns_err *err)
{
	for (uint32_t i = 0; i < n; i++) {
		uint64_t ns;
		int rc = probe_read_units(p, i % 2 && b != ZNS_PROBE_NONE ? b : a,
					  i % 2 && b != ZNS_PROBE_NONE ? a : b, &ns, err);

		if (rc)
			return rc;
		v[i] = ns;
	}
	return 0;
}

/* One alone, once for each zone. */
static int solo(struct probe *p, uint32_t zone, double *ns, struct zns_err *err)
{
	double v[SOLO];
	int rc;

	if (p->solo_ns[zone] <= 0) {
		rc = samples(p, zone, ZNS_PROBE_NONE, v, SOLO, err);
		if (rc)
			return rc;
		p->solo_ns[zone] = probe_quartile(v, SOLO);
	}
	*ns = p->solo_ns[zone];
	return 0;
}

/* Does one alone take its usual time now? */
static int undisturbed(struct probe *p, uint32_t zone, bool *yes, struct zns_err *err)
{
	double ns, usual = p->solo_ns[zone];
	int rc = samples(p, zone, ZNS_PROBE_NONE, &ns, 1, err);

	*yes = !rc && ns < usual * (1 + zns_max(ALONE, 2 * p->jitter));
	/* it was measured at a bad time */
	if (!rc && ns < usual * (1 - zns_max(ALONE, 2 * p->jitter)))
		p->solo_ns[zone] = ns;
	return rc;
}

/*
 * Two at once, between two times one alone, which are the control: a sample counts if those took
 * what they take. Up to
 * @n of them; *got may be less.
 */
static int controlled(struct probe *p, uint32_t a, uint32_t b, double *v, uint32_t n, uint32_t *got,
		      struct zns_err *err)
{
	bool before;
	int rc = undisturbed(p, b, &before, err);

	*got = 0;
	for (uint32_t i = 0; !rc && *got < n && i < 4 * n; i++) {
		bool after = false;

		rc = samples(p, i % 2 ? b : a, i % 2 ? a : b, &v[*got], 1, err);
		if (!rc)
			rc = undisturbed(p, i % 2 ? b : a, &after, err);
		*got += before && after;
		before = after;
	}
	return rc;
}

int probe_loss(struct probe *p, uint32_t a, uint32_t b, uint32_t n, double *ratio, double *spread,
	       struct zns_err *err)
{
	double v[SAMPLES + 1], x, y, low;
	uint32_t got;
	int rc = solo(p, a, &x, err);

	n = zns_min(n, SAMPLES);
	if (!rc)
		rc = solo(p, b, &y, err);
	if (!rc)
		rc = controlled(p, a, b, v, n, &got, err);
	if (rc)
		return rc;
	*ratio = 1;
	*spread = PROBE_UNTOLD;
	if (got < n)
		return 0;
	x = zns_max(p->solo_ns[a], p->solo_ns[b]);
	low = probe_quartile(v, n);
	*ratio = low / x;
	/* of a lower quartile, from how far the quicker half lies apart; where disturbances reach
	 * into that it is much */
	*spread = 0.87 * zns_max((v[n / 2] - v[0]) / x, p->jitter) / sqrt(n);
	if (*ratio >= 1 - zns_max(PROBE_GAP, 4 * *spread))
		return 0;
	/* two at once are not quicker than the slower one alone: that one was measured at a bad
	 * time */
	p->solo_ns[a] = p->solo_ns[b] = 0;
	*ratio = 1;
	*spread = PROBE_UNTOLD;
	return 0;
}

int probe_jitter(struct probe *p, uint32_t a, uint32_t b, struct zns_err *err)
{
	double v[JITTER], low;
	int rc = samples(p, a, b, v, JITTER, err);

	if (rc)
		return rc;
	low = probe_quartile(v, JITTER);
	p->jitter = zns_min((v[JITTER / 2] - v[0]) / low, p->jitter);
	return 0;
}
