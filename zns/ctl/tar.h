/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_TAR_H
#define ZNS_CTL_TAR_H
/* Writing a tar archive of regular files, mode 0600, owner root. All return 0 or -errno. */
#include <stdint.h>

#define TAR_BLOCK 512

/* Then exactly @size bytes of content are written to @fd, then tar_end_file with the same size. */
int tar_begin_file(int fd, const char *name, uint64_t size, int64_t mtime_s);
int tar_end_file(int fd, uint64_t size);
int tar_symlink(int fd, const char *name, const char *to, int64_t mtime_s);	/* of at most 100 bytes each */
int tar_end(int fd);

#endif
