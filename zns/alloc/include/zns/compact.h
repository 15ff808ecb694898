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
	bool parked; /* its owner may go on writing it */
	bool fixed; /* leave it alone: neither empty it nor write it */
};

struct zns_compact_group { /* one for each group and owner where something can be won */
	uint32_t group, owner;
	uint32_t *victims, nr; /* indices into the table; the one with least live data first */
	/* empty zones that the data need beside the partly filled ones; nr - taken zones are won */
	uint32_t taken;
	uint64_t live; /* bytes to be moved */
	uint64_t dead; /* bytes that count as used and hold nothing */
	bool blocked; /* nowhere to begin: no empty zone, and none partly filled with room */
};

struct zns_compact_plan {
	struct zns_compact_group *v;
	uint32_t nr;
	uint32_t freed; /* zones, together; without blocked ones */
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
