/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_HANDLE_H
#define ZNS_HANDLE_H
/*
 * The handle file of an image directory (design.md §6): names a device and a checkpoint by UUID,
 * never a path. It may be copied, renamed with its directory, and restored from anywhere.
 */
#include <stdbool.h>
#include "zns/err.h"
#include "zns/util.h"
#include "zns-handle.pb-c.h"
#include "zns-record.pb-c.h"

#define ZNS_HANDLE_NAME "zns-handle.img"
#define ZNS_HANDLE_MAX KIB(256) /* larger is not a handle */
#define ZNS_HANDLE_COPY_MAX KIB(64) /* one plain copy */
#define ZNS_HANDLE_COPIES_MAX MIB(1) /* of all copies together */

/* true if @dirfd has a handle, even a damaged one. */
bool zns_handle_present(int dirfd);

/* Reads and checks a handle; free with zns_pb__handle__free_unpacked. -ENOENT: there is none;
 * -EBADMSG: damaged or not a handle. */
int zns_handle_read(int dirfd, ZnsPb__Handle **out, struct zns_err *err);

/* Like zns_handle_read, from a buffer that has the whole file. */
int zns_handle_parse(const uint8_t *buf, size_t len, ZnsPb__Handle **out, struct zns_err *err);

/* Fill in what a handle repeats of the record, for people and tools. Strings stay the record's. */
void zns_handle_describe(ZnsPb__Handle *h, const ZnsPb__Checkpoint *c);

/*
 * Does the handle name @c, with the container and the time that the record has? These never change,
 * so -EXDEV says that the id belongs to another checkpoint. A renamed or copied directory makes no
 * difference.
 */
int zns_handle_agrees(const ZnsPb__Handle *h, const ZnsPb__Checkpoint *c, struct zns_err *err);

/* Write durably: temporary name, fsync, rename, fsync of the directory. */
int zns_handle_write(int dirfd, const ZnsPb__Handle *h, struct zns_err *err);

/*
 * Compare the plain copies in @dirfd with what the handle says of them. Returns how many differ or
 * are missing, and names the first ones in @err. The device counts, not the copies: the caller only
 * warns.
 */
int zns_handle_check_copies(int dirfd, const ZnsPb__Handle *h, struct zns_err *err);

/* The checkpoint of @m has pages only. Are the other images in @dirfd, and from the same dump?
 * -ENOENT: they have not come yet. -EXDEV: some are missing, or are from another dump. */
int zns_plain_check(int dirfd, const ZnsPb__Manifest *m, struct zns_err *err);

#endif
