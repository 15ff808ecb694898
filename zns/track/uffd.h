/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef TRACK_UFFD_H
#define TRACK_UFFD_H
/* The few calls of a userfaultfd that is used for nothing but asynchronous write protection. */
#include <stdbool.h>
#include <stdint.h>
#include "abi.h"

#define UFFD_FLAGS (O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY)

/* The first call on it: enables no events, so the process never waits for us. -errno. */
int uffd_begin(int uffd, uint64_t features);
/* -EBUSY: another userfaultfd has it. -EOPNOTSUPP: huge pages of hugetlbfs. May be repeated. */
int uffd_register(int uffd, uint64_t start, uint64_t end);
/* Lift the protection: the pages count as written. */
int uffd_unprotect(int uffd, uint64_t start, uint64_t end);
/* Removes the write protection, too. */
int uffd_unregister(int uffd, uint64_t start, uint64_t end);

#endif
