/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_SALVAGE_H
#define ZNS_SALVAGE_H
#include "store_int.h"

struct zns_salvage {
	uint32_t records, damaged_blocks;
	bool has_uuid, has_profile;
	uint64_t newest_generation;
	/* zone with the newest record; UINT32_MAX: no metadata zone has a record */
	uint32_t newest_zone;
	/* keys of checkpoints whose own record may be lost; the newest key comes last */
	ZnsPb__KeyLine **keys;
	size_t nr_keys;
	/* marks of checkpoints whose own record may be lost, in the order of the log */
	ZnsPb__Mark **marks;
	size_t nr_marks;
};

/* Fills s->st (initialised), s->uuid and s->max_generation from all intact records. Writes
 * nothing. */
int zns_salvage_log(struct zns_store *s, struct zns_salvage *r, struct zns_err *err);

/* Adds the marks to the state, except those of checkpoints that are not in it. */
void zns_salvage_marks(const struct zns_salvage *r, struct zns_state *st);
void zns_salvage_fini(struct zns_salvage *r);
/* Returns the wrapped key of a checkpoint if a record with it is still readable; else NULL. */
const ZnsPb__CheckpointKey *zns_salvage_key(const struct zns_salvage *r,
					    const uint8_t id[ZNS_UUID_LEN]);

#endif
