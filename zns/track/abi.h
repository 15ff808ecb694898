/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef TRACK_ABI_H
#define TRACK_ABI_H
/* Interfaces of the kernel that are missing in the headers of Debian 12 (Linux 6.1). */
#include <linux/types.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#ifndef UFFD_FEATURE_WP_HUGETLBFS_SHMEM
#define UFFD_FEATURE_WP_HUGETLBFS_SHMEM (1 << 12)
#endif
#ifndef UFFD_FEATURE_WP_ASYNC
#define UFFD_FEATURE_WP_ASYNC (1 << 15)
#endif
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

/* PAGEMAP_SCAN, Linux 6.7. The names are our own, so they do not clash with newer headers. */
struct scan_region {
	__u64 start, end, categories;
};

struct scan_arg {
	__u64 size, flags, start, end, walk_end, vec, vec_len, max_pages;
	__u64 inverted, mask, anyof, returned;
};

#define SCAN_IOCTL _IOWR('f', 16, struct scan_arg)
#define SCAN_PROTECT (1 << 0) /* flag: write-protect the pages that are reported */

/* categories of pages */
#define IS_WPALLOWED (1 << 0)
#define IS_WRITTEN (1 << 1)
#define IS_FILE (1 << 2)
#define IS_PRESENT (1 << 3)
#define IS_SWAPPED (1 << 4)
#define IS_ZERO (1 << 5)
#define IS_HUGE (1 << 6)
#define IS_GUARD (1 << 8) /* since Linux 6.15 */

/* bits of an entry of /proc/PID/pagemap */
#define PME_PFN ((1ULL << 55) - 1)
#define PME_SOFT_DIRTY (1ULL << 55)
#define PME_FILE (1ULL << 61)
#define PME_SWAP (1ULL << 62)
#define PME_PRESENT (1ULL << 63)

#define TRACK_PAGE 4096ULL /* bytes; zns/track supports x86_64 only */

#endif
