/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_PAGEMAP_H
#define ZNS_PAGEMAP_H
/* Reads and writes CRIU's pagemap images: lists of the pages that are in a pages image. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "zns/err.h"

/* Pages that are in the pages image, in this order, or in the parent; whole pages, in bytes. */
struct zns_pagemap_run {
	uint64_t vaddr, len;
	bool parent;
	bool lazy; /* a lazy restore may bring it when the task runs */
};

/* The entries as they follow an image's head. The caller owns the malloc'ed *@out. -ENOMEM. */
int zns_pagemap_entries(const struct zns_pagemap_run *run, size_t nr, uint8_t **out, size_t *len,
			struct zns_err *err);

/* The runs of an image, malloc'ed, the caller's. *@pages_id: the number in its pages image's name.
 * -EBADMSG. */
int zns_pagemap_runs(const uint8_t *buf, size_t len, const char *name, struct zns_pagemap_run **out,
		     size_t *nr, uint32_t *pages_id, struct zns_err *err);

#endif
