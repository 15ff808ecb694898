/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Figures that a few wild samples do not move. */
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

double probe_spread(double *v, uint32_t n, double median)
{
	for (uint32_t i = 0; i < n; i++)
		v[i] = v[i] < median ? median - v[i] : v[i] - median;
	return 1.4826 * probe_median(v, n);
}
