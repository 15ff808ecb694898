/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_PLACES_H
#define ZNS_PLACES_H
/* Of a process that is copied while it runs: where the newest copy of each of its pages is. One
 * thread. */
#include "zns/track.h"

/* A run of pages, and its copy in an image; addresses and lengths are whole pages, in bytes. */
struct place {
	uint64_t vaddr, len, at;
	uint32_t source; /* number of the image */
};

struct places {
	struct place *p; /* in order of addresses, without overlaps */
	size_t nr, max;
};

/* Adds copies that replace all earlier ones of the same addresses. @more is in order of addresses.
 * -ENOMEM: nothing has changed. */
int places_put(struct places *l, const struct place *more, size_t nr);
/* Removes the copies of these pages. @s is in order of addresses. */
int places_drop(struct places *l, const struct zns_span *s, size_t nr);
/* Removes the copies of all other pages. */
int places_keep(struct places *l, const struct zns_span *s, size_t nr);
/* Appends @one, or merges it with the last entry. */
int places_append(struct places *l, struct place one);
void places_free(struct places *l);

#endif
