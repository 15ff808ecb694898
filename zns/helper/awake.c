/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Keeps idle CPUs out of deep sleep states during a restore, as criu does during a live dump
 * (criu/include/zns-awake.h). The kernel drops the request when its descriptor is closed, so when
 * the helper exits at the latest.
 */
#include <fcntl.h>
#include <unistd.h>
#include "helper.h"

/* ns; if a restore takes longer, it waits for its device, not for a CPU */
#define AWAKE_NS (10 * UINT64_C(1000000000))

static int awake = -1;
static uint64_t until_ns;

void awake_begin(uint64_t now_ns)
{
	const int32_t longest_us = 0;

	awake = open("/dev/cpu_dma_latency", O_WRONLY | O_CLOEXEC);
	until_ns = now_ns + AWAKE_NS;
	if (awake >= 0 && write(awake, &longest_us, sizeof(longest_us)) != sizeof(longest_us))
		awake_end();
}

int awake_timeout(uint64_t now_ns)
{
	if (awake >= 0 && now_ns >= until_ns)
		awake_end();
	return awake < 0 ? -1 : (int)((until_ns - now_ns) / 1000000 + 1);
}

void awake_end(void)
{
	if (awake >= 0)
		close(awake);
	awake = -1;
}
