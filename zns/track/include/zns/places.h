/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_PLACES_H
#define ZNS_PLACES_H
/*
 * For a process that is copied while it runs: says where the newest copy of each page is. For use
 * by one thread.
 */
#include "zns/track.h"

/*
 * A run of pages and the place of its copy in an image. Addresses and lengths are in bytes, and
 * multiples of the page size.
 */
struct place {
	uint64_t vaddr, len, at;
	uint32_t source; /* number of the image */
};

struct places {
	struct place *p; /* sorted by address, without overlaps */
	size_t nr, max;
};

/*
 * Adds copies. They replace all earlier copies of the same addresses. @more is sorted by address.
 * -ENOMEM: nothing has changed.
 */
int places_put(struct places *l, const struct place *more, size_t nr);
/* Removes the copies of these pages. @s is sorted by address. */
int places_drop(struct places *l, const struct zns_span *s, size_t nr);
/* Removes the copies of all other pages. */
int places_keep(struct places *l, const struct zns_span *s, size_t nr);
/* Appends @one, or merges it with the last entry. */
int places_append(struct places *l, struct place one);
void places_free(struct places *l);

#endif
