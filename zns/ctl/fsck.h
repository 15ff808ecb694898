/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_FSCK_H
#define ZNS_CTL_FSCK_H
/* Shared by cmd_fsck.c and fsck_check.c. */
#include "ctl.h"
#include "zns/fsck.h"

struct fsck {
	bool json, repair, rebuild, force, dry_run;
	bool moved; /* not registered here: only a rebuild makes a store of it that can be */
	struct ctl_map map;
	struct zns_registered reg;
	int lock;
	struct zns_dev *dev;
	struct zns_resv resv;
	struct json_object *problems; /* array */
	struct json_object *found; /* array: what a rebuild took, and what not */
	size_t checkpoints;
	uint64_t generation;
	bool torn, rebuilt;
	bool gone; /* no metadata zone holds anything of a store */
	char damage[ZNS_ERR_MAX]; /* why the catalogue does not open; "" it does */
	struct ctl_progress prog;
};

/* Print (or keep for JSON) one line. @placed: zone and offset mean something. */
void fsck_problem(struct fsck *k, const ZnsPb__Checkpoint *c, bool placed, uint32_t zone,
		  uint64_t off, const char *what);
/* Fills checkpoints, generation, torn; an error only if it could not be checked. */
int fsck_check(struct fsck *k, const struct zns_store *s, struct zns_err *err);

#endif
