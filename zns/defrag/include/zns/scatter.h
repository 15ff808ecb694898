/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_SCATTER_H
#define ZNS_SCATTER_H
/*
 * How fast a checkpoint can be read as it lies, and what to move so that it is faster
 * (Documentation/inside/sharing.md, "When restores get slow"). Pure functions on a list of units: no
 * device, no I/O, no state. Time is in bytes of one group: 1 MiB of time is what a group takes to
 * read 1 MiB.
 */
#include <stdbool.h>
#include <stdint.h>
#include "zns/err.h"

struct zns_scatter_unit {
	uint32_t at; /* index of its zone in the table of zones */
	uint32_t len; /* bytes */
};

struct zns_scatter_zone {
	uint32_t zone, group;
	uint64_t bytes; /* how many bytes of the checkpoint are in this zone */
	bool fixed; /* stays where it is */
};

struct zns_scatter {
	const struct zns_scatter_unit *units; /* in the order in which a restore reads them */
	uint64_t nr_units;
	const struct zns_scatter_zone *zones;
	uint32_t nr_zones, nr_groups;
	uint32_t width; /* how many groups it could be read from at once */
	uint32_t depth; /* how many units are read at once */
};

/* Bytes of all units. */
uint64_t zns_scatter_bytes(const struct zns_scatter *s);

/*
 * The time to read it, if zone n of the table is in @group_of[n] (NULL: where it is): readers take
 * units in order, a group serves one at a time. 0: no memory.
 */
uint64_t zns_scatter_time(const struct zns_scatter *s, const uint32_t *group_of);

/* The rate of a restore, as a part of what its groups could give together: 1 is the best. 0: no
 * memory, or nothing to read. */
double zns_scatter_rate(const struct zns_scatter *s, const uint32_t *group_of);

struct zns_scatter_move {
	uint32_t at; /* in the table of zones */
	uint32_t group; /* where to */
	double before, after; /* the part of what its groups could give */
};

struct zns_scatter_plan {
	struct zns_scatter_move *v;
	uint32_t nr;
	uint64_t bytes;
	double before, after;
};

/*
 * Moves of whole zones, the one with the most bandwidth won for a byte first. A move pays if it
 * wins at least @pays per cent of the bandwidth for each per cent of the bytes that it moves. It
 * stops where the next one does not pay, or would make it more than @most per cent of the bytes.
 * @room: bytes that may be written in each group; used up by the plan. -ENOMEM.
 */
int zns_scatter_plan_make(const struct zns_scatter *s, uint64_t *room, double pays, uint32_t most,
			  struct zns_scatter_plan *out, struct zns_err *err);
void zns_scatter_plan_fini(struct zns_scatter_plan *p);

#endif
