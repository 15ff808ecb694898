/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_DEV_FILE_PRIV_H
#define ZNS_DEV_FILE_PRIV_H
/* What a store on an ordinary disk needs of the file below it, beside what an emulated drive does.
 */
#include "emu/emu_priv.h"

/* -EINVAL: a store of @size bytes, new or resized, would be too small. */
int file_check_size(uint64_t size, struct zns_err *err);

/* Is the file system fit for a store? -EINVAL in memory without @is_volatile; -EOPNOTSUPP on a
 * network. */
int file_check_system(int fd, const char *path, bool is_volatile, struct zns_err *err);

/* btrfs would allocate new space for each write, and could not write in place when it is full. The
 * flag can be set only while the file is empty. Best effort: other file systems do not need it. */
void file_no_copy_on_write(int fd);

/* signature.c: a file system or the like that blkid knows; @text: its type and label. */
bool file_foreign(int fd, char *text, size_t len);
int file_wipe_foreign(int fd); /* wipes all foreign signatures; -EIO */

/* zns_file_resize(), ended after so many of its steps: what a crash leaves. */
#define FILE_RESIZE_STEPS 7
int file_resize_steps(struct zns_dev *dev, uint32_t nr_zones, uint32_t nr_steps,
		      struct zns_err *err);

#endif
