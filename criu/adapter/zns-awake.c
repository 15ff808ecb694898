/* SPDX-License-Identifier: GPL-2.0-only */
/* Keeps idle CPUs out of deep sleep states. See include/zns-awake.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "log.h"
#include "util.h"
#include "zns-awake.h"
#include "zns-state.h"

#undef LOG_PREFIX
#define LOG_PREFIX "zns: "

static int awake = -1; /* the kernel drops the request when this descriptor is closed */
static unsigned long long until_us; /* us; when the request ends; 0: only by zns_cpus_may_sleep() */

void zns_cpus_awake(unsigned int ms)
{
	const int32_t longest_us = 0;

	awake = open("/dev/cpu_dma_latency", O_WRONLY | O_CLOEXEC);
	until_us = ms ? zns_now_us() + ms * 1000ull : 0;
	if (awake >= 0 && write(awake, &longest_us, sizeof(longest_us)) == sizeof(longest_us))
		return;
	pr_debug("CPUs may sleep: /dev/cpu_dma_latency: %s\n", strerror(errno));
	zns_cpus_may_sleep();
}

int zns_cpus_timeout(int ms)
{
	unsigned long long now;
	int left;

	if (awake < 0 || !until_us)
		return ms;
	now = zns_now_us();
	if (now >= until_us) {
		zns_cpus_may_sleep();
		return ms;
	}
	left = (until_us - now) / 1000 + 1;
	return ms < 0 || ms > left ? left : ms;
}

void zns_cpus_may_sleep(void)
{
	close_safe(&awake);
}
