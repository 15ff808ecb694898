/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_PIE_H__
#define __CR_ZNS_PIE_H__
/* The restorer blob's part of zones: all areas are mapped, so the helper may fill them (ZW_FILL).
 * What a restored task is set to (zns-settings.h). No libc here. */
#include "zns-settings-pie.h"
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

/* Called after all other changes of memory: after PR_SET_MDWE no memory can become executable. */
static inline int zns_set_prctl(unsigned int set)
{
	int ret;

	if (set & ZNS_PRCTL_MERGE) {
		ret = sys_prctl(ZNS_PR_SET_MERGE, 1, 0, 0, 0);
		if (ret)
			pr_warn("zns: PR_SET_MEMORY_MERGE is lost: %d\n", ret);
	}
	ret = set & ZNS_PRCTL_MDWE ? sys_prctl(ZNS_PR_SET_MDWE, set & ZNS_PRCTL_MDWE, 0, 0, 0) : 0;
	if (ret)
		pr_err("zns: the kernel refuses PR_SET_MDWE %u: %d\n", set & ZNS_PRCTL_MDWE, ret);
	return ret;
}

static inline void zns_restore_affinity(const struct rst_sched_param *sp)
{
	int ret = sp->zns_cpus_len ?
			  sys_sched_setaffinity(0, sp->zns_cpus_len, (void *)sp->zns_cpus) :
			  0;

	if (ret < 0)
		pr_warn("zns: the CPUs that a thread may use are not here, it gets all: %d\n", ret);
}

static inline int zns_lock_onfault(const VmaEntry *e)
{
	int ret = e->has_zns_onfault && e->zns_onfault ?
			  sys_mlock2(e->start, e->end - e->start, ZNS_MLOCK_ONFAULT) :
			  0;

	if (ret)
		pr_err("zns: cannot lock %lx (MLOCK_ONFAULT): %d\n", (unsigned long)e->start, ret);
	return ret;
}

#endif
