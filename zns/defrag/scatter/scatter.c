/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* How fast a checkpoint can be read, and what to move: see zns/scatter.h. */
#include <stdlib.h>
#include <string.h>
#include "zns/grow.h"
#include "zns/scatter.h"
#include "zns/util.h"

/* room for what is written besides the units: the new manifest and its footer */
#define SLACK MIB(1)
/* how many groups are tried as the target of a move: those with the least to read */
#define TARGETS 4

uint64_t zns_scatter_bytes(const struct zns_scatter *s)
{
	uint64_t sum = 0;

	for (uint64_t i = 0; i < s->nr_units; i++)
		sum += s->units[i].len;
	return sum;
}

/* Puts the reader that becomes idle first at its place in the heap, now that it is busy until
 * @t. */
static void sink(uint64_t *heap, uint32_t nr, uint64_t t)
{
	uint32_t i = 0;

	for (;;) {
		uint32_t k = 2 * i + 1;

		if (k + 1 < nr && heap[k + 1] < heap[k])
			k++;
		if (k >= nr || heap[k] >= t)
			break;
		heap[i] = heap[k];
		i = k;
	}
	heap[i] = t;
}

uint64_t zns_scatter_time(const struct zns_scatter *s, const uint32_t *group_of)
{
	cleanup_free uint64_t *idle = calloc((size_t)s->depth + 1, sizeof(*idle));
	cleanup_free uint64_t *group = calloc((size_t)s->nr_groups + 1, sizeof(*group));
	uint64_t end = 0;

	if (!idle || !group || !s->depth)
		return 0;
	for (uint64_t i = 0; i < s->nr_units; i++) {
		const struct zns_scatter_unit *u = &s->units[i];
		uint32_t g = group_of ? group_of[u->at] : s->zones[u->at].group;

		group[g] = zns_max(group[g], idle[0]) + u->len;
		end = zns_max(end, group[g]);
		sink(idle, s->depth, group[g]);
	}
	return end;
}

double zns_scatter_rate(const struct zns_scatter *s, const uint32_t *group_of)
{
	uint64_t t = zns_scatter_time(s, group_of);

	return t ? zns_min((double)zns_scatter_bytes(s) / zns_max(s->width, 1u) / (double)t, 1.0) :
		   0;
}

/* ---- what to move ---- */

struct search {
	const struct zns_scatter *s;
	uint64_t *room;
	uint32_t *group_of;
	bool *moved;
	uint64_t *load; /* bytes of the checkpoint in each group */
};

/* Selects the groups with the least to read that have room for @bytes, at most TARGETS. */
static uint32_t targets(const struct search *x, uint32_t from, uint64_t bytes, uint32_t *out)
{
	uint32_t n = 0;

	while (n < TARGETS) {
		uint32_t best = UINT32_MAX;

		for (uint32_t g = 0; g < x->s->nr_groups; g++) {
			bool had = g == from || x->room[g] < bytes + SLACK;

			for (uint32_t k = 0; k < n; k++)
				had |= out[k] == g;
			if (!had && (best == UINT32_MAX || x->load[g] < x->load[best]))
				best = g;
		}
		if (best == UINT32_MAX || x->load[best] >= x->load[from])
			break;
		out[n++] = best;
	}
	return n;
}

/* Finds the move that gains most bandwidth for each byte moved. Returns that gain for each byte; 0:
 * no move gains anything. */
static double best_move(const struct search *x, double now, uint64_t left,
			struct zns_scatter_move *best)
{
	double most = 0;

	for (uint32_t i = 0; i < x->s->nr_zones; i++) {
		const struct zns_scatter_zone *z = &x->s->zones[i];
		uint32_t to[TARGETS], n, from = x->group_of[i];

		if (z->fixed || x->moved[i] || !z->bytes || z->bytes > left)
			continue;
		n = targets(x, from, z->bytes, to);
		for (uint32_t k = 0; k < n; k++) {
			double then;

			x->group_of[i] = to[k];
			then = zns_scatter_rate(x->s, x->group_of);
			if ((then - now) / (double)z->bytes > most) {
				most = (then - now) / (double)z->bytes;
				*best = (struct zns_scatter_move){
					.at = i, .group = to[k], .before = now, .after = then
				};
			}
		}
		x->group_of[i] = from;
	}
	return most;
}

static int search(struct search *x, double pays, uint32_t most, struct zns_scatter_plan *out)
{
	uint64_t all = zns_scatter_bytes(x->s), budget = all / 100 * most;

	out->before = out->after = zns_scatter_rate(x->s, NULL);
	while (all) {
		struct zns_scatter_move m = { 0 };
		uint64_t bytes;
		double gain = best_move(x, out->after, budget - out->bytes, &m);

		/* stop if the gain, as a part of the present bandwidth, is too small for the part
		 * of the bytes that is moved */
		if (gain <= 0 || gain * (double)all < pays * out->after)
			break;
		bytes = x->s->zones[m.at].bytes;
		if (zns_grow_by_one(out->v, out->nr))
			return -ENOMEM;
		out->v[out->nr++] = m;
		out->bytes += bytes;
		out->after = m.after;
		x->load[x->group_of[m.at]] -= bytes;
		x->load[m.group] += bytes;
		x->room[m.group] -= bytes + SLACK;
		x->group_of[m.at] = m.group;
		x->moved[m.at] = true;
	}
	return 0;
}

int zns_scatter_plan_make(const struct zns_scatter *s, uint64_t *room, double pays, uint32_t most,
			  struct zns_scatter_plan *out, struct zns_err *err)
{
	cleanup_free uint32_t *group_of = calloc((size_t)s->nr_zones + 1, sizeof(*group_of));
	cleanup_free uint64_t *load = calloc((size_t)s->nr_groups + 1, sizeof(*load));
	cleanup_free bool *moved = calloc((size_t)s->nr_zones + 1, sizeof(*moved));
	struct search x = { s, room, group_of, moved, load };
	int ret = 0;

	*out = (struct zns_scatter_plan){ 0 };
	if (!group_of || !load || !moved)
		ret = -ENOMEM;
	for (uint32_t i = 0; i < s->nr_zones && !ret; i++) {
		group_of[i] = s->zones[i].group;
		load[group_of[i]] += s->zones[i].bytes;
	}
	if (!ret)
		ret = search(&x, pays, most, out);
	if (!ret)
		return 0;
	zns_scatter_plan_fini(out);
	return zns_fail(err, ret, "no memory for %u zones", s->nr_zones);
}

void zns_scatter_plan_fini(struct zns_scatter_plan *p)
{
	free(p->v);
	*p = (struct zns_scatter_plan){ 0 };
}
