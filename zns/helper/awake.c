/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Keeps idle CPUs from sleep in a restore, as criu does in a live dump (criu/include/zns-awake.h).
 * The request ends with its descriptor, so with the helper at the latest.
 */
#include <fcntl.h>
#include <unistd.h>
#include "helper.h"

#define AWAKE_NS \
	(10 * UINT64_C(1000000000)) /* a large restore waits for its device, not for a CPU */

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
