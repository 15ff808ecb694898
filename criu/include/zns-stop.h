/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_STOP_H__
#define __CR_ZNS_STOP_H__
/*
 * A user who presses Ctrl-C, or sends SIGTERM or SIGHUP. A dump fails as for any other reason: its
 * helper ends it, the tasks run on, and criu takes back what it did to them. A restore kills its
 * first task, and fails as when that dies. CRIU itself would end in the middle of a dump, and
 * blocks these signals during a restore. A second signal, more than a second later, kills criu.
 */
#include <sys/types.h>

/* The helper runs. */
extern void zns_stop_dump(void);
/* A restore has made its first task @pid; until the end, its network is still locked. */
extern void zns_stop_restore(pid_t pid);
extern void zns_stop_restore_end(void);
/* Called when the restore has failed: prints whether a signal ended it. */
extern void zns_stop_restore_failed(void);

#endif
