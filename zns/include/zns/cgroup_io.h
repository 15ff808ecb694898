/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_CGROUP_IO_H
#define ZNS_CGROUP_IO_H
/*
 * The kernel charges the cgroup of whoever sends a request to a drive: that of version 2, or of
 * version 1's blkio where that one has the controller. Groups are found by descriptor. A container
 * may have chosen names below its own, so the group that they lead to must be root's and must have
 * the process in it.
 */
#include <sys/types.h>
#include "zns/err.h"
#include "zns/process.h"

#define ZNS_CGROUP_OWN "zns-criu" /* name of the cgroup at the root of the hierarchy */

struct zns_cgroup_io {
	/* home, there: open cgroup.procs of the old and of the new cgroup; -1: none */
	int home, there;
};
#define ZNS_CGROUP_IO_NONE              \
	{                               \
		.home = -1, .there = -1 \
	}

/* Finds the group of process @pid, or our own one if it is 0, and the one that we are in. */
int zns_cgroup_io_find(struct zns_cgroup_io *c, pid_t pid, struct zns_err *err);
/* Moves all threads of this process. */
int zns_cgroup_io_enter(const struct zns_cgroup_io *c, struct zns_err *err);
/* Back, and closed. */
void zns_cgroup_io_leave(struct zns_cgroup_io *c);
void zns_cgroup_io_close(struct zns_cgroup_io *c);

#endif
