/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_HIBER_H
#define MEM_HIBER_H
/*
 * Hibernation: everything that can be evicted is on zones, and the pager rests. Only the evictor's
 * thread carries it out; other threads say what they want, and which units were touched.
 */
#include "../engine/mem.h"

static inline bool hiber_rests(const struct zns_mem *m)
{
	return m->sh->hiber.state == HIBER_REST;
}

static inline bool hiber_goes_on(const struct zns_mem *m, enum hiber_state wanted)
{
	return !m->end && !m->no_evict && !m->sealed && m->sh->hiber.wanted == wanted;
}

/* --- wish.c: what is asked for, and the evictor's sleep --- */
int hiber_make(struct zns_mem *m);
void hiber_free(struct zns_mem *m);
void hiber_wait(struct zns_mem *m, long ms); /* sleeps that long, or until hiber_rouse() */
void hiber_rouse(struct zns_mem *m);
/* A fault has brought this unit back. Any thread may call this. */
void hiber_touched(struct proc *p, uint64_t base);

/* --- hiber.c: the states --- */
/* One turn of the evictor. True: the evictor has nothing else to do in this turn, and may sleep
 * for *@ms. */
bool hiber_turn(struct zns_mem *m, long *ms);

/* --- down.c: evicts everything --- */
enum down { DOWN_DONE, DOWN_LATER, DOWN_STOPPED };
/* DOWN_LATER: the store is busy. DOWN_STOPPED: something else was asked for, see
 * hiber_goes_on(). */
enum down hiber_down(struct zns_mem *m);

/* --- record.c: the units that an activation touched, in order --- */
int record_make(struct zns_mem *m);
void record_free(struct zns_mem *m);
void record_touch(struct proc *p, uint64_t base);
/* A stream has passed @nr units from @base on. Units that are in the record stay as they are,
 * since the stream may have fetched them itself. */
void record_passed(struct proc *p, uint64_t base, unsigned int nr);
void record_turn(struct zns_mem *m); /* an activation ends */
uint32_t record_nr(const struct zns_mem *m);
/* Entry @i of the record. False: there is none. *@slot: the slot of its process. */
bool record_at(const struct zns_mem *m, uint32_t i, unsigned int *slot, uint64_t *base);
/* Is this unit left out when the record is read ahead? It stays in the record if the program
 * touches it all the same. */
bool record_leave_out(struct zns_mem *m, uint32_t i);
/* May a chain read this unit ahead? Not if it is left out as a sample. A unit that a chain reads
 * is no sample any more, and stays in the record. */
bool record_allows(struct proc *p, uint64_t base);

/* --- replay.c: reads back what was touched, until the budget is used --- */
void hiber_replay(struct zns_mem *m);
/* Reads @nr units from number `next` on, as far as ahead.c has room. */
void replay_some(struct zns_mem *m, unsigned int nr, uint8_t *buf);

/* --- active.c: an idle context, not hibernated, turns active --- */
void active_touch(struct zns_mem *m); /* call it before record_touch() */
void active_touched(struct proc *p); /* call it after record_touch() */
void active_fetch(struct proc *p, uint8_t *buf); /* handles FETCH_RECORD */
void active_ended(struct zns_mem *m); /* the context is going to hibernate */
void active_began(struct zns_mem *m); /* an activation began with a wake */

/* --- activity.c --- */
void activity_look(struct zns_mem *m); /* may be called at any time */
uint64_t activity_idle_ms(const struct zns_mem *m); /* time since the last activity */
void activity_seen(struct zns_mem *m);

#endif
