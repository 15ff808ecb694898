/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_ORIGIN_H
#define ZNS_ORIGIN_H
/*
 * Memory of a context that is still in the checkpoint from which its processes were restored. The
 * place of such a unit is an index of a table in shared memory; a successor gets the table as a
 * descriptor. The bytes are read and verified by the store's reader, so any kind of checkpoint
 * works. The context's lock file names the checkpoint (zns/context.h), so the checkpoint is not
 * removed. Counts work as in zns/pages.h. Any thread may call get, hold, drop and left. Functions
 * return 0 or -errno and fill @err (may be NULL).
 */
#include <stdbool.h>
#include "zns/config.h"
#include "zns/mem.h"

struct zns_origin;

/* A part of a pages image: its offset in the image, and its address in the process. */
struct zns_origin_part {
	uint64_t off, base, len; /* in bytes, multiples of the page size */
};

/* Finds the name of the checkpoint's container, and whether the checkpoint is encrypted. */
int zns_origin_look(const uint8_t device[ZNS_UUID_LEN], const uint8_t checkpoint[ZNS_UUID_LEN],
		    char name[ZNS_NAME_MAX + 1], bool *encrypted, struct zns_err *err);

/*
 * @lock: the context's lock file. This call writes the checkpoint's id into it, also if it fails
 * later.
 */
int zns_origin_new(const uint8_t device[ZNS_UUID_LEN], const uint8_t checkpoint[ZNS_UUID_LEN],
		   int lock, struct zns_origin **out, struct zns_err *err);
/*
 * For the pager that takes over from a dead one. @fd: a descriptor from zns_origin_fd(), which the
 * caller keeps. The caller counts all units anew: each count begins at 0. As in zns_origin_new(),
 * an encrypted checkpoint needs the master key.
 */
int zns_origin_take(int fd, struct zns_origin **out, struct zns_err *err);
int zns_origin_fd(const struct zns_origin *o);
const uint8_t *zns_origin_checkpoint(const struct zns_origin *o);
bool zns_origin_encrypted(const struct zns_origin *o);

/*
 * Makes the units of one process from @v, the parts of an image that the process lacks. @v is
 * sorted by address, without overlaps (else -EPROTO). Each unit gets a count of 1. *@out is sorted
 * by address; the caller frees it. Only one thread may call this.
 */
int zns_origin_add(struct zns_origin *o, uint32_t image, const struct zns_origin_part *v, size_t nr,
		   struct zns_mem_given **out, size_t *nr_out, struct zns_err *err);

static inline bool zns_origin_has(uint64_t place)
{
	return place & ZNS_MEM_ORIGIN;
}

/*
 * Reads a unit. Pages that the unit does not have in the checkpoint become zeroes. -ENOENT: its
 * last count was dropped.
 */
int zns_origin_get(struct zns_origin *o, uint64_t place, void *buf, struct zns_err *err);
int zns_origin_hold(struct zns_origin *o, uint64_t place);
int zns_origin_drop(struct zns_origin *o, uint64_t place);
uint64_t zns_origin_left(const struct zns_origin *o); /* number of units with a count */

/*
 * Waits for reads in progress, then closes the device and the checkpoint. Later reads return
 * -ENOENT.
 */
void zns_origin_end(struct zns_origin *o);
void zns_origin_free(struct zns_origin *o); /* @o may be NULL */

#endif
