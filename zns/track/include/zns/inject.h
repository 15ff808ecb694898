/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_INJECT_H
#define ZNS_INJECT_H
/*
 * Makes system calls in another process without its knowledge: ptrace stops all its threads, one of
 * them makes the calls, and all continue. x86_64 only. Any thread of ours may call this, and waits
 * meanwhile.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "zns/err.h"

struct zns_guest; /* the thread that makes the calls */

/*
 * Runs @body in a child that shares our memory and descriptors; @body must not allocate memory. If
 * @body fails, its result is returned and @err has no text. Other failures have one. @maps:
 * descriptor of /proc/PID/maps. *@stop_ns: how long the threads were stopped.
 *
 * -EBUSY		another process traces it
 * -ENOTSUP	it is no 64-bit process
 * -EACCES	its seccomp filter cannot be suspended
 */
int zns_inject(pid_t pid, int maps, unsigned int limit_ms,
	       int (*body)(struct zns_guest *g, void *arg), void *arg, uint64_t *stop_ns,
	       struct zns_err *err);

/*
 * For use in @body: makes one system call, which the thread's seccomp filter does not see. The
 * thread makes exactly this call, whatever code the process has. *@result is the return value of
 * the call. An error means that the call was not made, or that the thread is gone.
 */
int zns_guest_call(struct zns_guest *g, long nr, const uint64_t arg[6], long *result);

/*
 * For use in @body: calls @tick some hundred times a second during each wait for the thread, also
 * after @body has returned.
 */
void zns_guest_tick(struct zns_guest *g, void (*tick)(void *arg), void *arg);

/*
 * For use in @body: the range of the thread's memory that the kernel writes whenever the thread
 * runs (rseq); 0: none. If a page of it were missing and had to be delivered by us, the thread
 * would wait for ever.
 */
void zns_guest_rseq(const struct zns_guest *g, uint64_t *start, uint64_t *end);

/*
 * Copies a descriptor of another process. Returns it, or -errno. -EBADF: the name of its file in
 * /proc/self/fd does not begin with @kind.
 */
int zns_fetch_fd(int pidfd, long remote, const char *kind);

#endif
