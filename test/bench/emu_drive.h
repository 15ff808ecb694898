/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef BENCH_EMU_DRIVE_H
#define BENCH_EMU_DRIVE_H
/*
 * Several clients of the timing model, in one thread: the client whose next command is due first
 * submits it. No data are moved and nothing sleeps, so the result is the same every time.
 */
#include <stdio.h>
#include <stdlib.h>

#include "../controls/controls.h"

#define DRIVE_MAX_DEPTH 8

struct client {
	enum zns_emu_op op; /* WRITE or READ */
	uint32_t zone;
	uint64_t size; /* bytes of one command */
	uint64_t total; /* bytes in all */
	unsigned depth; /* commands in flight */
	/* model time since which the rate counts */
	uint64_t next[DRIVE_MAX_DEPTH], asked;
	uint64_t answered_ns; /* the last command */
	uint64_t done_ns; /* when its data are on the medium */
};

static inline void drive_check(int rc, const struct zns_err *why)
{
	if (!rc)
		return;
	fprintf(stderr, "%s\n", why->msg);
	abort();
}

/* Runs all clients to their end from model time @start on; then drains the buffers. */
static inline void drive(struct zns_dev *d, struct client *c, unsigned nr, uint64_t start)
{
	struct zns_err why = ZNS_ERR_INIT;

	for (unsigned i = 0; i < nr; i++)
		for (unsigned q = 0; q < c[i].depth; q++)
			c[i].next[q] = start;
	for (;;) {
		struct client *due = NULL;
		uint64_t *when = NULL, n;

		for (unsigned i = 0; i < nr; i++)
			for (unsigned q = 0; q < c[i].depth && c[i].asked < c[i].total; q++)
				if (!when || c[i].next[q] < *when) {
					when = &c[i].next[q];
					due = &c[i];
				}
		if (!when)
			break;
		n = zns_min(due->size, due->total - due->asked);
		drive_check(zns_emu_model_submit(d, due->op, due->zone, n, *when, when, &why),
			    &why);
		due->asked += n;
		due->answered_ns = zns_max(due->answered_ns, *when);
	}
	for (unsigned i = 0; i < nr; i++) {
		struct zns_emu_load die;
		struct zns_emu_params p;
		uint32_t *map;

		c[i].done_ns = c[i].answered_ns;
		if (c[i].op != ZNS_EMU_OP_WRITE)
			continue;
		/* the die has no other work behind this client's last unit than units of the same
		 * age */
		zns_emu_info(d, &p, NULL);
		map = malloc(p.nr_zones * sizeof(*map));
		if (!map)
			abort();
		drive_check(zns_emu_zone_map(d, map, &why), &why);
		drive_check(zns_emu_model_load(d, ZNS_EMU_DIE, map[c[i].zone], &die, &why), &why);
		free(map);
		c[i].done_ns = zns_max(c[i].done_ns, die.idle_from_ns);
		/* nor the controller: a garbage collection that the last byte started belongs to it
		 */
		drive_check(zns_emu_model_load(d, ZNS_EMU_CONTROLLER, 0, &die, &why), &why);
		c[i].done_ns = zns_max(c[i].done_ns, die.idle_from_ns);
	}
}

static inline double drive_mibps(uint64_t bytes, uint64_t ns)
{
	return ns ? (double)bytes / MIB(1) / ((double)ns / 1e9) : 0;
}

#endif
