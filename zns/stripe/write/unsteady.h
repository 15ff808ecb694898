/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_WRITE_UNSTEADY_H
#define ZNS_WRITE_UNSTEADY_H
/* Words of a frozen task that change all the same. */
#include <sys/types.h>
#include <sys/uio.h>
#include "lock.h"

struct unsteady {
	struct area *v;
	uint32_t nr, max;
};

/* A unit of @pid was read into @buf: keep what may be different the next time. */
void unsteady_note(struct zns_writer *w, pid_t pid, const struct iovec *iov, uint32_t nr,
		   uint8_t *buf) NEEDS_LOCK;
/* After memory was read again: give these words the values of the first time. */
void unsteady_put_back(struct zns_writer *w, pid_t pid, const struct iovec *iov, uint32_t nr,
		       uint8_t *buf) NO_LOCK;

#endif
