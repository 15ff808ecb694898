/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_WRITE_UNSTEADY_H
#define ZNS_WRITE_UNSTEADY_H
/* Areas of a frozen task's memory that the kernel changes nevertheless. */
#include <sys/types.h>
#include <sys/uio.h>
#include "lock.h"

struct unsteady {
	struct area *v;
	uint32_t nr, max;
};

/* To be called when a unit of @pid was read into @buf: keeps the contents of its areas. */
void unsteady_note(struct zns_writer *w, pid_t pid, const struct iovec *iov, uint32_t nr,
		   uint8_t *buf) NEEDS_LOCK;
/* To be called when the memory was read again: puts the kept contents into @buf. */
void unsteady_put_back(struct zns_writer *w, pid_t pid, const struct iovec *iov, uint32_t nr,
		       uint8_t *buf) NO_LOCK;

#endif
