/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_HANDLE_H
#define ZNS_HANDLE_H
/*
 * The handle file of an image directory (design.md §6). It names a device and a checkpoint by UUID,
 * never by a path, so it may be copied, renamed with its directory, and restored from anywhere.
 */
#include <stdbool.h>
#include "zns/err.h"
#include "zns/util.h"
#include "zns-handle.pb-c.h"
#include "zns-record.pb-c.h"

#define ZNS_HANDLE_NAME "zns-handle.img"
#define ZNS_HANDLE_MAX KIB(256) /* a larger file is not a handle */
#define ZNS_HANDLE_COPY_MAX KIB(64) /* largest size of one plain copy */
#define ZNS_HANDLE_COPIES_MAX MIB(1) /* largest size of all plain copies together */

/* Does @dirfd have a handle, even a damaged one? */
bool zns_handle_present(int dirfd);

/* Reads and checks a handle; free with zns_pb__handle__free_unpacked. -ENOENT: there is none;
 * -EBADMSG: damaged or not a handle. */
int zns_handle_read(int dirfd, ZnsPb__Handle **out, struct zns_err *err);

/* Like zns_handle_read, from a buffer that holds the whole file. */
int zns_handle_parse(const uint8_t *buf, size_t len, ZnsPb__Handle **out, struct zns_err *err);

/* Copies to @h what a handle repeats of the record for people and tools. The strings stay owned by
 * the record. */
void zns_handle_describe(ZnsPb__Handle *h, const ZnsPb__Checkpoint *c);

/*
 * Does the handle name @c, with the container and the time of its record? These never change, so
 * -EXDEV means that the id belongs to another checkpoint. It does not matter whether the directory
 * was renamed or copied.
 */
int zns_handle_agrees(const ZnsPb__Handle *h, const ZnsPb__Checkpoint *c, struct zns_err *err);

/* Writes the handle durably: temporary name, fsync, rename, fsync of the directory. */
int zns_handle_write(int dirfd, const ZnsPb__Handle *h, struct zns_err *err);

/*
 * Compares the plain copies in @dirfd with their descriptions in the handle. Returns how many
 * differ or are missing, and names the first ones in @err. Restores read the device, not the
 * copies, so the caller only warns.
 */
int zns_handle_check_copies(int dirfd, const ZnsPb__Handle *h, struct zns_err *err);

/* The checkpoint of @m has only pages. Does @dirfd have the other images, from the same dump?
 * -ENOENT: none of them is there yet. -EXDEV: some are missing, or they are from another dump. */
int zns_plain_check(int dirfd, const ZnsPb__Manifest *m, struct zns_err *err);

#endif
