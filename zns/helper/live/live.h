/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_HELPER_LIVE_H
#define ZNS_HELPER_LIVE_H
/*
 * A live dump (Documentation/inside/live.md). Its memory goes through three steps: rounds while the tasks
 * run (live_rounds.c), the rest while they are frozen (live_final.c), and after the thaw the map of
 * what lies where (live_finish.c). All on the helper's main thread: ptrace wants one thread.
 */
#include "../dump/dump_session.h"
#include "live_keep.h"
#include "../dump/paged.h"
#include "../task_read.h"
#include "zns/places.h"
#include "zns/track.h"

#define LIVE_ROUNDS_MAX 16
/* the rest that is copied during the freeze fits into this much memory; beyond that it is written
 * to the device during the freeze */
#define LIVE_STAGE_BYTES MIB(128)
/* a round that copied no more than this is the last one: 20 ms of a freeze */
#define LIVE_ENOUGH_BYTES MIB(16)
#define LIVE_NO_IMAGE UINT32_MAX

/* The contents of /proc/PID/smaps (live_maps.c). */
struct live_maps {
	char *text;
	struct live_area *area;
	size_t nr, max;
};

struct live_task {
	pid_t pid;
	/* NULL: the task is not tracked, and its memory is copied in the freeze */
	struct zns_track *track;
	struct zns_err why; /* of that */
	uint64_t untracked; /* bytes that were copied in the freeze for this reason */
	struct places places;
	/* pages that are protected but could not be read, so they have no copy */
	struct zns_spans pending;
	struct zns_spans parent; /* pages that the parent has, and that were not written since */
	char parents_pagemap[ZW_NAME]; /* the image where it has them */
	struct zns_spans areas, parents_areas; /* areas of this dump, and of the parent */
	bool memory; /* a pager tells what is on zones: the task is not tracked */
	bool kept; /* its tracker was taken over from the parent's dump */
	bool seen; /* it was found in this round */
	struct zns_spans send; /* pages to be sent to a page server */
	struct live_maps before, frozen; /* the freeze */
	size_t text_bytes; /* length of the second text */
	/* from the freeze on */
	bool final;
	uint32_t image; /* number of its pages image in dump.pages */
	char pagemap[ZW_NAME];
	uint8_t *entries; /* entries of its pagemap; NULL once they were written */
	size_t entries_len;
	uint64_t bytes, parent_bytes;
};

struct live_round {
	uint64_t bytes, us;
};

struct live {
	struct dump *d;
	struct zns_track_kernel kernel;
	pid_t root;
	bool slow_fails, not_converging;
	/* Why the copies of the rounds were given up, so that all memory is copied in the freeze;
	 * NULL: they are in use. */
	const char *gave_up;
	uint64_t given_up; /* bytes */
	uint64_t room; /* bytes that the dump could write before the first round */
	uint64_t left; /* bytes that were written again during the last round, as far as known */
	bool wanted; /* true: a live dump; false: its tasks are only tracked */
	bool durable; /* zns.conf requires the commit before the thaw */
	bool track; /* leave to the parent the pages that it has */
	bool again; /* protect pages again in the freeze, for the next dump */
	struct live_keep keep;
	struct live_task *task;
	size_t nr_tasks, max_tasks;
	/* The copies of each round are an image; the last one is that of the freeze. */
	struct zns_wimage *part[LIVE_ROUNDS_MAX + 1];
	uint32_t nr_parts;
	uint64_t at; /* size of the last part in bytes, with the staged bytes */
	struct live_round round[LIVE_ROUNDS_MAX];
	uint32_t nr_rounds;
	uint8_t *stage; /* LIVE_STAGE_BYTES of addresses */
	size_t staged; /* bytes */
	bool direct; /* copies go directly to the writer, since there is no stage or it is full */
	uint64_t frozen_bytes, shared_bytes;
	struct task_reader reader; /* used by the rounds */
	struct live_verify *verify; /* not NULL: a test compares what is copied */
	bool frozen;
};

/* live_tasks.c */
struct live_task *live_find(struct live *l, pid_t pid);
/* Looks for the tasks of the tree. New ones are tracked from here on. */
int live_look(struct live *l, struct zns_err *err);
/* A frozen task that came after the last look, if a pager has its memory. *@t is NULL if not. */
int live_late(struct live *l, pid_t pid, struct live_task **t, struct zns_err *err);

/*
 * live_copy.c: copies pages of a task to the end of the last part, or to the stage. A page that
 * cannot be read is added to @t->pending, each copy to @t->places.
 */
int live_copy(struct live *l, struct live_task *t, const struct zns_spans *s, struct zns_err *err);
int live_open_part(struct live *l, struct zns_err *err);
int live_flush_stage(struct live *l, struct zns_err *err);

/* live_decide.c: sets @d->live if criu's options or zns.conf ask for a live dump. */
int live_decide(struct dump *d, const struct zw_begin *b, struct zns_err *err);

/* live_rounds.c */
/* Protects the pages that a task wrote since the last call. @copy gets them. */
int live_protect(struct live_task *t, struct zns_spans *copy, struct zns_err *err);
int live_new(struct dump *d, struct zns_err *err);
int live_rounds(struct dump *d, struct packet *p, struct zns_err *err);
/*
 * live_room.c: the rounds' copies take room that a plain dump does not need, and the pages of a
 * failed zone cannot be copied again. If a round fails for this, or the freeze would lack room, the
 * copies are given up. live_hopeless() tells why; NULL: the dump failed for another reason.
 */
const char *live_hopeless(struct live *l);
int live_give_up(struct live *l, const char *why, struct zns_err *err);
int live_check_room(struct live *l, struct zns_err *err);
/* Has a failed zone lost copies? While the tasks run, the copies can still be given up. */
int live_check_zones(struct live *l, struct zns_err *err);

/* live_rest.c */
/*
 * Areas as criu lists them. Those of @whole are copied as they are. A lazy restore may bring the
 * pages of @lazy after the task has begun to run.
 */
struct live_areas {
	struct zns_spans all, whole, lazy;
};

int live_areas(struct packet *p, struct live_areas *a, struct zns_err *err);
void live_areas_free(struct live_areas *a);
/* Has a frozen task a tracker whose answers hold for this pagemap? */
bool live_is_tracked(struct live *l, struct live_task *t, const char *pagemap);
/*
 * @rest: pages of a frozen task that have to be copied now. Places that stay in @t->places are good
 * copies, and the parent has the pages that stay in @t->parent.
 */
int live_rest(struct live *l, struct live_task *t, const struct live_areas *a,
	      struct zns_spans *rest, struct zns_spans *guards, struct zns_err *err);
/* For criu: a memfd that lists guard pages. -1: criu has to look for them itself. */
int live_guards_fd(const struct live *l, const struct zns_spans *guards);

/* live_final.c */
int live_final(struct dump *d, struct packet *p, struct zns_err *err);
int live_image(struct dump *d, struct packet *p, struct zns_err *err);
/* Appends the entries of a live task's pagemap to what criu wrote. */
int live_fill_pagemap(struct dump *d, const char *name, int fd, struct zns_err *err);
/* Counts pages that criu read in the freeze, as in a dump that is not live. */
void live_note_plain(struct dump *d, pid_t pid, uint64_t bytes);

/* live_maps.c: before the freeze, in it, and after it */
void live_maps_before(struct live_task *t);
int live_maps(struct live *l, struct packet *p, struct zns_err *err);
int live_maps_check(struct live_task *t, struct zns_err *err);
void live_maps_free(struct live_maps *m);

/* live_verify_none.c; a test build compares (test/controls/live/verify.c) */
void live_verify_begin(struct live *l);
/* for data of the last part */
int live_verify_note(struct live *l, const uint8_t *buf, uint64_t len);
void live_verify_anew(struct live *l); /* forgets all parts: the dump begins again */
int live_verify(struct live *l, const struct live_task *t, const struct zns_spans *all,
		const struct zns_spans *whole, struct zns_err *err);

void live_verify_end(struct live *l);

/* live_finish.c: after the thaw, before the manifest. */
int live_finish(struct dump *d, struct zns_err *err);
/* adds what the record says of the rounds; 0 or -ENOMEM */
int live_describe(const struct dump *d, ZnsPb__Checkpoint *c);
/* Stops tracking the tasks. */
void live_end(struct live *l);

#endif
