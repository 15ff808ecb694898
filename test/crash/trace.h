/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef CRASH_TRACE_H
#define CRASH_TRACE_H
/*
 * A zoned device in memory that remembers every state each of its zones ever had, and which of them
 * a flush made durable; and any combination of remembered states as a device of its own (a "view"),
 * as a power cut leaves it.
 *
 * A zone's history is a list of steps, one for each state between two of which power may go: a
 * write gives one for each block (metadata zones) or for its first block, its middle and its end
 * (data zones); reset and finish one each. Between two flushes or durable writes (an epoch) a cut
 * may leave each zone, on its own, at any step from the last durable one to the last one done: what
 * a device with a volatile write cache may do (design.md §7). A durable write secures its own zone
 * alone, a flush of zones those.
 *
 * On a disk (zns_dev_offer) bytes below the write pointer are written anew. Then a step has its own
 * copy of the zone, and the blocks of one write become durable in order, as on a zone.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "zns/dev.h"

/* what a zone holds between two resets, or until a part of it is written again: it only grows */
struct gen {
	struct gen *next;
	uint8_t *data;
};

struct step {
	struct gen *gen;
	uint64_t wp; /* bytes */
	bool finished;
};

/* The place of a disk's zone that was offered last, and taken: all programs of a test share the
 * device. */
struct place {
	uint64_t turn, start, end; /* start == end: no place was taken in this turn */
};
bool place_has(const struct place *p, uint64_t off, size_t len);

struct history {
	struct step *step;
	uint32_t nr, max;
	uint32_t durable; /* index of the step of the last flush */
	struct gen *gens;
	struct place place;
};

struct epoch { /* per zone: where a cut before the flush that ends it may leave it */
	uint32_t *low, *high;
};

struct trace {
	struct zns_dev dev; /* the recording device */
	pthread_mutex_t lock;
	uint32_t nr_meta; /* leading metadata zones: finer steps */
	struct history *h;
	struct epoch *epoch;
	uint32_t nr_epochs, max_epochs;
	uint64_t ops, anew; /* writes below a write pointer, which are allowed on a disk */
	/*
	 * Control: flushes of this kind do nothing, and are not recorded. OMIT_ORDER: compaction
	 * resets the old zones before the new record is written (the load's doing).
	 */
	enum trace_omit { OMIT_NONE, OMIT_DATA, OMIT_LOG, OMIT_MOVE, OMIT_ORDER } omit;
	bool moving; /* a compaction is about to commit; OMIT_MOVE skips its flush */
	uint64_t omitted;
	bool recording;
};

struct trace *trace_new(uint32_t nr_zones, uint64_t capacity, uint32_t max_active, uint32_t nr_meta,
			bool disk);
void trace_free(struct trace *t);
/* Forgets the history: the present state is durable, and the start of everything. */
void trace_begin(struct trace *t);
/* The epoch being recorded: what is acknowledged now must be true in all states from here on. */
uint32_t trace_now(const struct trace *t);
/* Closes the last epoch. */
void trace_end(struct trace *t);

/* A device that has zone z at step pos[z]. Writes to it stay in it. Close it with its
 * ops->close. */
struct zns_dev *view_new(struct trace *t, const uint32_t *pos);
/* damages one byte of it */
void view_flip(struct zns_dev *view, uint32_t zone, uint64_t off, unsigned bit);

#endif
