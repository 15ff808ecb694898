/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_FREEZE_H__
#define __CR_ZNS_FREEZE_H__
/*
 * Shortens what tasks wait for in the freeze of a dump. Results are those of stock criu: the same
 * images and checks. All functions but the first three are used by dumps into zones only.
 */
#include <stdbool.h>
#include <sys/types.h>

struct timespec;

/* zns-freeze.c */

/* In place of nanosleep(@longest): returns as soon as the freezer of @fd (freezer.state of cgroup
 * v1, cgroup.freeze of v2) has changed or may have. */
void zns_wait_frozen(int fd, const struct timespec *longest);
/* All tasks are frozen: writes the time into the file $ZNS_FROZEN_NOTE, in nanoseconds. Files with
 * a later time of change were written by others. */
void zns_dump_frozen(void);
/* The dump is complete: writes the time behind it. In between criu has written to the tasks' files:
 * to directories where it mounts something, and to those where it makes a link_remap.N. */
void zns_dump_taken(void);
/* Called before the freeze: mounts what a dump of cgroups needs. */
void zns_cgroup2_open(pid_t pid);
/* A descriptor of cgroup v2's root, the caller's to close. -1: mount it yourself. */
int zns_cgroup2_fd(void);
void zns_cgroup2_close(void);

/* True if criu's present network namespace has no tracked connection: a dump of them would be
 * empty, but walk through the connections of the whole machine. */
bool zns_no_conntrack(void);

/* Called before the freeze: finds which programs list the tables of iptables, for a task with its
 * own network namespace. */
void zns_find_iptables(pid_t pid);
/* The network namespace that criu is in now has no tables of iptables-legacy: its list would be empty. */
bool zns_no_tables(bool ipv6);

/* zns-tmpfs.c */

/*
 * Writes the archive of the tmpfs at the directory @dir into @out, as tar would. Returns 1 if the
 * tmpfs has something that only tar can archive, -1 after an error, which it has printed.
 */
int zns_tmpfs_archive(int dir, int out, pid_t userns_pid);
/*
 * After 1, for tar: where its output goes so that @out becomes a gzip file, stored and not
 * compressed; its option --gzip if that is @out itself, else one that it has already; and, after
 * it, with what it returned.
 */
int zns_tmpfs_out(int out);
char *zns_tmpfs_gzip(void);
int zns_tmpfs_end(int ret);

#endif
