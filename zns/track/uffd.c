/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* See uffd.h. */
#include <errno.h>

#include "uffd.h"

int uffd_begin(int uffd, uint64_t features)
{
	struct uffdio_api api = { .api = UFFD_API, .features = features };

	return ioctl(uffd, UFFDIO_API, &api) ? -errno : 0;
}

int uffd_register(int uffd, uint64_t start, uint64_t end)
{
	struct uffdio_register r = { .range = { .start = start, .len = end - start },
				     .mode = UFFDIO_REGISTER_MODE_WP };

	if (ioctl(uffd, UFFDIO_REGISTER, &r))
		return -errno;
	if (r.ioctls & (1ULL << _UFFDIO_ZEROPAGE))
		return 0;
	/* hugetlbfs is the only kind of memory that has no zero page */
	uffd_unregister(uffd, start, end);
	return -EOPNOTSUPP;
}

int uffd_unprotect(int uffd, uint64_t start, uint64_t end)
{
	struct uffdio_writeprotect w = { .range = { .start = start, .len = end - start } };

	return ioctl(uffd, UFFDIO_WRITEPROTECT, &w) ? -errno : 0;
}

int uffd_unregister(int uffd, uint64_t start, uint64_t end)
{
	struct uffdio_range r = { .start = start, .len = end - start };

	return ioctl(uffd, UFFDIO_UNREGISTER, &r) ? -errno : 0;
}
