/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_PAGEMAP_H
#define ZNS_PAGEMAP_H
/* Reads and writes CRIU's pagemap images: lists of the pages that are in a pages image. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "zns/err.h"

/* A run of whole pages that are in the pages image, in this order, or in the parent; in bytes. */
struct zns_pagemap_run {
	uint64_t vaddr, len;
	bool parent;
	bool lazy; /* a lazy restore may load it while the task runs */
};

/* Encodes the entries as they follow an image's head. The caller frees *out. -ENOMEM. */
int zns_pagemap_entries(const struct zns_pagemap_run *run, size_t nr, uint8_t **out, size_t *len,
			struct zns_err *err);

/* Decodes the runs of an image. The caller frees *out. *pages_id: the number in the name of its
 * pages image. -EBADMSG. */
int zns_pagemap_runs(const uint8_t *buf, size_t len, const char *name, struct zns_pagemap_run **out,
		     size_t *nr, uint32_t *pages_id, struct zns_err *err);

#endif
