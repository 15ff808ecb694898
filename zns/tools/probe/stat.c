/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Statistics that are not changed by a few wild samples, and the size of samples. */
#include <math.h>
#include <stdlib.h>

#include "probe_priv.h"

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double probe_median(double *v, uint32_t n)
{
	if (!n)
		return 0;
	qsort(v, n, sizeof(*v), by_value);
	return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/*
 * Disturbances only add time. So the lower quartile is right even if nearly three quarters of the
 * samples were disturbed.
 */
double probe_quartile(double *v, uint32_t n)
{
	if (!n)
		return 0;
	qsort(v, n, sizeof(*v), by_value);
	return v[(n - 1) / 4];
}

/*
 * The probability of at most @wrong failures in @n trials, if each is right with the probability
 * @right.
 */
static double chance(uint32_t n, uint32_t wrong, double right)
{
	double sum = 0;

	for (uint32_t i = 0; i <= wrong; i++)
		sum += exp(lgamma(n + 1.0) - lgamma(i + 1.0) - lgamma(n - i + 1.0) +
			   i * log1p(-right) + (n - i) * log(right));
	return sum;
}

/* The one-sided bound of Clopper and Pearson. */
double probe_lower_bound(uint32_t n, uint32_t wrong)
{
	double low = 0, high = 1;

	if (wrong >= n)
		return 0;
	for (int i = 0; i < 50; i++) {
		double at = (low + high) / 2;

		if (chance(n, wrong, at) < 0.05)
			low = at;
		else
			high = at;
	}
	return low;
}

/*
 * The probability that the next zone of a sample is right, if all @take of @n zones before it were.
 */
static double misses(uint32_t n, uint32_t take)
{
	uint32_t bad = zns_max((uint32_t)(n * PROBE_WRONG_ZONES), 1u);

	return take + bad < n ? (double)(n - bad - take) / (n - take) : 0;
}

uint32_t probe_sample_size(uint32_t n)
{
	uint32_t take = 0;

	for (double miss = 1; take < n && miss > PROBE_PASS;)
		miss *= misses(n, take++);
	return take;
}

double probe_sample_misses(uint32_t n, uint32_t sample)
{
	double miss = 1;

	for (uint32_t take = 0; take < sample && take < n; take++)
		miss *= misses(n, take);
	return miss;
}
