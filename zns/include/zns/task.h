/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_TASK_H
#define ZNS_TASK_H
/*
 * Fills the memory of a task. With process_vm_writev the kernel takes a fault for each new page,
 * clears it and pins it. UFFDIO_COPY creates the page with its contents in half of the time, but
 * only works where the task's userfaultfd covers the address.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>
#include "zns/err.h"

struct zns_task {
	pid_t pid; /* 0: no task */
	/* userfaultfd that covers all addresses of a request, as far as possible; -1: none */
	int uffd;
	/* NULL: the task does not run until all of its pages are filled */
	struct zns_running *running;
};

/* For one request to a task that runs while its memory is filled. Pages are then only created by
 * UFFDIO_COPY: a page that already exists was written by the task and is left alone. Events of its
 * userfaultfd are read elsewhere. */
struct zns_running {
	/* Called before and after each copy. enter() returns false if the task has changed its
	 * mappings since the request was made, so that its addresses may now be used otherwise. */
	bool (*enter)(struct zns_running *r);
	void (*leave)(struct zns_running *r);
	/* set while the request is served */
	_Atomic bool lacks; /* the task lacks some pages, which were not filled */
	_Atomic bool gone; /* the task's address space no longer exists */
};
#define ZNS_TASK(p) ((struct zns_task){ .pid = (p), .uffd = -1 })

/* Does the kernel use transparent huge pages for all processes? Then filling memory with
 * process_vm_writev is as fast, and gives the task huge pages, which UFFDIO_COPY never does. */
bool zns_task_huge_pages(void);
/*
 * Registers a range of the task's memory that is to be filled with its userfaultfd, until all
 * processes have closed the descriptor. The first and last page of the range are allocated at once,
 * and their first bytes overwritten. No other process may touch pages that are not filled yet.
 * false: the range cannot be registered, for example because it is a private mapping of a file.
 */
bool zns_task_cover(struct zns_task task, const void *base, size_t len);

/* Copies from our memory to the task's. Both sides have @sum bytes; ranges are given as in
 * process_vm_writev. */
int zns_task_write(struct zns_task task, const struct iovec *local, uint32_t nr_local,
		   const struct iovec *remote, uint32_t nr_remote, size_t sum, struct zns_err *err);

#endif
