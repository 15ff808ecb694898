/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The clock of the product is the kernel's. A test build has a clock that tests can set instead
 * (test/controls/clock.c). */
#include <time.h>

#include "zns/util.h"

uint64_t zns_mono_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}
