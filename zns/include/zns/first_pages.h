/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_FIRST_PAGES_H
#define ZNS_FIRST_PAGES_H
/*
 * The list of the pages of a checkpoint that its tasks touched first after a lazy restore. The next
 * lazy restore loads them before the tasks run (Documentation/inside/format.md, "First pages"). A
 * list belongs to one checkpoint. It only saves time: a restore that cannot read it works without
 * it.
 */
#include <stddef.h>
#include <stdint.h>
#include "zns/err.h"
#include "zns-record.pb-c.h"

struct zns_crypt;

/* A run of whole 4 KiB pages of pages-IMAGE.img. */
struct zns_first_run {
	uint32_t image;
	uint64_t off, len; /* bytes */
};

/*
 * Packs the list for the record of checkpoint @id; *out is malloc'ed and has *len bytes. @c: the
 * key of an encrypted checkpoint, or NULL. A record is limited to ZNS_FIRST_MAX bytes: *nr_out says
 * how many runs, from the first one on, are in it.
 */
int zns_first_pack(const struct zns_first_run *run, size_t nr, const struct zns_crypt *c,
		   uint8_t **out, size_t *len, size_t *nr_out, struct zns_err *err);

/*
 * Returns the runs of a record in order; malloc'ed. The runs may refer to images or pages that the
 * checkpoint does not have. -EBADMSG: it is not a list, or not one for this checkpoint and key.
 */
int zns_first_unpack(const ZnsPb__FirstPages *f, const struct zns_crypt *c,
		     struct zns_first_run **out, size_t *nr, struct zns_err *err);

#endif
