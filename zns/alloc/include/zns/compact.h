/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_COMPACT_H
#define ZNS_COMPACT_H
/*
 * Chooses the zones to empty (design.md §4): those with little live data, if their data fit into
 * fewer zones. A pure function on a table of zones: no device, no I/O.
 */
#include <stdbool.h>
#include <stdint.h>
#include "zns/err.h"

struct zns_compact_zone {
	uint32_t index, group;
	uint32_t owner; /* data of zones with equal owners may share a zone */
	uint64_t capacity, wp, live; /* in bytes */
	/* bytes besides the live ones that must be written when the zone is emptied: new
	 * manifests */
	uint64_t extra;
	bool empty; /* the zone is empty, so data of any owner may be written to it */
	bool parked; /* the next dump of its container may continue to write it */
	bool fixed; /* excluded: it is neither emptied nor written */
};

struct zns_compact_group { /* one for each group and owner where zones can be gained */
	uint32_t group, owner;
	/*
	 * the zones to empty, as indices into the table; the zone with the least live data comes
	 * first
	 */
	uint32_t *victims, nr;
	/* how many empty zones the data need in addition to the partly filled ones; nr - taken
	 * zones are gained */
	uint32_t taken;
	uint64_t live; /* bytes to be moved */
	uint64_t dead; /* bytes below the write pointers that hold no live data */
	/*
	 * the moves cannot begin: there is no empty zone, and no partly filled one with enough room
	 */
	bool blocked;
};

struct zns_compact_plan {
	struct zns_compact_group *v;
	uint32_t nr;
	uint32_t freed; /* how many zones a compaction frees in total, without the blocked groups */
	uint64_t live;
};

/*
 * Plans to empty zones of whose capacity at most @percent is live: as many of them as gain the most
 * zones. Data stay in their group; an empty zone of another group only means that the moves can
 * begin. Free the plan with zns_compact_plan_fini.
 */
int zns_compact_plan_make(const struct zns_compact_zone *z, uint32_t nr, uint32_t percent,
			  struct zns_compact_plan *out, struct zns_err *err);
void zns_compact_plan_fini(struct zns_compact_plan *p);

#endif
