/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_FSCK_H
#define ZNS_CTL_FSCK_H
/* Shared by cmd_fsck.c and fsck_check.c. */
#include "lib/ctl.h"
#include "zns/fsck.h"

struct fsck {
	bool json, repair, rebuild, force, dry_run;
	/* not registered on this host: only a rebuild makes it possible to register it */
	bool moved;
	struct ctl_map map;
	struct zns_registered reg;
	int lock;
	struct zns_dev *dev;
	struct zns_resv resv;
	struct json_object *problems; /* JSON array */
	/* JSON array: what a rebuild has accepted and what it has left out */
	struct json_object *found;
	/*
	 * JSON array of ids: the checkpoints that are pinned now, if records of the catalogue were
	 * lost
	 */
	struct json_object *pinned;
	bool lost; /* a rebuild has found blocks of the log that are not readable as records */
	size_t checkpoints;
	uint64_t generation;
	bool torn, rebuilt;
	bool gone; /* no metadata zone contains a part of a store */
	char damage[ZNS_ERR_MAX]; /* why the catalogue does not open; empty: it opens */
	struct ctl_progress prog;
};

/* Prints a problem, or adds it to the JSON output. @placed: @zone and @off are valid. */
void fsck_problem(struct fsck *k, const ZnsPb__Checkpoint *c, bool placed, uint32_t zone,
		  uint64_t off, const char *what);
/*
 * Checks the catalogue; sets k->generation and k->torn, and reports problems. Fails only if the
 * check itself was impossible.
 */
int fsck_check(struct fsck *k, const struct zns_store *s, struct zns_err *err);

#endif
