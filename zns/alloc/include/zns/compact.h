/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_COMPACT_H
#define ZNS_COMPACT_H
/*
 * Which zones to empty (design.md §4): those with little live data, if their data fit into fewer
 * zones. A pure function on a table of zones: no device, no I/O.
 */
#include <stdbool.h>
#include <stdint.h>
#include "zns/err.h"

struct zns_compact_zone {
	uint32_t index, group;
	uint32_t owner; /* data of equal owners may share a zone */
	uint64_t capacity, wp, live; /* bytes */
	/* bytes to be written when it is emptied, beside the live ones: new manifests */
	uint64_t extra;
	bool empty; /* anybody may write it */
	bool parked; /* its container's next dump may continue to write it */
	bool fixed; /* excluded: it is neither emptied nor written */
};

struct zns_compact_group { /* one for each group and owner where something can be won */
	uint32_t group, owner;
	/*
	 * indices into the table of zones to empty; the zone with the least live data comes first
	 */
	uint32_t *victims, nr;
	/* how many empty zones the data need besides the partly filled ones; nr - taken zones are
	 * gained */
	uint32_t taken;
	uint64_t live; /* bytes to be moved */
	uint64_t dead; /* bytes below the write pointers that hold no live data */
	bool blocked; /* nowhere to begin: no empty zone, and none partly filled with room */
};

struct zns_compact_plan {
	struct zns_compact_group *v;
	uint32_t nr;
	uint32_t freed; /* how many zones a compaction frees in all, without the blocked ones */
	uint64_t live;
};

/*
 * Plan to empty zones that have at most @percent of their capacity live: as many as win the most
 * zones. Data stay in their group. An empty zone of another group only decides whether there is a
 * place to begin. End with zns_compact_plan_fini.
 */
int zns_compact_plan_make(const struct zns_compact_zone *z, uint32_t nr, uint32_t percent,
			  struct zns_compact_plan *out, struct zns_err *err);
void zns_compact_plan_fini(struct zns_compact_plan *p);

#endif
