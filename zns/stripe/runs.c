/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* See runs.h. */
#include <stdlib.h>
#include "runs.h"
#include "zns/grow.h"

int runs_init(struct runs *r, const char *name, uint32_t nr_from, struct zns_err *err)
{
	*r = (struct runs){ .name = name, .nr_from = nr_from };
	r->from = calloc(nr_from + 1u, sizeof(*r->from));
	return r->from ? 0 : zns_fail(err, -ENOMEM, "no memory for image %s", name);
}

int runs_add(struct runs *r, uint32_t source, uint64_t at, uint64_t len, struct zns_err *err)
{
	const struct run *last = r->nr ? &r->run[r->nr - 1] : NULL;

	if (last && last->source == source && last->at + (r->size - last->off) == at) {
		r->size += len;
		return 0;
	}
	if (at >> RUN_AT_BITS)
		return zns_fail(err, -EBADMSG,
				"image %s is composed of an image that is longer than any device",
				r->name);
	if (zns_grow(r->run, r->nr, r->max))
		return zns_fail(err, -ENOMEM, "no memory for the list of pages");
	r->run[r->nr++] = (struct run){ .off = r->size, .at = at, .source = source };
	r->size += len;
	return 0;
}

int runs_add_map(struct runs *r, const ZnsPb__ImageMap *map, struct zns_err *err)
{
	struct zns_map_reader m;
	struct zns_image_run run;
	int more, ret = zns_map_open(&m, map, err);

	while (!ret && (more = zns_map_next(&m, &run)))
		ret = more < 0 ? zns_fail(err, more, "image %s: its map is damaged", r->name) :
				 runs_add(r, run.source, run.at, run.len, err);
	zns_map_close(&m);
	return ret;
}

void runs_fini(struct runs *r)
{
	free(r->from);
	free(r->run);
}

size_t runs_find(const struct runs *r, uint64_t off)
{
	size_t lo = 0, hi = r->nr;

	while (hi - lo > 1) {
		size_t mid = lo + (hi - lo) / 2;

		if (r->run[mid].off <= off)
			lo = mid;
		else
			hi = mid;
	}
	return lo;
}
