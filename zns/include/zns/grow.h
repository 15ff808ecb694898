/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_GROW_H
#define ZNS_GROW_H
/*
 * Arrays that grow. Both macros make room for one more element behind the present @nr, and return 0
 * or -ENOMEM. On failure the array is unchanged. A size that overflows, or a count that does not
 * fit the type of @max, is a failure.
 *
 *	struct { struct thing *v; size_t nr, max; } l;
 *
 *	if (zns_grow(l.v, l.nr, l.max))
 *		return -ENOMEM;
 *	l.v[l.nr++] = thing;
 */
#include <errno.h>
#include <stddef.h>

/* Makes room for one more element. @v: pointer to the first element, or NULL; @max: for how many
 * elements there is room. The room is doubled when it is used up. */
#define zns_grow(v, nr, max) zns_grow_to(v, (size_t)(nr) + 1, max)

/* Like zns_grow, but makes room for @want elements in all. */
#define zns_grow_to(v, want, max)                                                     \
	({                                                                            \
		size_t room_ = (max), bound_ = (size_t)(__typeof__(max))-1;           \
		void *p_ = zns_grow_array((v), (want), &room_, bound_, sizeof(*(v))); \
		if (p_) {                                                             \
			(v) = p_;                                                     \
			(max) = (__typeof__(max))room_;                               \
		}                                                                     \
		p_ ? 0 : -ENOMEM;                                                     \
	})

/* Like zns_grow, for an array without a @max, such as that of a decoded message: makes room for
 * exactly one more element. */
#define zns_grow_by_one(v, nr)                                                  \
	({                                                                      \
		void *p_ = zns_grow_exact((v), (size_t)(nr) + 1, sizeof(*(v))); \
		if (p_)                                                         \
			(v) = p_;                                               \
		p_ ? 0 : -ENOMEM;                                               \
	})

/* Used by the macros. NULL: out of memory, or more than @bound elements; the caller still owns @v
 * then. */
void *zns_grow_array(void *v, size_t want, size_t *max, size_t bound, size_t size);
void *zns_grow_exact(void *v, size_t want, size_t size);

#endif
