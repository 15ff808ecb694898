/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_TASK_H
#define ZNS_TASK_H
/*
 * A task whose memory is to be filled. With process_vm_writev the kernel takes a fault for each new
 * page, clears it and pins it. UFFDIO_COPY makes the page with its contents, in half of the time,
 * where the task's userfaultfd covers the place.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>
#include "zns/err.h"

struct zns_task {
	pid_t pid; /* 0: none */
	int uffd; /* covers all addresses of a request, as far as possible; -1: none */
	struct zns_running *running; /* NULL: the task waits until all pages are there */
};

/* A task that runs while its memory is filled, for one request. Pages are made only by UFFDIO_COPY:
 * pages that exist already are the task's own. The events of its userfaultfd are read elsewhere. */
struct zns_running {
	/* Called around each copy. enter() returns false if the task has changed its mappings
	 * since, so that the addresses of this request may be used otherwise. */
	bool (*enter)(struct zns_running *r);
	void (*leave)(struct zns_running *r);
	/* set while the request is served */
	_Atomic bool lacks; /* pages may be missing */
	_Atomic bool gone; /* its address space no longer exists */
};
#define ZNS_TASK(p) ((struct zns_task){ .pid = (p), .uffd = -1 })

/* Does the kernel make huge pages for everybody? Then a write does as well, and gives the task huge
 * pages, which a userfaultfd never does. */
bool zns_task_huge_pages(void);
/*
 * Covers a range of the task's memory that is to be filled, until all processes have closed the
 * descriptor. The first and last page of the range are allocated at once, and their first bytes
 * overwritten. No other process may touch pages that are not filled yet. false: the range cannot be
 * covered, for example a private mapping of a file.
 */
bool zns_task_cover(struct zns_task task, const void *base, size_t len);

/* Both sides have @sum bytes; ranges are given as in process_vm_writev. */
int zns_task_write(struct zns_task task, const struct iovec *local, uint32_t nr_local,
		   const struct iovec *remote, uint32_t nr_remote, size_t sum, struct zns_err *err);

#endif
