/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_COMPACT_H
#define ZNS_CTL_COMPACT_H
/* Compaction: makes a plan from the broker's answer and executes it (zns/compact.h,
 * zns/mover.h). */
#include "../lib/ctl.h"
#include "zns/compact.h"

#define COMPACT_BELOW 25 /* percent: zones with at most this much live data are emptied */

struct compact {
	/* the device and its broker, for all requests but those of single checkpoints */
	struct zns_session s;
	bool dry_run, json;
	bool rude; /* moves do not give way to dumps and restores */
	bool charged; /* moves get a share of the bandwidth by weight, see zns/move.h */
	uint32_t weight; /* weight of a class; 0: use the weights of the owners */
	uint32_t below; /* percent, see COMPACT_BELOW */
	uint32_t keep; /* not 0: empty all zones from this number on, without a plan */
	uint32_t rate_mibps; /* limit of the moves; 0: none */
	ZnsPb__Response *ls, *zones, *reset;
	struct zns_compact_zone *table;
	uint32_t *zone_group;
	struct zns_compact_plan plan;
	uint32_t *victims, nr_victims; /* zones that the plan empties and that nothing blocks */
	struct ctl_progress prog;
	uint64_t moved_bytes, waited_ns;
	/* numbers of checkpoints: moved, removed meanwhile, not movable now */
	uint32_t moved, gone, given_up;
	bool *emptied; /* by zone: it is empty after the plan */
	bool *written; /* by zone: moved data were written to it */
	/* number of empty zones gained, without those that others took or released meanwhile */
	uint32_t freed;
	char why[ZNS_ERR_MAX]; /* why the first checkpoint could not be moved */
};

/* Parses a weight; 0 for "owner" and NULL. Returns -EINVAL for any other text. */
int weight_option(const char *text, uint32_t *weight, struct zns_err *err);
/*
 * Sets the weight of the moves. "owner": they have the weight of the data's owner. A number: they
 * form a class with this weight. NULL: they give way to all others. Returns -EINVAL for any other
 * text.
 */
int compact_weight(struct compact *x, const char *text, struct zns_err *err);
int compact_plan(struct compact *x, struct zns_err *err);
int compact_run(struct compact *x, struct zns_err *err);
/* Opens the device, makes a plan, and executes it unless dry_run. */
int compact_all(struct compact *x, const char *spec, struct zns_err *err);
void compact_print(const struct compact *x);
/*
 * Moves the data that a checkpoint has in the zones x->victims to other zones, or, if @to_group is
 * set, to these groups. Errors as of zns_move_copy().
 */
int compact_move(struct compact *x, const ZnsPb__Checkpoint *c, struct zns_bucket *bucket,
		 const uint32_t *to_group, bool defer, struct zns_err *err);

/* cmd_compact.c: the command. @defrag_all: what --defrag does for the container or checkpoint @what
 * (NULL: for all), or NULL: another program does it. */
typedef int (*compact_defrag_fn)(struct compact *x, const char *spec, const char *what,
				 struct zns_err *err);
int compact_command(const struct ctl_cmd *cmd, int argc, char **argv, compact_defrag_fn defrag_all);
extern const struct ctl_cmd command_compact;
struct json_object *compact_json(const struct compact *x);
void compact_free(struct compact *x);

#endif
