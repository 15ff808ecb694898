/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Replaces the record of a checkpoint: when a dump joins it, and when it is flattened or moved. One
 * durable write replaces the old record by the new one.
 */
#include <string.h>
#include "policy.h"

/* Only one lease at a time may join or flatten a checkpoint, because it commits the next
 * version. */
int record_rewritten(const struct znsd *d, const uint8_t *id, struct zns_err *err)
{
	const struct lease *l;
	char text[ZNS_UUID_STR];

	for (l = d->leases; l; l = l->next)
		if ((l->kind == LEASE_IMPORT || l->kind == LEASE_FLATTEN) &&
		    !memcmp(l->id, id, ZNS_UUID_LEN))
			return zns_fail(err, -ECANCELED, "checkpoint %s is being %s by PID %u",
					zns_uuid_format(id, text),
					l->kind == LEASE_IMPORT ? "joined" : "flattened", l->pid);
	return 0;
}

/*
 * Lists the zones that still have a footer of an earlier version. If the log is lost, a rebuild
 * finds these footers, so a later removal must write a tombstone there too. The caller frees the
 * list.
 */
static uint32_t *old_manifests(const struct znsd *d, const ZnsPb__Checkpoint *now, size_t *nr)
{
	uint32_t *old = znsd_alloc((now->n_old_manifests + 1) * sizeof(*old));
	size_t i, k;

	*nr = 0;
	for (i = 0; i <= now->n_old_manifests; i++) {
		bool last = i == now->n_old_manifests;
		uint32_t zone = last ? now->manifest->zone : now->old_manifests[i];

		if (!last && (zone >= d->nr_zones || !zone_live(d, zone)))
			continue;
		for (k = 0; k < *nr && old[k] != zone; k++)
			;
		if (k == *nr)
			old[(*nr)++] = zone;
	}
	return old;
}

/* Checks that the checkpoint is still the version with which the lease began, and that no dump uses
 * that version as its parent. */
int record_check(const struct znsd *d, const struct lease *l, const ZnsPb__Checkpoint *k,
		 struct zns_err *err)
{
	const ZnsPb__Checkpoint *now = zns_store_find(d->store, l->id);
	uint32_t began = l->kind == LEASE_COMPACT ? l->compact.moved : l->dump.moved;
	char id[ZNS_UUID_STR];

	zns_uuid_format(l->id, id);
	if (!now)
		return zns_fail(err, -ESTALE, "checkpoint %s was removed meanwhile", id);
	if (now->moved != began || k->moved != now->moved + 1)
		return zns_fail(err, -ESTALE,
				l->kind == LEASE_COMPACT ?
					"checkpoint %s was moved by somebody else" :
					"checkpoint %s was moved meanwhile: try again",
				id);
	if (l->kind != LEASE_IMPORT && yielding_allows(d, l->id, err))
		return l->kind == LEASE_COMPACT ? (err->code = -ECANCELED) : err->code;
	if (l->kind == LEASE_COMPACT && parent_in_use(d, l->id))
		return zns_fail(err, -ECANCELED,
				"a dump that is running has this checkpoint as its parent");
	if (l->kind == LEASE_COMPACT)
		return record_rewritten(d, l->id, err);
	if (l->kind == LEASE_FLATTEN && parent_in_use(d, l->id))
		return zns_fail(err, -EBUSY,
				"a dump has begun that has checkpoint %s as its parent: try again",
				id);
	if (l->kind == LEASE_FLATTEN &&
	    (k->created_ns != now->created_ns || k->pre_dump != now->pre_dump))
		return zns_fail(err, -EINVAL, "commit: not the record of a flattened checkpoint");
	return 0;
}

int record_replace(struct znsd *d, const struct lease *l, const ZnsPb__Checkpoint *k,
		   struct zns_err *err)
{
	const ZnsPb__Checkpoint *now = zns_store_find(d->store, l->id);
	cleanup_free uint32_t *old = NULL;
	ZnsPb__ExtentRef manifest = *now->manifest;
	ZnsPb__Checkpoint next = *k;
	int ret;

	/* an import keeps all old data, to which the new manifest refers */
	if (l->kind != LEASE_IMPORT) {
		next.n_old_manifests = 0;
		if (!on_disk(d)) /* on a disk the footer is overwritten */
			old = old_manifests(d, now, &next.n_old_manifests);
		next.old_manifests = old;
		zones_note_ours(d, now);
	}
	d->sweep = true;
	ret = zns_store_move(d->store, &next, err);
	if (!ret && on_disk(d))
		footer_gone(d, l->id, &manifest, NULL);
	return ret;
}
