/* SPDX-License-Identifier: GPL-2.0-only */
/* What this process does on zones at present. */
#include <time.h>

#include "zns-img.h"
#include "zns-state.h"

struct zns_session zns_session;

bool zns_active(void)
{
	return zns_session.state != ZNS_OFF;
}

bool zns_serve_reads(void)
{
	return zns_session.serves;
}

bool zns_lazy_on(void)
{
	return zns_session.lazy;
}

unsigned long long zns_now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000ull + t.tv_nsec / 1000;
}
