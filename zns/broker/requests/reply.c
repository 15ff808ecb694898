/* SPDX-License-Identifier: GPL-2.0-only */
/* The answer to a request, and the memory that it uses. */
#include <string.h>
#include "requests.h"

void reply_init(struct reply *rep)
{
	*rep = (struct reply){ .fd = -1 };
	zns_pb__response__init(&rep->r);
}

void reply_keep(struct reply *rep, void *p)
{
	znsd_grow(rep->mem, rep->nr_mem, rep->max_mem);
	rep->mem[rep->nr_mem++] = p;
}

void *reply_alloc(struct reply *rep, size_t len)
{
	void *p = znsd_alloc(len);

	reply_keep(rep, p);
	return p;
}

char *reply_printf(struct reply *rep, const char *fmt, ...)
{
	char buf[1024];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(buf, sizeof(buf), fmt, ap);
	va_end(ap);
	n = zns_min(n, (int)sizeof(buf) - 1);
	return memcpy(reply_alloc(rep, n + 1), buf, n + 1);
}

void reply_free(struct reply *rep)
{
	size_t i;

	for (i = 0; i < rep->nr_mem; i++)
		free(rep->mem[i]);
	free(rep->mem);
	rep->mem = NULL;
	rep->nr_mem = rep->max_mem = 0;
}

ZnsPb__ZoneGrant *reply_zone(const struct znsd *d, struct reply *rep, uint32_t zone)
{
	const struct zn_zone *z = &d->zones[zone];
	const struct lease_zone *lz = z->writer ? lease_zone_find(z->writer, zone) : NULL;
	ZnsPb__ZoneGrant *g = reply_alloc(rep, sizeof(*g));

	zns_pb__zone_grant__init(g);
	g->zone = zone;
	g->start = z->z.wp;
	g->capacity = z->z.capacity;
	g->group = z->group;
	if (lz && lz->turn) {
		g->start = lz->start;
		g->capacity = lz->end;
		g->has_turn = 1;
		g->turn = lz->turn;
	}
	return g;
}

void reply_chain(struct reply *rep, struct chain *chain)
{
	if (!chain->v)
		return;
	reply_keep(rep, chain->v);
	rep->r.checkpoints = (ZnsPb__Checkpoint **)chain->v;
	rep->r.n_checkpoints = chain->nr;
	*chain = (struct chain){ .v = NULL };
}
