/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* See zns/image_map.h. */
#include <stdlib.h>
#include <string.h>
#include "zns/grow.h"
#include "zns/image_map.h"
#include "zns/util.h"

/* limit in pages of 4 KiB for all offsets and lengths, so that no sum overflows */
#define PAGES_MAX (1ull << 52)
#define NUMBER_MAX 10 /* most bytes that one encoded number has */

/* ---- numbers ---- */

static size_t put(uint8_t *p, uint64_t v)
{
	size_t n = 0;

	for (; v >= 0x80; v >>= 7)
		p[n++] = (uint8_t)(v | 0x80);
	p[n++] = (uint8_t)v;
	return n;
}

/* Reads a number. false: it is incomplete, or does not fit into 64 bits. */
static bool get(const uint8_t **p, const uint8_t *end, uint64_t *v)
{
	*v = 0;
	for (unsigned shift = 0; *p < end && shift < 64; shift += 7) {
		uint8_t byte = *(*p)++;

		if (shift == 63 && byte > 1)
			return false;
		*v |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80))
			return true;
	}
	return false;
}

static uint64_t zigzag(int64_t n)
{
	return (uint64_t)n << 1 ^ (uint64_t)(n >> 63);
}

static int64_t unzigzag(uint64_t v)
{
	return (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
}

/* ---- one map ---- */

int zns_map_open(struct zns_map_reader *r, const ZnsPb__ImageMap *map, struct zns_err *err)
{
	const uint8_t *p = map->runs.data;

	/* p is not NULL here, while an empty field of a message may be NULL */
	*r = (struct zns_map_reader){ .p = p,
				      .end = map->runs.len ? p + map->runs.len : p,
				      .nr_from = (uint32_t)map->n_from };
	r->last = calloc(map->n_from + 1, sizeof(*r->last));
	return r->last ? 0 :
			 zns_fail(err, -ENOMEM, "no memory for a map of %zu images", map->n_from);
}

int zns_map_next(struct zns_map_reader *r, struct zns_image_run *run)
{
	uint64_t len, source, step;
	int64_t at;

	if (r->p == r->end)
		return 0;
	if (!get(&r->p, r->end, &len) || !get(&r->p, r->end, &source) ||
	    !get(&r->p, r->end, &step) || !len || len > PAGES_MAX || source >= r->nr_from ||
	    step > 2 * PAGES_MAX)
		return -EBADMSG;
	at = (int64_t)r->last[source] + unzigzag(step);
	if (at < 0 || (uint64_t)at > PAGES_MAX - len)
		return -EBADMSG;
	r->last[source] = (uint64_t)at + len;
	*run = (struct zns_image_run){ .len = len * ZNS_MAP_PAGE,
				       .source = (uint32_t)source,
				       .at = (uint64_t)at * ZNS_MAP_PAGE };
	return 1;
}

void zns_map_close(struct zns_map_reader *r)
{
	free(r->last);
	r->last = NULL;
}

uint32_t zns_map_runs(const ZnsPb__ImageMap *map)
{
	struct zns_map_reader r;
	struct zns_image_run run;
	uint32_t nr = 0;

	if (!zns_map_open(&r, map, NULL))
		while (zns_map_next(&r, &run) > 0)
			nr++;
	zns_map_close(&r);
	return nr;
}

bool zns_map_run_fits(const struct zns_image_run *run, uint64_t size)
{
	return run->len && !(run->len % ZNS_MAP_PAGE) && !(run->at % ZNS_MAP_PAGE) &&
	       run->len <= size && run->at <= size - run->len;
}

int zns_map_pack(const struct zns_image_run *run, size_t nr, uint32_t nr_from, uint8_t **out,
		 size_t *len, uint32_t *nr_out, struct zns_err *err)
{
	/* for each source image: where its previous run ended, in pages */
	cleanup_free uint64_t *last = calloc(nr_from + 1u, sizeof(*last));
	size_t n = 0, room = 0;
	uint8_t *p = NULL;

	*nr_out = 0;
	for (size_t i = 0, next; last && i < nr; i = next) {
		uint32_t source = run[i].source;
		uint64_t at = run[i].at / ZNS_MAP_PAGE, pages = 0;

		for (next = i; next < nr && run[next].source == source &&
			       run[next].at / ZNS_MAP_PAGE == at + pages;
		     next++)
			pages += run[next].len / ZNS_MAP_PAGE;
		if ((*nr_out)++ == ZNS_MAP_RUNS_MAX) {
			free(p);
			return zns_fail(err, -E2BIG, "an image of more than %u runs",
					ZNS_MAP_RUNS_MAX);
		}
		if (zns_grow_to(p, n + 3 * NUMBER_MAX, room)) {
			free(p);
			p = NULL;
			break;
		}
		n += put(p + n, pages);
		n += put(p + n, source);
		n += put(p + n, zigzag((int64_t)(at - last[source])));
		last[source] = at + pages;
	}
	if (!last || !p)
		return zns_fail(err, -ENOMEM, "no memory for a map of %zu runs", nr);
	*out = p;
	*len = n;
	return 0;
}

/* ---- in a manifest ---- */

uint64_t zns_images_bytes(const ZnsPb__Manifest *m)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < m->n_images; i++)
		bytes += m->images[i]->part ? 0 : m->images[i]->size;
	return bytes;
}

static int check_runs(const ZnsPb__Manifest *m, const ZnsPb__Image *i, struct zns_map_reader *r,
		      uint32_t max, uint32_t *runs, struct zns_err *err)
{
	struct zns_image_run run;
	uint64_t size = 0;
	int ret;

	for (*runs = 0; (ret = zns_map_next(r, &run)) > 0; ++*runs) {
		const ZnsPb__Image *source = m->images[i->map->from[run.source]];

		if (*runs == max)
			return zns_fail(err, -EBADMSG, "image %s: the manifest has too many runs",
					i->name);
		if (!zns_map_run_fits(&run, source->size) || run.len > i->size - size)
			return zns_fail(
				err, -EBADMSG,
				"image %s: run %u (%llu+%llu of %s) leaves that or the image",
				i->name, *runs, (unsigned long long)run.at,
				(unsigned long long)run.len, source->name);
		size += run.len;
	}
	if (ret)
		return zns_fail(err, -EBADMSG, "image %s: run %u cannot be decoded", i->name,
				*runs);
	if (!size || size != i->size)
		return zns_fail(err, -EBADMSG, "image %s: runs cover %llu of %llu bytes", i->name,
				(unsigned long long)size, (unsigned long long)i->size);
	return 0;
}

int zns_map_check(const ZnsPb__Manifest *m, size_t n, uint32_t max, uint32_t *runs,
		  struct zns_err *err)
{
	const ZnsPb__Image *i = m->images[n];
	struct zns_map_reader r;
	int ret;

	if (i->part || i->beside || i->n_segments || i->n_csums || i->n_piece_csums ||
	    i->has_piece || i->has_piece_sums || i->has_tags || i->has_unit_base ||
	    i->has_memory_key || i->has_nonces)
		return zns_fail(err, -EBADMSG,
				"image %s is composed of others, and has data of its own", i->name);
	if (!i->map->n_from || i->map->n_from > ZNS_MAP_FROM_MAX)
		return zns_fail(err, -EBADMSG,
				"image %s is composed of %zu images, which is no possible number",
				i->name, i->map->n_from);
	for (size_t f = 0; f < i->map->n_from; f++) {
		uint32_t at = i->map->from[f];

		if (at >= m->n_images || !m->images[at]->part || m->images[at]->map)
			return zns_fail(err, -EBADMSG,
					"image %s is composed of an image that is no part",
					i->name);
	}
	ret = zns_map_open(&r, i->map, err);
	if (!ret)
		ret = check_runs(m, i, &r, max, runs, err);
	zns_map_close(&r);
	return ret;
}
