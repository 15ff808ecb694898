/* SPDX-License-Identifier: GPL-2.0-only */
/* See patience.h. */
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include "patience.h"
#include "zns/util.h"

#define POLL_MS 1000
#define NS 1000000000ULL
#define NS_MAX (100000 * NS) /* of one wait: no overflow */

void ctl_patience_start(struct ctl_patience *p, uint64_t limit_s)
{
	p->limit_s = zns_min(limit_s, (uint64_t)UINT32_MAX);
	p->full = p->left = p->limit_s * CTL_PATIENCE_RATE;
}

bool ctl_patience_waited(struct ctl_patience *p, uint64_t ns)
{
	uint64_t cost = zns_min(ns, NS_MAX) * CTL_PATIENCE_RATE / NS;

	p->left -= zns_min(p->left, cost);
	return !p->limit_s || p->left;
}

void ctl_patience_got(struct ctl_patience *p, uint64_t bytes)
{
	p->left += zns_min(p->full - p->left, bytes);
}

int ctl_patience_wait(struct ctl_patience *p, int fd)
{
	struct pollfd f = { .fd = fd, .events = POLLIN };

	while (p && p->limit_s) {
		uint64_t from = zns_mono_ns();

		if (poll(&f, 1, POLL_MS) > 0)
			return 0;
		if (!ctl_patience_waited(p, zns_mono_ns() - from))
			return -ETIMEDOUT;
	}
	return 0;
}

int ctl_patience_fail(const struct ctl_patience *p, const char *who, struct zns_err *err)
{
	return zns_fail(
		err, -ETIMEDOUT,
		"%s sent nothing for %llu s, or less than %u KiB/s: given up (--timeout S waits longer)",
		who, (unsigned long long)p->limit_s, CTL_PATIENCE_RATE >> 10);
}
