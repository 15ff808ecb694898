/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_FSCK_H
#define ZNS_CTL_FSCK_H
/* Shared by cmd_fsck.c and fsck_check.c. */
#include "lib/ctl.h"
#include "zns/fsck.h"

struct fsck {
	bool json, repair, rebuild, force, dry_run;
	bool moved; /* not registered here: only a rebuild makes it registrable */
	struct ctl_map map;
	struct zns_registered reg;
	int lock;
	struct zns_dev *dev;
	struct zns_resv resv;
	struct json_object *problems; /* array */
	struct json_object *found; /* array: what a rebuild accepted and what it left out */
	/* array of ids: what is pinned now, if records of the catalogue were lost */
	struct json_object *pinned;
	bool lost; /* a rebuild found blocks of the log that are no records any more */
	size_t checkpoints;
	uint64_t generation;
	bool torn, rebuilt;
	bool gone; /* no metadata zone holds a part of a store */
	char damage[ZNS_ERR_MAX]; /* why the catalogue does not open; "": it opens */
	struct ctl_progress prog;
};

/* Prints a line, or keeps it for JSON. @placed: zone and offset are valid. */
void fsck_problem(struct fsck *k, const ZnsPb__Checkpoint *c, bool placed, uint32_t zone,
		  uint64_t off, const char *what);
/* Fills checkpoints, generation and torn. Fails only if the check was impossible. */
int fsck_check(struct fsck *k, const struct zns_store *s, struct zns_err *err);

#endif
