/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_LEND_H
#define MEM_LEND_H
/*
 * Descriptors that a process must not keep, and that nobody may take from it. For who is called in
 * a stop of all threads.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "zns/inject.h"

struct lent {
	struct zns_guest *g;
	pid_t pid;
	int pidfd;
	bool hidden; /* from others of its user */
};

/* What the call returns there; -errno. */
#define LENT_CALL(l, nr, ...) lend_call(l, nr, (uint64_t[6]){ __VA_ARGS__ })
long lend_call(const struct lent *l, long nr, const uint64_t arg[6]);
/* From here on no process without CAP_SYS_PTRACE can look into it or take a descriptor. */
int lend_begin(struct lent *l);
void lend_end(struct lent *l);
/* It is closed there, or the process ends. */
void lend_close(const struct lent *l, long fd);
/* @fd is in the process for a moment. @scratch: a page of its memory. Its number there; -EPERM: not
 * to this one, see lend.c. */
long lend_fd(const struct lent *l, int fd, uint64_t scratch);

#endif
