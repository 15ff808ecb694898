/* SPDX-License-Identifier: MIT */
#ifndef __CR_ZNS_MEMFD_H__
#define __CR_ZNS_MEMFD_H__
/* Used by criu, which does not link libzns, and by our programs. */
#include <errno.h>
#include <sys/mman.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U
#endif

/* Like memfd_create: -1 and errno. vm.memfd_noexec=2 allows only this kind. Kernels before 6.3 do
 * not know it. */
static inline int zns_memfd(const char *name)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_NOEXEC_SEAL);

	return fd < 0 && errno == EINVAL ? memfd_create(name, MFD_CLOEXEC) : fd;
}

#endif
