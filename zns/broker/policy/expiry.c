/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Retention rules. A rule is applied when the connection of a dump that has committed a checkpoint
 * of its container ends. By then the dump has written its handle, or has rolled the checkpoint
 * back, so that a restore can find the new checkpoint before older ones are removed. A checkpoint
 * that becomes due only because time passes is removed after the next dump or by `znsctl gc`: no
 * broker keeps running for that.
 */
#include <string.h>
#include "policy.h"
#include "zns/retention.h"

bool checkpoint_pinned(const struct znsd *d, const uint8_t *id)
{
	const ZnsPb__Mark *m = zns_store_find_mark(d->store, id);

	return m && m->pinned;
}

void retention_apply(struct znsd *d, const char *container)
{
	const ZnsPb__Retention *rule = zns_store_find_retention(d->store, container);
	size_t nr = zns_store_nr_checkpoints(d->store), n = 0, i;
	cleanup_free struct zns_ruled *v = NULL;
	cleanup_free uint8_t(*ids)[ZNS_UUID_LEN] = NULL;
	struct zns_err err = ZNS_ERR_INIT;
	char text[ZNS_UUID_STR];
	struct grave g;

	if (!rule)
		return;
	v = znsd_alloc(nr * sizeof(*v));
	ids = znsd_alloc(nr * sizeof(*ids));
	for (i = 0; i < nr; i++) {
		const ZnsPb__Checkpoint *c = zns_store_checkpoint(d->store, i);

		v[i] = (struct zns_ruled){ .c = c,
					   .pinned = checkpoint_pinned(d, c->id.data),
					   .in_use = parent_of_dump(d, c->id.data) ||
						     yielding_in(d, c->id.data) };
	}
	if (zns_retention_rule(rule, v, nr, zns_now_ns()) <= 0)
		return;
	/* backwards, so that children come before their parents, since a removal moves the records
	 * in memory */
	for (i = nr; i-- > 0;)
		if (v[i].due)
			memcpy(ids[n++], v[i].c->id.data, ZNS_UUID_LEN);
	for (i = 0; i < n; i++) {
		if (checkpoint_remove(d, ids[i], "its container's retention", &g, &err))
			znsd_warn("retention of %s: %s: %s", container,
				  zns_uuid_format(ids[i], text), err.msg);
		bury(d, &g);
	}
}
