/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* See zns/grow.h. */
#include <stdint.h>
#include <stdlib.h>
#include "zns/grow.h"
#include "zns/util.h"

#define FIRST 16 /* elements of a new array */

/* @want is 0 if the caller's count overflowed. */
void *zns_grow_exact(void *v, size_t want, size_t size)
{
	size_t bytes;

	if (!want || __builtin_mul_overflow(want, size, &bytes))
		return NULL;
	return realloc(v, bytes);
}

void *zns_grow_array(void *v, size_t want, size_t *max, size_t bound, size_t size)
{
	size_t room = *max > SIZE_MAX / 2 ? SIZE_MAX : 2 * *max;
	void *p;

	if (v && want && want <= *max)
		return v;
	room = zns_max(room, (size_t)FIRST);
	room = zns_max(room, want);
	room = zns_min(room, bound);
	p = room < want ? NULL : zns_grow_exact(v, want ? room : 0, size);
	if (p)
		*max = room;
	return p;
}
