/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_PAGEMAP_H
#define ZNS_PAGEMAP_H
/* Entries of CRIU's pagemap images, for a writer that knows the pages itself. */
#include <stddef.h>
#include <stdint.h>
#include "zns/err.h"

/* Pages that are in the pages image, in this order; whole pages, in bytes. */
struct zns_pagemap_run {
	uint64_t vaddr, len;
};

/* The entries as they stand behind an image's head. *@out is malloc'ed, the caller's. -ENOMEM. */
int zns_pagemap_entries(const struct zns_pagemap_run *run, size_t nr, uint8_t **out, size_t *len,
			struct zns_err *err);

#endif
