/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_COMPACT_H
#define ZNS_CTL_COMPACT_H
/* Compaction: the plan from what the broker says, and its execution (zns/compact.h, zns/mover.h).
 */
#include "ctl.h"
#include "zns/compact.h"

#define COMPACT_BELOW 25 /* per cent of a zone: with no more live data than this it is emptied */

struct compact {
	struct zns_session s; /* the device for reading and writing; its connection asks */
	bool dry_run, json, background;
	bool rude; /* waits for nobody */
	uint32_t below; /* per cent */
	uint32_t rate_mibps; /* 0: no limit */
	ZnsPb__Response *ls, *zones, *reset;
	struct zns_compact_zone *table;
	uint32_t *zone_group;
	struct zns_compact_plan plan;
	uint32_t *victims, nr_victims; /* those of the plan that are not blocked */
	struct ctl_progress prog;
	uint64_t moved_bytes, waited_ns;
	/* checkpoints: moved, removed meanwhile, could not be moved now */
	uint32_t moved, gone, given_up;
	bool *emptied; /* by zone, once done */
	bool *written; /* by zone: what was moved went there */
	uint32_t freed; /* empty zones gained by it, whatever others took or gave back meanwhile */
	char why[ZNS_ERR_MAX]; /* of the first that could not be moved */
};

int compact_plan(struct compact *x, struct zns_err *err);
int compact_run(struct compact *x, struct zns_err *err);
/* Open, plan, do unless dry_run. */
int compact_all(struct compact *x, const char *spec, struct zns_err *err);
void compact_print(const struct compact *x);
struct json_object *compact_json(const struct compact *x);
void compact_free(struct compact *x);

#endif
