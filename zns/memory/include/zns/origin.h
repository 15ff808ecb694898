/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_ORIGIN_H
#define ZNS_ORIGIN_H
/*
 * Memory of a context that still lies in the checkpoint that its processes were restored from. A
 * unit's place there is a number of a table in shared memory, which a successor gets as a
 * descriptor; the bytes come through the reader, verified, whatever the checkpoint is made of. The
 * context's lock file names the checkpoint (zns/context.h), so it stays where it is. Counts are as
 * those of zns/pages.h. Any thread may call get, hold, drop and left. Functions return 0 or -errno
 * and fill @err (may be NULL).
 */
#include <stdbool.h>
#include "zns/config.h"
#include "zns/mem.h"

struct zns_origin;

/* A part of a pages image: its offset there, and the address where the process has it. */
struct zns_origin_part {
	uint64_t off, base, len; /* bytes, whole pages */
};

/* The container of a checkpoint, and whether its record says that it is encrypted. */
int zns_origin_look(const uint8_t device[ZNS_UUID_LEN], const uint8_t checkpoint[ZNS_UUID_LEN],
		    char name[ZNS_NAME_MAX + 1], bool *encrypted, struct zns_err *err);

/* @lock: the context's lock file, which names the checkpoint from here on, also after a failure. */
int zns_origin_new(const uint8_t device[ZNS_UUID_LEN], const uint8_t checkpoint[ZNS_UUID_LEN],
		   int lock, struct zns_origin **out, struct zns_err *err);
/* A successor's, from zns_origin_fd(), which stays the caller's. Nothing counts yet. Like the
 * first one it needs the master key of an encrypted checkpoint. */
int zns_origin_take(int fd, struct zns_origin **out, struct zns_err *err);
int zns_origin_fd(const struct zns_origin *o);
const uint8_t *zns_origin_checkpoint(const struct zns_origin *o);
bool zns_origin_encrypted(const struct zns_origin *o);

/*
 * Units of one process, from the parts of an image that it lacks: in order of addresses, without
 * overlaps (-EPROTO). Each counts once. *@out is to be freed; in order of addresses. For one
 * thread.
 */
int zns_origin_add(struct zns_origin *o, uint32_t image, const struct zns_origin_part *v, size_t nr,
		   struct zns_mem_given **out, size_t *nr_out, struct zns_err *err);

static inline bool zns_origin_has(uint64_t place)
{
	return place & ZNS_MEM_ORIGIN;
}

/* Pages that the unit does not have there are zeroes. -ENOENT: nobody needed it any more. */
int zns_origin_get(struct zns_origin *o, uint64_t place, void *buf, struct zns_err *err);
int zns_origin_hold(struct zns_origin *o, uint64_t place);
int zns_origin_drop(struct zns_origin *o, uint64_t place);
uint64_t zns_origin_left(const struct zns_origin *o); /* units that count */

/* Close device and checkpoint, after waiting for readers. Later reads get -ENOENT. */
void zns_origin_end(struct zns_origin *o);
void zns_origin_free(struct zns_origin *o); /* NULL is fine */

#endif
