/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_STRIPE_PAGEMAP_H
#define ZNS_STRIPE_PAGEMAP_H
/* CRIU's pagemap images: a magic number or two, a head, entries in order of their addresses. */
#include <stddef.h>
#include <stdint.h>
#include "zns/err.h"
#include "zns-pagemap.pb-c.h"

#define ZNS_PE_PARENT 1u
#define ZNS_PE_PRESENT 4u

struct pagemap {
	uint32_t pages_id;
	ZnsPb__PagemapEntry **e;
	uint64_t *off; /* of an entry's pages in the pages image, bytes; those that are there */
	size_t nr, max_e, max_off;
	size_t head; /* bytes before the first entry */
};

/* Takes nothing of @buf with it. -EBADMSG. */
int pagemap_parse(const uint8_t *buf, size_t len, const char *name, struct pagemap *out,
		  struct zns_err *err);
void pagemap_fini(struct pagemap *p);
/* Bytes of entry @i as an image has them; @buf NULL: only how many. */
size_t pagemap_pack_entry(const ZnsPb__PagemapEntry *e, uint8_t *buf);

uint64_t pagemap_pages(const ZnsPb__PagemapEntry *e);
uint32_t pagemap_flags(const ZnsPb__PagemapEntry *e);
/* The entry that has @vaddr, or NULL. */
const ZnsPb__PagemapEntry *pagemap_find(const struct pagemap *p, uint64_t vaddr, size_t *index);

#endif
