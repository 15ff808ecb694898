/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Sets of pages as sorted lists of spans: see zns/track.h. */
#include <stdlib.h>
#include <string.h>

#include "zns/grow.h"
#include "zns/track.h"

/*
 * Finds the first span that ends at or behind @addr. No earlier span can overlap or adjoin a span
 * that begins at @addr.
 */
static size_t first_reaching(const struct zns_spans *l, uint64_t addr)
{
	size_t lo = 0, hi = l->nr;

	if (!l->nr || l->s[l->nr - 1].end < addr)
		return l->nr;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (l->s[mid].end < addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

int zns_spans_add(struct zns_spans *l, uint64_t start, uint64_t end)
{
	size_t i = first_reaching(l, start), j = i;

	if (start >= end)
		return 0;
	for (; j < l->nr && l->s[j].start <= end; j++) {
		start = start < l->s[j].start ? start : l->s[j].start;
		end = end > l->s[j].end ? end : l->s[j].end;
	}
	if (i == j) { /* it overlaps or adjoins no span */
		if (zns_grow(l->s, l->nr, l->max))
			return -ENOMEM;
		memmove(l->s + i + 1, l->s + i, (l->nr - i) * sizeof(*l->s));
		l->nr++;
	} else if (j > i + 1) {
		memmove(l->s + i + 1, l->s + j, (l->nr - j) * sizeof(*l->s));
		l->nr -= j - i - 1;
	}
	l->s[i] = (struct zns_span){ start, end };
	return 0;
}

/*
 * A span that is added in the middle moves all that follow it, so only lists of up to this many
 * spans are added one by one.
 */
#define JOIN_FEW 16

int zns_spans_join(struct zns_spans *l, const struct zns_spans *more)
{
	struct zns_spans out = { 0 };
	size_t i = 0, j = 0;
	int ret = 0;

	if (more->nr <= JOIN_FEW || !l->nr || l->s[l->nr - 1].end < more->s[0].start) {
		for (; i < more->nr && !ret; i++)
			ret = zns_spans_add(l, more->s[i].start, more->s[i].end);
		return ret;
	}
	while (!ret && (i < l->nr || j < more->nr)) {
		bool first = j == more->nr || (i < l->nr && l->s[i].start < more->s[j].start);
		const struct zns_span *one = first ? &l->s[i++] : &more->s[j++];

		ret = zns_spans_add(&out, one->start, one->end);
	}
	zns_spans_free(ret ? &out : l);
	if (!ret)
		*l = out;
	return ret;
}

int zns_spans_both(const struct zns_spans *a, const struct zns_spans *b, struct zns_spans *out)
{
	int ret = 0;

	zns_spans_clear(out);
	for (size_t i = 0, j = 0; i < a->nr && j < b->nr && !ret;) {
		const struct zns_span *x = &a->s[i], *y = &b->s[j];

		/* zns_spans_add() ignores an empty span */
		ret = zns_spans_add(out, x->start > y->start ? x->start : y->start,
				    x->end < y->end ? x->end : y->end);
		if (x->end < y->end)
			i++;
		else
			j++;
	}
	return ret;
}

int zns_spans_without(const struct zns_spans *a, const struct zns_spans *b, struct zns_spans *out)
{
	int ret = 0;

	zns_spans_clear(out);
	for (size_t i = 0, j = 0; i < a->nr && !ret; i++) {
		uint64_t at = a->s[i].start, end = a->s[i].end;

		while (j < b->nr && b->s[j].end <= at)
			j++;
		for (size_t k = j; !ret && k < b->nr && b->s[k].start < end; k++) {
			ret = zns_spans_add(out, at, b->s[k].start);
			at = at > b->s[k].end ? at : b->s[k].end;
		}
		if (!ret)
			ret = zns_spans_add(out, at, end);
	}
	return ret;
}

bool zns_spans_has(const struct zns_spans *l, uint64_t addr)
{
	size_t i = first_reaching(l, addr + 1);

	return i < l->nr && l->s[i].start <= addr;
}

uint64_t zns_spans_bytes(const struct zns_spans *l)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < l->nr; i++)
		sum += l->s[i].end - l->s[i].start;
	return sum;
}

void zns_spans_clear(struct zns_spans *l)
{
	l->nr = 0;
}

void zns_spans_free(struct zns_spans *l)
{
	free(l->s);
	*l = (struct zns_spans){ 0 };
}
