/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_PIE_H__
#define __CR_ZNS_PIE_H__
/* The restorer blob's part of zones: all areas are mapped, so the helper may fill them (ZW_FILL).
 * No libc here. */
#include "zns-wire.h"

/* @sk: from zns_fill_begin(), closed here; -1: nothing to fill. 0 or -1. */
static inline int zns_fill(int sk)
{
	struct zw_reply r;
	char go = 0;
	long n;

	if (sk < 0)
		return 0;
	if (sys_sendto(sk, &go, sizeof(go), MSG_NOSIGNAL, NULL, 0) != sizeof(go))
		n = -EPIPE;
	else
		do {
			n = sys_read(sk, &r, sizeof(r));
		} while (n == -EINTR);
	sys_close(sk);
	if (n == sizeof(r) && !r.code)
		return 0;
	r.msg[sizeof(r.msg) - 1] = '\0';
	if (n == sizeof(r))
		pr_err("zns: %s\n", r.msg);
	else
		pr_err("zns: zns-helper is gone; start the restore again\n");
	return -1;
}

#endif
