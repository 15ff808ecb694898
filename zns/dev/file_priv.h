/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_DEV_FILE_PRIV_H
#define ZNS_DEV_FILE_PRIV_H
/* What a store on an ordinary disk needs in addition to the functions of an emulated drive. */
#include "emu/emu_priv.h"

/* Is a new or resized store of @size bytes large enough? -EINVAL: no. */
int file_check_size(uint64_t size, struct zns_err *err);

/* Is the file system suitable for a store? -EINVAL: it is in memory, and @is_volatile is false;
 * -EOPNOTSUPP: it is a network file system. */
int file_check_system(int fd, const char *path, bool is_volatile, struct zns_err *err);

/* Sets the flag "no copy on write": btrfs would otherwise allocate new space for each write, and
 * could not overwrite data when it is full. The flag can only be set while the file is empty.
 * Errors are ignored, as other file systems do not need it. */
void file_no_copy_on_write(int fd);

/* signature.c: does the file contain a file system or anything else that blkid recognises? @text:
 * its type and label. */
bool file_foreign(int fd, char *text, size_t len);
int file_wipe_foreign(int fd); /* removes all foreign signatures; -EIO */

/* Like zns_file_resize(), but stops after @nr_steps of its steps, so that tests see what a crash
 * leaves. */
#define FILE_RESIZE_STEPS 7
int file_resize_steps(struct zns_dev *dev, uint32_t nr_zones, uint32_t nr_steps,
		      struct zns_err *err);

#endif
