/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Removal of checkpoints. A removal is a record of the log. If the log is lost, a rebuild would
 * find the removed checkpoint again by its footer, as long as the footer's zone holds live data. So
 * a copy of the tombstone is written as well: into the same zone if it has room, so that one reset
 * erases both; else into any zone without a writer. On a disk the copy replaces the footer.
 * Failures are ignored, and nothing waits until the copy is durable.
 */
#include <string.h>
#include "zns/fsck.h"
#include "zns/pbcopy.h"
#include "policy.h"

static bool has_room(const struct znsd *d, uint32_t zone)
{
	const struct zn_zone *z = &d->zones[zone];

	return zone_parked(d, zone) && z->z.wp + d->dev->geo.block_size <= z->z.capacity;
}

static bool put(struct znsd *d, uint32_t zone, const uint8_t *block)
{
	struct zns_err err = ZNS_ERR_INIT;
	int ret = zns_dev_write(d->dev, zone, d->zones[zone].z.wp, block, d->dev->geo.block_size,
				&err);

	if (zones_refresh(d, zone, 1, &err) || ret)
		znsd_warn("a tombstone for zone %u: %s", zone, err.msg);
	zone_settle(d, zone);
	return !ret;
}

static void bury_in_zone(struct znsd *d, const ZnsPb__Tombstone *t, uint32_t zone)
{
	size_t block = d->dev->geo.block_size;
	cleanup_free uint8_t *buf = NULL;
	uint32_t i;

	if (zone >= d->nr_zones || (!zone_live(d, zone) && !d->zones[zone].writer))
		/* the zone is reset before its next write, and the reset removes the footer */
		return;
	buf = aligned_alloc(4096, zns_align_up(block, 4096));
	if (!buf || zns_tombstone_block(t, buf, block))
		return;
	if (has_room(d, zone) && put(d, zone, buf))
		return;
	for (i = 0; i < d->nr_zones; i++)
		if (has_room(d, i) && put(d, i, buf))
			return;
}

/* Lists the zones that have a footer of the checkpoint; *nr: their number. */
static uint32_t *bury_zones(const struct znsd *d, const ZnsPb__Checkpoint *k, uint32_t *nr)
{
	uint32_t *zones = znsd_alloc((k->n_old_manifests + 1) * sizeof(*zones));

	*nr = 0;
	if (on_disk(d))
		return zones;
	zones[(*nr)++] = k->manifest->zone;
	for (size_t i = 0; i < k->n_old_manifests; i++)
		zones[(*nr)++] = k->old_manifests[i];
	return zones;
}

/* The extent of the manifest in front of the footer. NULL: the footer is outside of the
 * checkpoint's bytes. */
static ZnsPb__ExtentRef *manifest_of(const struct znsd *d, const ZnsPb__Checkpoint *k)
{
	uint64_t block = d->dev->geo.block_size,
		 at = k->manifest->start + zns_align_up(k->manifest->len, block);

	return on_disk(d) && zns_holds_bytes(k, k->manifest->zone, at, block) ?
		       zns_pb_copy(&k->manifest->base, NULL) :
		       NULL;
}

int checkpoint_remove(struct znsd *d, const uint8_t *id, const char *by, struct grave *g,
		      struct zns_err *err)
{
	const ZnsPb__Checkpoint *k = zns_store_find(d->store, id);
	const ZnsPb__Tombstone *t;
	int ret;

	g->t = NULL;
	g->zones = bury_zones(d, k, &g->nr);
	g->manifest = manifest_of(d, k);
	zones_note_ours(d, k);
	ret = zns_store_remove(d->store, id, by, err);
	if (ret)
		return ret;
	d->sweep = true;
	t = zns_store_find_tombstone(d->store, id);
	g->t = t ? zns_pb_copy(&t->base, NULL) : NULL;
	return 0;
}

void bury(struct znsd *d, struct grave *g)
{
	for (uint32_t i = 0; g->t && i < g->nr; i++)
		bury_in_zone(d, g->t, g->zones[i]);
	if (g->t && g->manifest)
		footer_gone(d, g->t->id.data, g->manifest, g->t);
	grave_free(d, g);
}

void grave_free(struct znsd *d, struct grave *g)
{
	if (g->t)
		zns_pb__tombstone__free_unpacked(g->t, NULL);
	if (g->manifest)
		zns_pb__extent_ref__free_unpacked(g->manifest, NULL);
	free(g->zones);
	*g = (struct grave){ .t = NULL };
}
