/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_CGROUP_IO_H
#define ZNS_CGROUP_IO_H
/*
 * Moves this process to another cgroup for its I/O, since the kernel charges a request to the
 * cgroup of the process that sends it: the cgroup of version 2, or of version 1's blkio if that
 * hierarchy has the controller. Cgroups are opened component by component and used by descriptor. A
 * container may have chosen the names of the cgroups below its own. So the cgroup that is found
 * must belong to root and must list the process as a member.
 */
#include <sys/types.h>
#include "zns/err.h"
#include "zns/process.h"

#define ZNS_CGROUP_OWN "zns-criu" /* name of the cgroup at the root of the hierarchy */

struct zns_cgroup_io {
	/* cgroup.procs of the cgroup this process came from, and of the one it moves to; -1:
	 * none */
	int home, there;
};
#define ZNS_CGROUP_IO_NONE              \
	{                               \
		.home = -1, .there = -1 \
	}

/* Opens the cgroup of process @pid (0: the cgroup ZNS_CGROUP_OWN) and the one this process is
 * in. */
int zns_cgroup_io_find(struct zns_cgroup_io *c, pid_t pid, struct zns_err *err);
/* Moves all threads of this process to the other cgroup. */
int zns_cgroup_io_enter(const struct zns_cgroup_io *c, struct zns_err *err);
/* Moves them back. zns_cgroup_io_close only closes the descriptors. */
void zns_cgroup_io_leave(struct zns_cgroup_io *c);
void zns_cgroup_io_close(struct zns_cgroup_io *c);

#endif
