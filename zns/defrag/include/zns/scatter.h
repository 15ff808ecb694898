/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_SCATTER_H
#define ZNS_SCATTER_H
/*
 * Computes how fast a checkpoint can be read from its present places, and what to move so that it
 * can be read faster (Documentation/inside/sharing.md, "When restores get slow"). Pure functions on
 * a list of units: no device, no I/O, no state. Time is measured in bytes of one group: 1 MiB of
 * time is what a group takes to read 1 MiB.
 */
#include <stdbool.h>
#include <stdint.h>
#include "zns/err.h"

struct zns_scatter_unit {
	uint32_t at; /* index of the unit's zone in the table of zones */
	uint32_t len; /* length in bytes */
};

struct zns_scatter_zone {
	uint32_t zone, group;
	uint64_t bytes; /* how many bytes of the checkpoint are in this zone */
	bool fixed; /* the zone's data are not moved */
};

struct zns_scatter {
	const struct zns_scatter_unit *units; /* units in the order in which a restore reads them */
	uint64_t nr_units;
	const struct zns_scatter_zone *zones;
	uint32_t nr_zones, nr_groups;
	uint32_t width; /* how many groups it could be read from at once */
	uint32_t depth; /* how many units are read at once */
};

/* Sum of the bytes of all units. */
uint64_t zns_scatter_bytes(const struct zns_scatter *s);

/*
 * The time to read the checkpoint if zone n of the table is in group @group_of[n] (NULL: in its
 * present group). Readers take units in order; a group serves one at a time. 0: out of memory.
 */
uint64_t zns_scatter_time(const struct zns_scatter *s, const uint32_t *group_of);

/* The rate of a restore relative to the sum of its groups' rates: 1 is the best. 0: out of memory,
 * or nothing to read. */
double zns_scatter_rate(const struct zns_scatter *s, const uint32_t *group_of);

struct zns_scatter_move {
	uint32_t at; /* index of the zone to move in the table of zones */
	uint32_t group; /* group to move it to */
	/* the rate before and after the moves, as zns_scatter_rate gives it */
	double before, after;
};

struct zns_scatter_plan {
	struct zns_scatter_move *v;
	uint32_t nr;
	uint64_t bytes;
	double before, after;
};

/*
 * Plans moves of whole zones; the first one gains most bandwidth per byte. A move is worthwhile if
 * it gains at least @pays per cent of the bandwidth for each per cent of the bytes that it moves.
 * The plan ends before a move that is not worthwhile, or that would make it more than @most per
 * cent of the bytes. @room: how many bytes may be written in each group; the plan subtracts what it
 * uses. -ENOMEM.
 */
int zns_scatter_plan_make(const struct zns_scatter *s, uint64_t *room, double pays, uint32_t most,
			  struct zns_scatter_plan *out, struct zns_err *err);
void zns_scatter_plan_fini(struct zns_scatter_plan *p);

#endif
