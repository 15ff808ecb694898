/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Lists of the catalogue. Entries are appended; a removed entry leaves a hole until the list is
 * compacted. */
#include "store_int.h"
#include "zns/grow.h"

void zns_list_compact(struct zns_list *l)
{
	size_t n = 0;

	if (!l->holes)
		return;
	for (size_t i = 0; i < l->nr; i++) {
		if (!l->v[i])
			continue;
		l->v[n] = l->v[i];
		l->v[n]->pos = n;
		n++;
	}
	l->nr = n;
	l->holes = 0;
}

int zns_list_room(struct zns_list *l)
{
	/* Compact when half of the entries are holes, so that the list of a long log with commits
	 * and removals does not grow without limit. */
	if (l->nr == l->cap && l->holes > l->nr / 2)
		zns_list_compact(l);
	return zns_grow(l->v, l->nr, l->cap);
}

void zns_list_add(struct zns_list *l, struct zns_ent *e)
{
	e->pos = l->nr;
	l->v[l->nr++] = e;
	l->bytes += e->rec;
}

void zns_list_take(struct zns_list *l, struct zns_ent *e)
{
	l->v[e->pos] = NULL;
	l->holes++;
	l->bytes -= e->rec;
}

void zns_list_del(struct zns_list *l, struct zns_ent *e)
{
	zns_list_take(l, e);
	zns_ent_free(e);
}

void zns_list_replace(struct zns_list *l, struct zns_ent *old, struct zns_ent *e)
{
	e->pos = old->pos;
	l->v[e->pos] = e;
	l->bytes += e->rec - old->rec;
}

struct zns_ent *zns_list_swap(struct zns_list *l, struct zns_ent *e)
{
	struct zns_ent *old = l->nr ? l->v[0] : NULL;

	l->nr = 0;
	l->bytes = 0;
	if (e)
		zns_list_add(l, e);
	return old;
}

void zns_ent_free(struct zns_ent *e)
{
	if (!e)
		return;
	if (e->msg)
		protobuf_c_message_free_unpacked(e->msg, NULL);
	free(e->places);
	free(e);
}

void zns_list_fini(struct zns_list *l)
{
	for (size_t i = 0; i < l->nr; i++)
		zns_ent_free(l->v[i]);
	free(l->v);
	*l = (struct zns_list){ 0 };
}
