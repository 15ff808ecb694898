/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_TRACK_H
#define ZNS_TRACK_H
/*
 * Which pages of a running process were written since they were last protected (live.md,
 * "Tracking written pages"). The order that makes a copy right:
 *
 *	zns_track_kernel()	once
 *	zns_track_new()		each process
 *	rounds: zns_track_arm() of all processes, zns_track_barrier() of all, then read `copy`
 *	the processes are frozen
 *	zns_track_final()	what of the earlier copies no longer counts
 *	zns_track_free()	at any time, frozen or not
 *
 * A copy of a page counts if and only if the page was in `copy` of some round, was read completely
 * after that round's barrier, and is not in `stale` of the final. When in doubt a page is stale.
 * Pages of `copy` and `present` may be unreadable when their turn comes (EFAULT: unmapped since, a
 * guard page, a file that has shrunk): then there is no copy. Pages that are not readable by
 * process_vm_readv because of PROT_NONE are in both lists; /proc/PID/mem reads them.
 *
 * All addresses are in bytes and page aligned. A tracker belongs to one thread at a time. Functions
 * that stop threads of the process do so in a short-lived child of ours, which lets go of them
 * whatever happens to us. They block until then.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "zns/err.h"

struct zns_span {
	uint64_t start, end;
};

/* Sorted, disjoint, adjacent ones merged. {0} is an empty list. */
struct zns_spans {
	struct zns_span *s;
	size_t nr, max;
};

/* Add [start, end). Cheap if it is not before the last one. 0 or -ENOMEM. */
int zns_spans_add(struct zns_spans *l, uint64_t start, uint64_t end);
/* Add all of @more. */
int zns_spans_join(struct zns_spans *l, const struct zns_spans *more);
/* Fills @out (emptied first; it must not be a or b): _both, pages in both; _without, pages of @a that
 * are not in @b. */
int zns_spans_both(const struct zns_spans *a, const struct zns_spans *b, struct zns_spans *out);
int zns_spans_without(const struct zns_spans *a, const struct zns_spans *b, struct zns_spans *out);
bool zns_spans_has(const struct zns_spans *l, uint64_t addr);
uint64_t zns_spans_bytes(const struct zns_spans *l);
void zns_spans_clear(struct zns_spans *l); /* keeps the memory */
void zns_spans_free(struct zns_spans *l);

enum zns_tracker {
	ZNS_TRACKER_NONE, /* everything must be copied while the process is frozen */
	ZNS_TRACKER_SOFT_DIRTY,
	ZNS_TRACKER_UFFD,
};

/* What this kernel has, by trying it on memory of our own. */
struct zns_track_kernel {
	enum zns_tracker tracker;
	bool holes; /* discarded huge pages and page tables are reported as written */
	bool guards; /* PAGEMAP_SCAN tells guard pages */
	uint64_t features; /* of userfaultfd */
	/* page frame of the zero page, which all untouched memory maps, for soft-dirty */
	uint64_t zero_pfn;
	char why[160]; /* why no better tracker is available; empty for ZNS_TRACKER_UFFD */
};

/* ZNS_TRACKER_NONE is no error. */
int zns_track_kernel(struct zns_track_kernel *k, struct zns_err *err);
const char *zns_tracker_name(enum zns_tracker tracker); /* "none", "soft-dirty", "uffd" */

struct zns_track;

/*
 * Track one process, in the way that @k->tracker says (ZNS_TRACKER_NONE: -ENOTSUP). Stops one of
 * its threads for less than a millisecond. Nothing is protected yet. After any of these errors the
 * caller copies the process in the freeze:
 *	-EBUSY		somebody else traces it, or another process shares its memory
 *	-ENOTSUP	asynchronous I/O in it, a 32-bit or intercepted task, another architecture
 *	-EMFILE		it has no free descriptor
 *	-EACCES		its security policy forbids userfaultfd
 *	-ETIMEDOUT	it did not stop (uninterruptible sleep)
 *	-ESRCH		it is gone
 */
int zns_track_new(pid_t pid, const struct zns_track_kernel *k, struct zns_track **out,
		  struct zns_err *err);

/* The descriptors of a tracker. Another process that has copies of them can continue the tracker.
 * They refer to the process and its memory, so another process with the same PID is not mistaken
 * for it, nor a program that the process has executed. */
enum zns_track_fd {
	ZNS_TRACK_PIDFD,
	ZNS_TRACK_MAPS,
	ZNS_TRACK_PAGEMAP,
	ZNS_TRACK_UFFD,
	ZNS_TRACK_FDS,
};
/* The descriptors, still owned by the tracker. -ESRCH: the process is gone or executed a program;
 * -ENOTSUP: this kind of tracker has none. */
int zns_track_fds(const struct zns_track *t, int fd[ZNS_TRACK_FDS]);
/*
 * Continue a tracker that zns_track_leave() ended in another process. If this succeeds the tracker
 * owns the descriptors. The next arm or final reports what was written since the last arm (or final
 * with @again).
 */
int zns_track_adopt(pid_t pid, const struct zns_track_kernel *k, const int fd[ZNS_TRACK_FDS],
		    struct zns_track **out, struct zns_err *err);
/* Free a tracker without ending the protection, since another process has its descriptors. */
void zns_track_leave(struct zns_track *t);

/*
 * A round: begin to track new private memory; protect and report (@copy, emptied first) the pages
 * with content of their own that were written since the last round, in the first one all of them.
 * After an error (-ESRCH: the process is gone or has executed a program; -ENOTSUP: it has begun
 * asynchronous I/O) only zns_track_final() and zns_track_free() are left, and all is stale.
 */
int zns_track_arm(struct zns_track *t, struct zns_spans *copy, struct zns_err *err);

/*
 * Returns when every thread that was there at the last zns_track_arm() has been in a ptrace stop
 * since, or is gone: no system call that began before the protection still writes to the process's
 * pages. Errors as zns_track_new; after one, the copies of this round do not count.
 */
int zns_track_barrier(struct zns_track *t, struct zns_err *err);

/*
 * For a frozen process. @stale: the pages of @area (sorted) that must be copied now, because they
 * were written since they were copied, or never copied. Shared memory is always stale. @present: the
 * pages of @stale that have content of their own. @again: protect the stale pages once more, for the
 * next dump. On an error all of @area is stale, and @present and @guards are not known.
 *
 * @guards: guard pages (madvise(MADV_GUARD_INSTALL)) anywhere in the process, where @k->guards.
 * They are never clean, so clean pages are not looked at for them.
 */
int zns_track_final(struct zns_track *t, const struct zns_span *area, size_t nr, bool again,
		    struct zns_spans *stale, struct zns_spans *present, struct zns_spans *guards,
		    struct zns_err *err);

/*
 * The pages of @area that a frozen process has: present or swapped, and not those of a file. Any
 * process, with or without a tracker; a page of zeroes may be among them, guard pages are not.
 */
int zns_track_content(pid_t pid, const struct zns_span *area, size_t nr, struct zns_spans *out,
		      struct zns_err *err);

/* Stop tracking, in small steps, so that the process does not notice. */
void zns_track_free(struct zns_track *t);

#endif
