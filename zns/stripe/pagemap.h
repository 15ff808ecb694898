/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_STRIPE_PAGEMAP_H
#define ZNS_STRIPE_PAGEMAP_H
/* CRIU's pagemap images: one or two magic numbers, a head, then entries in order of their
 * addresses. */
#include <stddef.h>
#include <stdint.h>
#include "zns/err.h"
#include "zns-pagemap.pb-c.h"

#define ZNS_PE_PARENT 1u
#define ZNS_PE_LAZY 2u
#define ZNS_PE_PRESENT 4u

struct pagemap {
	uint32_t pages_id;
	ZnsPb__PagemapEntry **e;
	/* for each entry: byte offset of its pages in the pages image; set only if its pages are
	 * present */
	uint64_t *off;
	size_t nr, max_e, max_off;
	size_t head; /* bytes before the first entry */
};

/* Copies what it needs from @buf. -EBADMSG: @buf is no pagemap image. */
int pagemap_parse(const uint8_t *buf, size_t len, const char *name, struct pagemap *out,
		  struct zns_err *err);
void pagemap_fini(struct pagemap *p);
/* Returns the size of entry @i in its packed form, in bytes, and writes that to @buf unless @buf
 * is NULL. */
size_t pagemap_pack_entry(const ZnsPb__PagemapEntry *e, uint8_t *buf);

uint64_t pagemap_pages(const ZnsPb__PagemapEntry *e);
uint32_t pagemap_flags(const ZnsPb__PagemapEntry *e);
/* The entry that contains @vaddr, or NULL. */
const ZnsPb__PagemapEntry *pagemap_find(const struct pagemap *p, uint64_t vaddr, size_t *index);

#endif
