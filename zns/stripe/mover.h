/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_STRIPE_MOVER_H
#define ZNS_STRIPE_MOVER_H
#include "zns/frame.h"
#include "zns/layout.h"
#include "zns/mover.h"
#include "zns/store.h"
#include "zns/util.h"

struct mover_unit {
	const ZnsPb__Image *img;
	uint32_t zone, len;
	uint64_t off; /* offset in the zone in bytes */
	uint64_t csum;
};

struct mover_piece { /* a run of consecutive blocks of a victim zone */
	uint32_t zone, to_zone;
	uint64_t start, end, to_start;
	size_t first, nr; /* index of its first unit, and the number of its units */
};

/* a zone that the move writes to; only the last one of the list is still written */
struct mover_slot {
	uint32_t zone, group;
	uint32_t from; /* the group whose data this zone was requested for */
	uint64_t start, wp, capacity;
};

struct mover {
	const struct zns_mover_params *p;
	ZnsPb__Manifest *m; /* the manifest, which is turned into the new one */
	struct mover_unit *units;
	size_t nr_units, max_units;
	struct mover_piece *pieces;
	size_t nr_pieces;
	struct mover_slot *slots;
	size_t nr_slots;
	uint8_t *buf;
	size_t buf_len;
	uint64_t bytes;
};

#endif
