/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_INJECT_H
#define ZNS_INJECT_H
/* Makes system calls in another process without its knowledge: its threads are stopped by ptrace,
 * one of them makes the calls, and all continue. x86_64 only. Any thread of ours may call; it
 * blocks meanwhile. */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "zns/err.h"

struct zns_guest; /* the borrowed thread */

/*
 * Runs @body in a child that shares our memory and descriptors: it must not allocate memory. What
 * @body returns, if not 0, is returned without a text in @err; other failures have one. @maps is
 * /proc/PID/maps. *@stop_ns: how long the threads stood still.
 *
 * -EBUSY: traced by another one. -ENOTSUP: no 64-bit task. -EACCES: its seccomp filter cannot be
 * suspended.
 */
int zns_inject(pid_t pid, int maps, unsigned int limit_ms,
	       int (*body)(struct zns_guest *g, void *arg), void *arg, uint64_t *stop_ns,
	       struct zns_err *err);

/* For @body: one system call, past the thread's seccomp filter. It is this call and no other,
 * whatever code the process has. *@result is what it returned there; an error means that it was not
 * made, or that the thread is gone. */
int zns_guest_call(struct zns_guest *g, long nr, const uint64_t arg[6], long *result);

/* For @body: @tick is called some hundred times a second while the thread is waited for, also after
 * @body. */
void zns_guest_tick(struct zns_guest *g, void (*tick)(void *arg), void *arg);

/* For use in @body: the area of the thread's memory that the kernel writes whenever the thread runs
 * (rseq); 0: none. If the thread waits for a page of that area, it waits for ever. */
void zns_guest_rseq(const struct zns_guest *g, uint64_t *start, uint64_t *end);

/* A descriptor of another process, -errno. -EBADF: /proc/self/fd calls it something that does not
 * begin with @kind. */
int zns_fetch_fd(int pidfd, long remote, const char *kind);

#endif
