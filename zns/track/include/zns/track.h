/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_TRACK_H
#define ZNS_TRACK_H
/*
 * Finds out which pages of a running process were written since they were last protected (live.md,
 * "Tracking written pages"). Copies are right if the calls come in this order:
 *
 * 	zns_track_kernel()	once
 * 	zns_track_new()		for each process
 * 	rounds: zns_track_arm() for all processes, then zns_track_barrier() for all, then read
 * 		the pages in `copy`
 * 	the processes are frozen
 * 	zns_track_final()	says which of the earlier copies are out of date
 * 	zns_track_free()	at any time, frozen or not
 *
 * A copy of a page is valid if and only if the page was in `copy` of some round, was read
 * completely after that round's barrier, and is not in `stale` of the final call. When in doubt, a
 * page is stale. A page of `copy` or `present` may be unreadable when it is read (EFAULT: it was
 * unmapped, is a guard page, or its file has shrunk): then it has no copy. Both lists also contain
 * pages with PROT_NONE, which process_vm_readv cannot read; /proc/PID/mem can.
 *
 * All addresses are in bytes and page aligned. A tracker is used by one thread at a time. Functions
 * that stop threads of the process do so in a short-lived child of ours, which releases the threads
 * even if we are killed. The functions return when the child has ended.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "zns/err.h"

struct zns_span {
	uint64_t start, end;
};

/* Sorted, without overlaps; adjacent spans are merged. {0} is an empty list. */
struct zns_spans {
	struct zns_span *s;
	size_t nr, max;
};

/* Adds [start, end). Fast if it does not lie before the last span. Returns 0 or -ENOMEM. */
int zns_spans_add(struct zns_spans *l, uint64_t start, uint64_t end);
/* Add all of @more. */
int zns_spans_join(struct zns_spans *l, const struct zns_spans *more);
/*
 * Fill @out, which is emptied first and must not be @a or @b. zns_spans_both(): pages that are in
 * both lists. zns_spans_without(): pages of @a that are not in @b.
 */
int zns_spans_both(const struct zns_spans *a, const struct zns_spans *b, struct zns_spans *out);
int zns_spans_without(const struct zns_spans *a, const struct zns_spans *b, struct zns_spans *out);
bool zns_spans_has(const struct zns_spans *l, uint64_t addr);
uint64_t zns_spans_bytes(const struct zns_spans *l);
void zns_spans_clear(struct zns_spans *l); /* empties the list without freeing its memory */
void zns_spans_free(struct zns_spans *l);

enum zns_tracker {
	ZNS_TRACKER_NONE, /* no tracking: everything must be copied while the process is frozen */
	ZNS_TRACKER_SOFT_DIRTY,
	ZNS_TRACKER_UFFD,
};

/* What this kernel supports. It is found out by trying it on memory of our own. */
struct zns_track_kernel {
	enum zns_tracker tracker;
	bool holes; /* the kernel reports discarded huge pages and page tables as written */
	bool guards; /* PAGEMAP_SCAN reports guard pages */
	uint64_t features; /* features of userfaultfd */
	/*
	 * for soft-dirty: page frame number of the zero page, which is mapped where memory was read
	 * but never written
	 */
	uint64_t zero_pfn;
	char why[160]; /* why no better tracker is available; empty for ZNS_TRACKER_UFFD */
};

/* Finds out what this kernel supports. ZNS_TRACKER_NONE is not an error. */
int zns_track_kernel(struct zns_track_kernel *k, struct zns_err *err);
const char *zns_tracker_name(enum zns_tracker tracker); /* "none", "soft-dirty", "uffd" */

struct zns_track;

/*
 * Begins to track a process by the method of @k->tracker (ZNS_TRACKER_NONE: -ENOTSUP). Stops one of
 * its threads for less than a millisecond. No page is protected yet. After one of these errors the
 * caller copies the process in the freeze:
 * 	-EBUSY		another process traces it, or shares its memory
 * 	-ENOTSUP	it uses asynchronous I/O, is a 32-bit process, has its system calls
 * 			intercepted, or runs on another architecture
 * 	-EMFILE		it has no free descriptor
 * 	-EACCES		its security policy forbids userfaultfd
 * 	-ETIMEDOUT	it did not stop (uninterruptible sleep)
 * 	-ESRCH		it is gone
 */
int zns_track_new(pid_t pid, const struct zns_track_kernel *k, struct zns_track **out,
		  struct zns_err *err);

/*
 * The descriptors of a tracker. Another process that has copies of them can continue the tracker.
 * They refer to the process and its memory themselves. So neither another process with the same PID
 * nor another program that the process has executed is mistaken for it.
 */
enum zns_track_fd {
	ZNS_TRACK_PIDFD,
	ZNS_TRACK_MAPS,
	ZNS_TRACK_PAGEMAP,
	ZNS_TRACK_UFFD,
	ZNS_TRACK_FDS,
};
/*
 * Gets the descriptors; the tracker still owns them. -ESRCH: the process is gone or has executed
 * another program; -ENOTSUP: this kind of tracker has none.
 */
int zns_track_fds(const struct zns_track *t, int fd[ZNS_TRACK_FDS]);
/*
 * Continues a tracker that another process gave up by zns_track_leave(). On success the new tracker
 * owns the descriptors. Its next arm or final call reports the pages that were written since the
 * last arm (or final with @again) of the old tracker.
 */
int zns_track_adopt(pid_t pid, const struct zns_track_kernel *k, const int fd[ZNS_TRACK_FDS],
		    struct zns_track **out, struct zns_err *err);
/* Frees a tracker but keeps the protection, since another process has its descriptors. */
void zns_track_leave(struct zns_track *t);

/*
 * Begins a round: starts to track new private memory, and protects and reports pages that have
 * content of their own. @copy (emptied first) gets those that were written since the last round; in
 * the first round it gets all. After an error (-ESRCH: the process is gone or has executed another
 * program; -ENOTSUP: it has begun asynchronous I/O) only zns_track_final() and zns_track_free() may
 * be called, and all pages are stale.
 */
int zns_track_arm(struct zns_track *t, struct zns_spans *copy, struct zns_err *err);

/*
 * Returns when every thread that existed at the last zns_track_arm() has been in a ptrace stop
 * since then, or is gone. After that, no system call that began before the protection still writes
 * to the process's pages. Errors as for zns_track_new(); after an error, the copies of this round
 * are not valid.
 */
int zns_track_barrier(struct zns_track *t, struct zns_err *err);

/*
 * For a frozen process. @stale: the pages of @area (sorted) that must be copied now, because they
 * have no copy or were written since. Shared memory is always stale. @present: the pages of @stale
 * that have content of their own. @again: protect the stale pages once more, for the next dump.
 * After an error all of @area is stale, and @present and @guards are unknown.
 *
 * @guards: guard pages (madvise(MADV_GUARD_INSTALL)) anywhere in the process, if @k->guards. A
 * guard page is never clean, so clean pages are not checked for guards.
 */
int zns_track_final(struct zns_track *t, const struct zns_span *area, size_t nr, bool again,
		    struct zns_spans *stale, struct zns_spans *present, struct zns_spans *guards,
		    struct zns_err *err);

/*
 * Lists the pages of @area that a frozen process has: present or swapped out, and not a page of a
 * file. Works for any process, with or without a tracker. Pages of zeroes may be in the list, guard
 * pages are not.
 */
int zns_track_content(pid_t pid, const struct zns_span *area, size_t nr, struct zns_spans *out,
		      struct zns_err *err);

/* Stops tracking, in small steps, so that the process does not notice. */
void zns_track_free(struct zns_track *t);

#endif
