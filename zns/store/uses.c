/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Changes a checkpoint's record: its list of zone uses, and its version. */
#include <string.h>
#include "zns/grow.h"
#include "zns/store.h"

int zns_use_add(ZnsPb__Checkpoint *c, uint32_t zone, uint64_t start, uint64_t len)
{
	ZnsPb__ZoneUse *u = zns_grow_by_one(c->zones, c->n_zones) ? NULL : calloc(1, sizeof(*u));

	if (!u)
		return -ENOMEM;
	zns_pb__zone_use__init(u);
	u->zone = zone;
	u->start = start;
	u->len = len;
	c->zones[c->n_zones++] = u;
	return 0;
}

bool zns_use_shares(const ZnsPb__ZoneUse *a, const ZnsPb__ZoneUse *b)
{
	return a->zone == b->zone && a->has_memory && b->has_memory &&
	       a->memory.len == b->memory.len &&
	       !memcmp(a->memory.data, b->memory.data, a->memory.len);
}

int zns_use_add_memory(ZnsPb__Checkpoint *c, uint32_t zone, uint64_t len, const uint8_t *context)
{
	uint8_t *id = malloc(ZNS_UUID_LEN);
	int ret = id ? zns_use_add(c, zone, 0, len) : -ENOMEM;

	if (ret) {
		free(id);
		return ret;
	}
	memcpy(id, context, ZNS_UUID_LEN);
	c->zones[c->n_zones - 1]->has_memory = 1;
	c->zones[c->n_zones - 1]->memory = (ProtobufCBinaryData){ ZNS_UUID_LEN, id };
	return 0;
}

int zns_use_cmp(const void *pa, const void *pb)
{
	const ZnsPb__ZoneUse *a = *(ZnsPb__ZoneUse *const *)pa, *b = *(ZnsPb__ZoneUse *const *)pb;

	if (a->zone != b->zone)
		return a->zone < b->zone ? -1 : 1;
	return a->start < b->start ? -1 : a->start > b->start;
}

void zns_record_newer(ZnsPb__Checkpoint *c, bool moved, int64_t deleted_ns)
{
	c->has_moved = moved;
	c->moved += moved;
	c->has_moved_ns = 1;
	c->moved_ns = zns_now_after(zns_max(deleted_ns, zns_max(c->moved_ns, c->created_ns)));
}
