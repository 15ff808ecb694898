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
	int uffd; /* covers all places of a request, as far as it can; -1: none */
	struct zns_running *running; /* NULL: it waits until all pages are there */
};

/*
 * A task that runs while its memory comes, for one request. Only UFFDIO_COPY makes its pages: what
 * is there already is its own. Somebody else reads the events of its userfaultfd.
 */
struct zns_running {
	/* Called around each copy. enter() gives false if the task has changed its mappings since,
	 * so that the addresses of this request may mean something else. */
	bool (*enter)(struct zns_running *r);
	void (*leave)(struct zns_running *r);
	/* set while the request is served */
	_Atomic bool lacks; /* pages may be missing */
	_Atomic bool gone; /* its memory is gone */
};
#define ZNS_TASK(p) ((struct zns_task){ .pid = (p), .uffd = -1 })

/* Does the kernel make huge pages for everybody? Then a write does as well, and gives the task huge
 * pages, which a userfaultfd never does. */
bool zns_task_huge_pages(void);
/*
 * A range of the task's memory that is to be filled: covered from here on until the descriptor is
 * closed by all who have it. Its first and its last page are made at once, and their first bytes
 * overwritten. Nobody but us may touch what is not there yet. false: it cannot be covered, as with
 * private mappings of files.
 */
bool zns_task_cover(struct zns_task task, const void *base, size_t len);

/* Both sides hold @sum bytes; ranges are as process_vm_writev takes them. */
int zns_task_write(struct zns_task task, const struct iovec *local, uint32_t nr_local,
		   const struct iovec *remote, uint32_t nr_remote, size_t sum, struct zns_err *err);

#endif
