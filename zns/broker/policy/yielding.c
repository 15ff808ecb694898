/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Leases of packages, as far as the broker knows them. Some of them read the checkpoint that they
 * were restored from; that checkpoint and its parents are not removed.
 */
#include <string.h>
#include "zns/chain.h"
#include "policy.h"

#define KINDS_MAX 4

static const struct yielding *kinds[KINDS_MAX];
static size_t nr_kinds;

void yielding_register(const struct yielding *ops)
{
	if (nr_kinds == KINDS_MAX)
		abort();
	kinds[nr_kinds++] = ops;
}

void yielding_adopt(struct znsd *d)
{
	for (size_t i = 0; i < nr_kinds; i++)
		kinds[i]->adopt(d);
}

bool yielding_lives(const struct znsd *d)
{
	const struct lease *l;

	for (l = d->leases; l; l = l->next)
		if (l->kind == LEASE_YIELDING)
			return true;
	return false;
}

struct lease *yielding_find(const struct znsd *d, const uint8_t *id)
{
	struct lease *l;

	for (l = d->leases; l; l = l->next)
		if (l->kind == LEASE_YIELDING && !memcmp(l->id, id, ZNS_UUID_LEN))
			return l;
	return NULL;
}

uint32_t yielding_zones(const struct znsd *d)
{
	const struct lease *l;
	uint32_t n = 0;

	for (l = d->leases; l; l = l->next)
		if (l->kind == LEASE_YIELDING)
			n += l->nr_zones;
	return n;
}

const struct lease *yielding_most(const struct znsd *d, char out[YIELDING_MOST_MAX])
{
	const struct lease *l, *most = NULL;
	const char *name;

	for (l = d->leases; l; l = l->next)
		if (l->kind == LEASE_YIELDING && (!most || l->nr_zones > most->nr_zones))
			most = l;
	name = most ? strchr(most->container, ':') : NULL;
	snprintf(out, YIELDING_MOST_MAX, "the most of them `%.100s`", name ? name + 1 : "");
	return most;
}

bool yielding_to_finish(const struct znsd *d, uint32_t zone)
{
	const struct zn_zone *z = &d->zones[zone];
	const struct lease_zone *lz;

	if (!z->writer || z->writer->kind != LEASE_YIELDING || z->finishing || !zone_usable(z) ||
	    !zns_zone_is_active(z->z.state) || !d->dev->geo.max_active || !z->writer->conn)
		return false;
	lz = lease_zone_find(z->writer, zone);
	return lz && lz->done;
}

static bool built_on(const struct znsd *d, const uint8_t *from, const uint8_t *id)
{
	const ZnsPb__Checkpoint *k = zns_store_find(d->store, from);

	for (int n = 0; k && n < ZNS_CHAIN_MAX; n++) {
		if (!memcmp(k->id.data, id, ZNS_UUID_LEN))
			return true;
		k = k->has_parent ? zns_store_find(d->store, k->parent.data) : NULL;
	}
	return false;
}

const struct lease *yielding_in(const struct znsd *d, const uint8_t *id)
{
	uint8_t origin[ZNS_UUID_LEN];
	const struct lease *l;

	for (l = d->leases; l; l = l->next)
		if (l->kind == LEASE_YIELDING && l->yields.ops->origin(l, origin) &&
		    built_on(d, origin, id))
			return l;
	return NULL;
}

int yielding_allows(const struct znsd *d, const uint8_t *id, struct zns_err *err)
{
	const struct lease *l = yielding_in(d, id);
	char text[ZNS_UUID_STR];

	return l ? l->yields.ops->in_use(l, zns_uuid_format(id, text), err) : 0;
}
