/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_HELPER_LIVE_KEEP_H
#define ZNS_HELPER_LIVE_KEEP_H
/*
 * The dump's side of keeping trackers (keep.h): it takes those of its parent's keeper, and hands
 * its own to a new keeper. An error here fails no dump, but makes the next dump a full one.
 */
#include <stdbool.h>
#include "../keeper/keep.h"

struct live;
struct live_task;

struct live_keep {
	uint8_t id[ZNS_UUID_LEN], of[ZNS_UUID_LEN]; /* the new checkpoint, and its parent */
	bool has_parent;
	int parent; /* socket to the keeper of the parent; -1: none */
	bool changed; /* the keeper was told that this dump protects pages anew */
	/* the keeper's tasks that were not matched with a task of this dump yet */
	struct keep_packet *task;
	pid_t *pid; /* PIDs of these tasks */
	uint32_t nr;
	int next; /* socket to the keeper of this dump; -1: none */
	uint64_t limit_s;
	char why[160]; /* why the parent's trackers are not available; empty: they are */
};

/*
 * Before the first task is looked at. Trackers of tasks of this tree that are not of the parent
 * end: a task can have one at a time. @keep: start a keeper for this dump.
 */
void live_keep_begin(struct live *l, bool keep);
/* Takes the task's tracker from the parent's keeper, and the list of what the parent has. False:
 * there is none. */
bool live_keep_claim(struct live *l, struct live_task *t);
/* Call before pages are protected: the parent's keeper does not take its trackers back. */
void live_keep_changed(struct live *l);
/* After the commit: hands the trackers to the new keeper. */
void live_keep_commit(struct live *l);
void live_keep_end(struct live *l);

/* keep_take.c: the first half of live_keep_begin */
void keep_take(struct live *l);

#endif
