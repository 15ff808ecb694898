/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_HELPER_LIVE_H
#define ZNS_HELPER_LIVE_H
/*
 * A live dump (Documentation/inside/live.md). Its memory is copied in rounds while the tasks run
 * (live_rounds.c). The rest is copied while they are frozen (live_final.c). After the thaw the
 * images are composed from these copies (live_finish.c). All of this runs on the helper's main
 * thread, since only the thread that attached to a task may use ptrace on it.
 */
#include "../dump/dump_session.h"
#include "live_keep.h"
#include "../dump/paged.h"
#include "../task_read.h"
#include "zns/places.h"
#include "zns/track.h"

#define LIVE_ROUNDS_MAX 16
/*
 * memory for the pages that are copied during the freeze; what exceeds it is written to the device
 * during the freeze
 */
#define LIVE_STAGE_BYTES MIB(128)
/*
 * a round that copied no more than this is the last one: to copy this much takes 20 ms in a freeze
 */
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
	struct zns_err why; /* why the task is not tracked */
	/* bytes that were copied during the freeze because the task is not tracked */
	uint64_t untracked;
	struct places places;
	/* pages that are protected but could not be read, so they have no copy */
	struct zns_spans pending;
	/* pages that the parent has, and that were not written since its dump */
	struct zns_spans parent;
	/* name of the pagemap image in the parent that lists these pages */
	char parents_pagemap[ZW_NAME];
	/* areas that this dump has, and areas that the parent has */
	struct zns_spans areas, parents_areas;
	/* the memory has a pager, which says what is on zones: the task is not tracked */
	bool memory;
	bool kept; /* its tracker was taken over from the parent's dump */
	bool seen; /* the current round has found the task in /proc */
	struct zns_spans send; /* pages to be sent to a page server */
	/* contents of smaps before the freeze, and of maps during it */
	struct live_maps before, frozen;
	size_t text_bytes; /* length of the second text */
	/* set during the freeze */
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
	/*
	 * Why the copies of the rounds were discarded, so that all memory is copied in the freeze.
	 * NULL: the copies are used.
	 */
	const char *gave_up;
	uint64_t given_up; /* bytes in the stage */
	uint64_t room; /* bytes that the dump could write before the first round */
	/*
	 * bytes that were written again during the last round, as far as the trackers have reported
	 */
	uint64_t left;
	bool wanted; /* true: a live dump; false: its tasks are only tracked */
	bool durable; /* zns.conf requires the commit before the thaw */
	bool track; /* leave out the pages that the parent has */
	bool again; /* protect pages again in the freeze, for the next dump */
	struct live_keep keep;
	struct live_task *task;
	size_t nr_tasks, max_tasks;
	/*
	 * The copies of each round form an image (a part). The last part has the copies of the
	 * freeze.
	 */
	struct zns_wimage *part[LIVE_ROUNDS_MAX + 1];
	uint32_t nr_parts;
	uint64_t at; /* size of the last part in bytes, including what is still in the stage */
	struct live_round round[LIVE_ROUNDS_MAX];
	uint32_t nr_rounds;
	uint8_t *stage; /* a mapping of LIVE_STAGE_BYTES */
	size_t staged; /* bytes in the stage */
	/* copies go directly to the writer, since there is no stage or the stage is full */
	bool direct;
	uint64_t frozen_bytes, shared_bytes;
	struct task_reader reader; /* used during the rounds */
	/* not NULL: a test compares the copies with the tasks' memory */
	struct live_verify *verify;
	bool frozen;
};

/* live_tasks.c */
struct live_task *live_find(struct live *l, pid_t pid);
/* Looks for the tasks of the tree. A task that is new is tracked from here on. */
int live_look(struct live *l, struct zns_err *err);
/*
 * Finds a frozen task that was created after the last look, if a pager has its memory. *@t is NULL
 * if no pager has.
 */
int live_late(struct live *l, pid_t pid, struct live_task **t, struct zns_err *err);

/*
 * live_copy.c: copies pages of a task to the end of the last part, or to the stage. A page that
 * cannot be read is added to @t->pending, each copy is added to @t->places.
 */
int live_copy(struct live *l, struct live_task *t, const struct zns_spans *s, struct zns_err *err);
int live_open_part(struct live *l, struct zns_err *err);
int live_flush_stage(struct live *l, struct zns_err *err);

/* live_decide.c: sets @d->live if criu's options or zns.conf ask for a live dump. */
int live_decide(struct dump *d, const struct zw_begin *b, struct zns_err *err);

/* live_rounds.c */
/* Protects the pages that a task wrote since the last call, and adds them to @copy. */
int live_protect(struct live_task *t, struct zns_spans *copy, struct zns_err *err);
int live_new(struct dump *d, struct zns_err *err);
int live_rounds(struct dump *d, struct packet *p, struct zns_err *err);
/*
 * live_room.c: the rounds' copies take room on the device that a plain dump does not need, and the
 * copies on a zone that failed cannot be made again. If a round fails for one of these reasons, or
 * too little room would be left for the freeze, the copies are discarded and the freeze copies
 * everything. live_hopeless() returns the reason; NULL: the dump failed for another reason.
 */
const char *live_hopeless(struct live *l);
int live_give_up(struct live *l, const char *why, struct zns_err *err);
int live_check_room(struct live *l, struct zns_err *err);
/*
 * Fails if copies on a failed zone are lost. While the tasks run, the copies can still be
 * discarded.
 */
int live_check_zones(struct live *l, struct zns_err *err);

/* live_rest.c */
/*
 * Areas as criu lists them. Areas in @whole are copied completely, without the tracker's answers. A
 * lazy restore may bring the pages of @lazy after the task has begun to run.
 */
struct live_areas {
	struct zns_spans all, whole, lazy;
};

int live_areas(struct packet *p, struct live_areas *a, struct zns_err *err);
void live_areas_free(struct live_areas *a);
/*
 * Does a frozen task have a tracker? One that was taken from the parent's keeper is dropped if the
 * parent stores the task's pages under another name than @pagemap.
 */
bool live_is_tracked(struct live *l, struct live_task *t, const char *pagemap);
/*
 * @rest: pages of a frozen task that have to be copied now. Copies that stay in @t->places are up
 * to date, and the parent has the pages that stay in @t->parent.
 */
int live_rest(struct live *l, struct live_task *t, const struct live_areas *a,
	      struct zns_spans *rest, struct zns_spans *guards, struct zns_err *err);
/* Returns a memfd that lists the guard pages, for criu. -1: criu has to look for them itself. */
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

/*
 * live_verify_none.c: does nothing; a test build compares the copies (test/controls/live/verify.c)
 */
void live_verify_begin(struct live *l);
/*
 * For the later comparison: hashes bytes that were just appended to the newest part, the one with
 * the number nr_parts - 1.
 */
int live_verify_note(struct live *l, const uint8_t *buf, uint64_t len);
void live_verify_anew(struct live *l); /* forgets all parts: the dump begins again */
int live_verify(struct live *l, const struct live_task *t, const struct zns_spans *all,
		const struct zns_spans *whole, struct zns_err *err);

void live_verify_end(struct live *l);

/* live_finish.c: after the thaw, before the manifest. */
int live_finish(struct dump *d, struct zns_err *err);
/* adds the description of the rounds to the record; 0 or -ENOMEM */
int live_describe(const struct dump *d, ZnsPb__Checkpoint *c);
/* Stops tracking the tasks. */
void live_end(struct live *l);

#endif
