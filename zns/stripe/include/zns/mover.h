/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_MOVER_H
#define ZNS_MOVER_H
/*
 * Moves the data that a checkpoint has in some zones to other zones (design.md §4, compaction).
 * Units are copied without decryption, and verified against their checksums. A new manifest and
 * footer are written behind them. The old data are not touched: until the catalogue has the new
 * record, the checkpoint is at its old places. Single-threaded.
 */
#include <stdbool.h>
#include <stdint.h>
#include "zns/bucket.h"
#include "zns/dev.h"
#include "zns/writer.h"
#include "zns-record.pb-c.h"

struct zns_mover_params {
	struct zns_dev *dev; /* borrowed; must be writable */
	/* borrowed; every byte read or written is taken from it. NULL: no limit */
	struct zns_bucket *bucket;
	/* the present record; the caller makes sure that its zones are not reset */
	const ZnsPb__Checkpoint *c;
	const uint32_t *victims; /* zones from which the data are moved away */
	uint32_t nr_victims;
	/* for each victim the only group to move to. NULL: data stay in their groups if there is
	 * room */
	const uint32_t *to_group;
	const uint32_t *zone_group; /* group of every zone */
	/* Gets a zone with room for @need bytes, in @group if possible. The zones @done will not be
	 * written any more. */
	int (*zone_get)(void *arg, uint32_t group, uint64_t need, const uint32_t *done,
			uint32_t nr_done, struct zns_zone_slot *out, struct zns_err *err);
	/* Called before every transfer, with the groups that it uses. Returns when the transfer may
	 * begin. @bytes: how much was moved so far. A result other than 0 ends the move. */
	int (*step)(void *arg, const uint32_t *groups, uint32_t nr, uint64_t bytes,
		    struct zns_err *err);
	void *arg;
};

/*
 * Copies, writes the manifest, and reads it back; does not flush. *out is the record to commit
 * after zns_mover_durable (zns_pb__checkpoint__free_unpacked); *bytes is how much was written.
 * -EBADMSG: the data are damaged, and nothing is moved. -ENODATA: the checkpoint has no data in the
 * victims.
 */
int zns_mover_run(const struct zns_mover_params *p, ZnsPb__Checkpoint **out, uint64_t *bytes,
		  struct zns_err *err);

/* Flushes the zones that are in the new record @c but not in the old one. To be called before the
 * commit. */
int zns_mover_durable(const struct zns_mover_params *p, const ZnsPb__Checkpoint *c,
		      struct zns_err *err);

#endif
