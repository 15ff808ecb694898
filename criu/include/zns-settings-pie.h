/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_SETTINGS_PIE_H__
#define __CR_ZNS_SETTINGS_PIE_H__
/* What a task does itself for zns-settings.h, in the parasite and in the restorer. No libc here. */
#define ZNS_PR_SET_MDWE 65
#define ZNS_PR_GET_MDWE 66
#define ZNS_PR_SET_MERGE 67
#define ZNS_PR_GET_MERGE 68
#define ZNS_PRCTL_MDWE 0xff /* the flags of PR_MDWE */
#define ZNS_PRCTL_MERGE 0x100
#define ZNS_MLOCK_ONFAULT 1

/* 0: neither is set, or this kernel does not support them. */
static inline unsigned int zns_get_prctl(void)
{
	int mdwe = sys_prctl(ZNS_PR_GET_MDWE, 0, 0, 0, 0);
	int merge = sys_prctl(ZNS_PR_GET_MERGE, 0, 0, 0, 0);

	return (mdwe > 0 ? mdwe & ZNS_PRCTL_MDWE : 0) | (merge > 0 ? ZNS_PRCTL_MERGE : 0);
}

#endif
