/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Clocks, and the time format of all tools. */
#include <time.h>

#include "zns/util.h"

#define NSEC_PER_SEC INT64_C(1000000000)

char *zns_format_time(int64_t unix_ns, char *buf, size_t len)
{
	time_t sec = unix_ns / NSEC_PER_SEC - (unix_ns % NSEC_PER_SEC < 0);
	struct tm tm;

	if (!len)
		return buf;
	if (!gmtime_r(&sec, &tm) || !strftime(buf, len, "%Y-%m-%dT%H:%M:%SZ", &tm))
		buf[0] = '\0';
	return buf;
}

static int64_t clock_ns(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

int64_t zns_now_ns(void)
{
	return clock_ns(CLOCK_REALTIME);
}

uint64_t zns_mono_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}
