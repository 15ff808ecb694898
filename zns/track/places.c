/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <stdlib.h>
#include "zns/places.h"
#include "zns/grow.h"
#include "zns/util.h"

int places_append(struct places *l, struct place one)
{
	struct place *last = l->nr ? &l->p[l->nr - 1] : NULL;

	if (last && last->source == one.source && last->vaddr + last->len == one.vaddr &&
	    last->at + last->len == one.at) {
		last->len += one.len;
		return 0;
	}
	if (zns_grow(l->p, l->nr, l->max))
		return -ENOMEM;
	l->p[l->nr++] = one;
	return 0;
}

/* Removes the first @len bytes of @p. */
static void shorten(struct place *p, uint64_t len)
{
	p->vaddr += len;
	p->at += len;
	p->len -= len;
}

/* Moves the parts of *@at and the following places that lie before @end to @out. */
static int move_before(struct places *out, struct place **at, const struct place *stop,
		       uint64_t end)
{
	while (*at < stop && (*at)->vaddr < end) {
		struct place part = **at;

		part.len = zns_min(part.len, end - part.vaddr);
		if (places_append(out, part))
			return -ENOMEM;
		shorten(*at, part.len);
		if ((*at)->len)
			return 0;
		++*at;
	}
	return 0;
}

static void skip_before(struct place **at, const struct place *stop, uint64_t end)
{
	while (*at < stop && (*at)->vaddr < end) {
		shorten(*at, zns_min((*at)->len, end - (*at)->vaddr));
		if ((*at)->len)
			return;
		++*at;
	}
}

/*
 * Gets the next part of the list @from, whose parts are sorted by address. Places in its range
 * [start, end) are to be replaced.
 */
typedef bool (*next_part)(const void *from, size_t n, struct place *out);

static int overlay(struct places *l, const void *from, size_t nr, next_part next)
{
	struct places out = { 0 };
	struct place *at = l->p, *stop = l->p + l->nr, one;
	int ret = 0;

	/* allocate first: after the loop below has begun, the old list is not complete any more */
	if (zns_grow_to(out.p, l->nr + 2 * nr + 1, out.max))
		return -ENOMEM;
	for (size_t n = 0; n < nr && !ret; n++) {
		bool put = next(from, n, &one);

		ret = move_before(&out, &at, stop, one.vaddr);
		skip_before(&at, stop, one.vaddr + one.len);
		if (!ret && put)
			ret = places_append(&out, one);
	}
	if (!ret)
		ret = move_before(&out, &at, stop, UINT64_MAX);
	free(l->p);
	*l = out;
	return ret;
}

static bool next_place(const void *from, size_t n, struct place *out)
{
	*out = ((const struct place *)from)[n];
	return true;
}

static bool next_span(const void *from, size_t n, struct place *out)
{
	const struct zns_span *s = from;

	*out = (struct place){ .vaddr = s[n].start, .len = s[n].end - s[n].start };
	return false;
}

/* Gets the gap before span @n. */
static bool next_gap(const void *from, size_t n, struct place *out)
{
	const struct zns_span *s = from;
	uint64_t start = n ? s[n - 1].end : 0;

	*out = (struct place){ .vaddr = start, .len = s[n].start - start };
	return false;
}

int places_put(struct places *l, const struct place *more, size_t nr)
{
	return overlay(l, more, nr, next_place);
}

int places_drop(struct places *l, const struct zns_span *s, size_t nr)
{
	return overlay(l, s, nr, next_span);
}

int places_keep(struct places *l, const struct zns_span *s, size_t nr)
{
	struct zns_span rest = { nr ? s[nr - 1].end : 0, UINT64_MAX };
	int ret = overlay(l, s, nr, next_gap);

	return ret ? ret : places_drop(l, &rest, 1);
}

void places_free(struct places *l)
{
	free(l->p);
	*l = (struct places){ 0 };
}
