/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef TRACK_UFFD_H
#define TRACK_UFFD_H
/* Calls of a userfaultfd that is used only for asynchronous write protection. */
#include <stdbool.h>
#include <stdint.h>
#include "abi.h"

#define UFFD_FLAGS (O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY)

/*
 * Must be the first call on a userfaultfd. It enables no events, so the process never waits for us.
 * Returns 0 or -errno.
 */
int uffd_begin(int uffd, uint64_t features);
/*
 * -EBUSY: another userfaultfd has the area. -EOPNOTSUPP: huge pages of hugetlbfs. May be called
 * again for a registered area.
 */
int uffd_register(int uffd, uint64_t start, uint64_t end);
/* Ends the write protection: the pages count as written. */
int uffd_unprotect(int uffd, uint64_t start, uint64_t end);
/* Also removes the write protection. */
int uffd_unregister(int uffd, uint64_t start, uint64_t end);

#endif
