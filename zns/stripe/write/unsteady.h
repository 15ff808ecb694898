/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_WRITE_UNSTEADY_H
#define ZNS_WRITE_UNSTEADY_H
/* Words in a frozen task's memory that change although no thread of it runs. */
#include <sys/types.h>
#include <sys/uio.h>
#include "lock.h"

struct unsteady {
	struct area *v;
	uint32_t nr, max;
};

/* A unit of @pid was read into @buf: keeps the words that may be different at the next read. */
void unsteady_note(struct zns_writer *w, pid_t pid, const struct iovec *iov, uint32_t nr,
		   uint8_t *buf) NEEDS_LOCK;
/* The memory was read again: puts the kept words into @buf. */
void unsteady_put_back(struct zns_writer *w, pid_t pid, const struct iovec *iov, uint32_t nr,
		       uint8_t *buf) NO_LOCK;

#endif
