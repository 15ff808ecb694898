/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_LEND_H
#define MEM_LEND_H
/*
 * Lends descriptors to a process during a stop of all its threads. The process must not keep them,
 * and no other process may take them from it.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "zns/inject.h"

struct lent {
	struct zns_guest *g;
	pid_t pid;
	int pidfd;
	bool hidden; /* the process is hidden from other processes of its user */
};

/* Makes a system call in the process. Returns its result or -errno. */
#define LENT_CALL(l, nr, ...) lend_call(l, nr, (uint64_t[6]){ __VA_ARGS__ })
long lend_call(const struct lent *l, long nr, const uint64_t arg[6]);
/*
 * From here on no process without CAP_SYS_PTRACE can read the process's memory or take its
 * descriptors.
 */
int lend_begin(struct lent *l);
void lend_end(struct lent *l);
/* Closes @fd in the process. If that fails, the process is killed. */
void lend_close(const struct lent *l, long fd);
/*
 * Puts a copy of @fd into the process, and returns its number there. @scratch: a page of the
 * process's memory. -EPERM: a descriptor must not be lent to this process, see lend.c.
 */
long lend_fd(const struct lent *l, int fd, uint64_t scratch);

#endif
