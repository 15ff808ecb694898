/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Chooses the zones to empty: see zns/compact.h. */
#include <stdlib.h>
#include "zns/compact.h"
#include "zns/util.h"
#include "zns/grow.h"

struct cand {
	const struct zns_compact_zone *z;
	uint32_t at; /* index in the caller's table of zones */
};

/* Sorts by group and owner. Within these, zones with the least live data come first; of equal ones,
 * those with the most dead bytes. */
static int cmp_cand(const void *pa, const void *pb)
{
	const struct zns_compact_zone *a = ((const struct cand *)pa)->z,
				      *b = ((const struct cand *)pb)->z;

	if (a->group != b->group)
		return a->group < b->group ? -1 : 1;
	if (a->owner != b->owner)
		return a->owner < b->owner ? -1 : 1;
	if (a->live != b->live)
		return a->live < b->live ? -1 : 1;
	return a->wp > b->wp ? -1 : a->wp < b->wp;
}

static bool few(const struct zns_compact_zone *z, uint32_t percent)
{
	return !z->fixed && z->live && z->live <= z->capacity / 100 * percent;
}

static uint64_t bytes_needed(const struct zns_compact_zone *z)
{
	return z->live + z->extra;
}

/*
 * Counts the empty zones that are used up if the first @k zones of @c are emptied. The data of each
 * zone are moved in one piece, first into the partly filled zones that stay, then into empty ones.
 * @room has space for @nr + @k entries.
 */
static uint32_t zones_taken(const struct cand *c, uint32_t nr, uint32_t k, uint64_t *room,
			    bool *first_fits)
{
	uint32_t n = 0, parked, i, r;

	for (i = k; i < nr; i++)
		if (c[i].z->parked && !c[i].z->fixed)
			room[n++] = c[i].z->capacity - c[i].z->wp;
	parked = n;
	for (i = 0; i < k; i++) {
		for (r = 0; r < n && room[r] < bytes_needed(c[i].z); r++)
			;
		if (r == n)
			room[n++] = c[i].z->capacity;
		if (!i)
			*first_fits = r < parked;
		room[r] -= zns_min(room[r], bytes_needed(c[i].z));
	}
	return n - parked;
}

static int plan_set(const struct cand *c, uint32_t nr, uint32_t percent, bool have_empty,
		    uint64_t *room, struct zns_compact_plan *out, struct zns_err *err)
{
	struct zns_compact_group g = { .group = c->z->group, .owner = c->z->owner };
	uint32_t best = 0, k;
	bool fits = false;

	for (k = 1; k <= nr && few(c[k - 1].z, percent); k++) {
		uint32_t taken = zones_taken(c, nr, k, room, &fits);

		if (k > taken && k - taken > best) {
			best = k - taken;
			g.nr = k;
			g.taken = taken;
			g.blocked = !fits && !have_empty;
		}
	}
	if (!best)
		return 0;
	g.victims = calloc(g.nr, sizeof(*g.victims));
	if (!g.victims || zns_grow_by_one(out->v, out->nr)) {
		free(g.victims);
		return zns_fail(err, -ENOMEM, "no memory for %u zones", g.nr);
	}
	for (k = 0; k < g.nr; k++) {
		g.victims[k] = c[k].at;
		g.live += c[k].z->live;
		g.dead += (c[k].z->parked ? c[k].z->wp : c[k].z->capacity) -
			  zns_min(c[k].z->live, c[k].z->wp);
	}
	out->v[out->nr++] = g;
	if (!g.blocked) {
		out->freed += best;
		out->live += g.live;
	}
	return 0;
}

/* Is there any empty zone? It need not be in the data's own group: the broker decides whether
 * another group is allowed. */
static bool any_empty(const struct zns_compact_zone *z, uint32_t nr)
{
	for (uint32_t i = 0; i < nr; i++)
		if (z[i].empty)
			return true;
	return false;
}

int zns_compact_plan_make(const struct zns_compact_zone *z, uint32_t nr, uint32_t percent,
			  struct zns_compact_plan *out, struct zns_err *err)
{
	cleanup_free struct cand *c = calloc(nr + 1, sizeof(*c));
	cleanup_free uint64_t *room = calloc(2 * (size_t)nr + 1, sizeof(*room));
	bool have_empty = any_empty(z, nr);
	uint32_t n = 0, i, k;
	int ret = 0;

	*out = (struct zns_compact_plan){ 0 };
	if (!c || !room)
		return zns_fail(err, -ENOMEM, "no memory for %u zones", nr);
	for (i = 0; i < nr; i++)
		if (!z[i].fixed && z[i].live)
			c[n++] = (struct cand){ &z[i], i };
	if (n)
		qsort(c, n, sizeof(*c), cmp_cand);
	for (i = 0; i < n && !ret; i = k) {
		for (k = i;
		     k < n && c[k].z->group == c[i].z->group && c[k].z->owner == c[i].z->owner; k++)
			;
		ret = plan_set(c + i, k - i, percent, have_empty, room, out, err);
	}
	if (ret)
		zns_compact_plan_fini(out);
	return ret;
}

void zns_compact_plan_fini(struct zns_compact_plan *p)
{
	for (uint32_t i = 0; i < p->nr; i++)
		free(p->v[i].victims);
	free(p->v);
	*p = (struct zns_compact_plan){ 0 };
}
