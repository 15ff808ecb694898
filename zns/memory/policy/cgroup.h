/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_CGROUP_H
#define MEM_CGROUP_H
/* Finds the cgroup of a process. @controller: "" for version 2. */
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Finds where the root of the hierarchy is mounted. @fs: "cgroup2" or "cgroup". */
bool cgroup_mounted(const char *fs, const char *controller, char *out, size_t len);
/* Finds the process's cgroup in that hierarchy. False if it is the root. */
bool cgroup_of(pid_t pid, const char *controller, char *out, size_t len);

#endif
