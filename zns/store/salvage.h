/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_SALVAGE_H
#define ZNS_SALVAGE_H
#include "store_int.h"

struct zns_salvage {
	uint32_t records, damaged_blocks;
	bool has_uuid, has_profile;
	uint64_t newest_generation;
	uint32_t newest_zone;	/* UINT32_MAX: no record anywhere */
};

/* @c is another version of @from, which ends: what @from knows of the wrapped key is the newest. */
void zns_crypt_inherit(ZnsPb__Checkpoint *c, ZnsPb__Checkpoint *from);

/* Fill s->st (initialised), s->uuid and s->max_generation from every good record. Writes nothing. */
int zns_salvage(struct zns_store *s, struct zns_salvage *r, struct zns_err *err);

#endif
