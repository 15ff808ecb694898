/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_HELPER_LIVE_KEEP_H
#define ZNS_HELPER_LIVE_KEEP_H
/*
 * The dump's part in keeping trackers (keep.h): the dump takes the trackers from its parent's
 * keeper, and hands its own trackers to a new keeper. An error here does not fail the dump, but
 * makes the next dump a full one.
 */
#include <stdbool.h>
#include "../keeper/keep.h"

struct live;
struct live_task;

struct live_keep {
	/* id of the new checkpoint; of: id of its parent */
	uint8_t id[ZNS_UUID_LEN], of[ZNS_UUID_LEN];
	bool has_parent;
	int parent; /* socket to the keeper of the parent; -1: none */
	bool changed; /* the parent's keeper was told that this dump protects pages anew */
	/* tasks of the parent's keeper that were not matched with a task of this dump yet */
	struct keep_packet *task;
	pid_t *pid; /* PIDs of these tasks */
	uint32_t nr;
	int next; /* socket to the keeper of this dump; -1: none */
	uint64_t limit_s;
	char why[160]; /* why the parent's trackers are not available; empty if they are */
};

/*
 * Call before the first task is looked at. If a keeper of another checkpoint than the parent tracks
 * tasks of this tree, that tracking ends, since a task can have only one tracker. @keep: start a
 * keeper for this dump.
 */
void live_keep_begin(struct live *l, bool keep);
/*
 * Takes the task's tracker and the list of pages that the parent has from the parent's keeper.
 * False: the keeper has no tracker for the task.
 */
bool live_keep_claim(struct live *l, struct live_task *t);
/*
 * Call before pages are protected: tells the parent's keeper that its trackers no longer describe
 * its own checkpoint.
 */
void live_keep_changed(struct live *l);
/* After the commit: hands the trackers to the new keeper. */
void live_keep_commit(struct live *l);
void live_keep_end(struct live *l);

/* keep_take.c: the first half of live_keep_begin(): takes the trackers of the parent */
void keep_take(struct live *l);

#endif
