/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The wall clock, and the time format of all tools. The monotonic clock is in clock_none.c. */
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

int64_t zns_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

int64_t zns_now_after(int64_t ns)
{
	return zns_max(zns_now_ns(), ns < INT64_MAX ? ns + 1 : ns);
}
