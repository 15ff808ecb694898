/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Clocks, and times and durations as the tools print and read them. */
#include <errno.h>
#include <stdlib.h>
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

static const struct {
	char letter;
	uint64_t s;
} units[] = { { 'w', 604800 }, { 'd', 86400 }, { 'h', 3600 }, { 'm', 60 }, { 's', 1 }, { 0, 1 } };

int zns_parse_duration(const char *s, uint64_t *out_s)
{
	unsigned long long v;
	char *end;

	errno = 0;
	v = strtoull(s, &end, 10);
	if (*s < '0' || *s > '9' || errno || (*end && end[1]))
		return -EINVAL;
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(units); i++) {
		if (units[i].letter != *end)
			continue;
		if (v > (uint64_t)INT64_MAX / NSEC_PER_SEC / units[i].s)
			return -EINVAL;
		*out_s = v * units[i].s;
		return 0;
	}
	return -EINVAL;
}

char *zns_format_duration(uint64_t s, char *buf, size_t len)
{
	size_t u = 0;

	while (s % units[u].s)
		u++;
	snprintf(buf, len, "%llu%c", (unsigned long long)(s / units[u].s), units[u].letter);
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
