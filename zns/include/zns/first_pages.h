/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_FIRST_PAGES_H
#define ZNS_FIRST_PAGES_H
/*
 * Which pages of a checkpoint its tasks touched first after a lazy restore: the next one brings
 * them before the tasks run (Documentation/inside/format.md, "First pages"). A list is of one checkpoint
 * and only saves time: whoever cannot read it does without.
 */
#include <stddef.h>
#include <stdint.h>
#include "zns/err.h"
#include "zns-record.pb-c.h"

struct zns_crypt;

/* Whole pages of 4 KiB of pages-IMAGE.img. */
struct zns_first_run {
	uint32_t image;
	uint64_t off, len; /* bytes */
};

/*
 * The list for a record of @id: malloc'ed, *len bytes. @c: the key of an encrypted checkpoint, or
 * NULL. *nr_out: how many of the runs are in it, the first ones, as a record has its limit
 * (ZNS_FIRST_MAX).
 */
int zns_first_pack(const struct zns_first_run *run, size_t nr, const struct zns_crypt *c,
		   uint8_t **out, size_t *len, size_t *nr_out, struct zns_err *err);

/*
 * The runs of a record, in order; malloc'ed. They may name what the checkpoint does not have.
 * -EBADMSG: no list, or not one for this checkpoint and key.
 */
int zns_first_unpack(const ZnsPb__FirstPages *f, const struct zns_crypt *c,
		     struct zns_first_run **out, size_t *nr, struct zns_err *err);

#endif
