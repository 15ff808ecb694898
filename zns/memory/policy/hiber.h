/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_HIBER_H
#define MEM_HIBER_H
/*
 * Hibernation: all memory that can be evicted is on zones, and the pager does not evict. Only the
 * evictor's thread changes the state. Other threads request it, and report which units were
 * touched.
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

/* --- wish.c: requests, and the evictor's sleep --- */
int hiber_make(struct zns_mem *m);
void hiber_free(struct zns_mem *m);
void hiber_wait(struct zns_mem *m, long ms); /* sleeps for @ms, or until hiber_rouse() */
void hiber_rouse(struct zns_mem *m);
/* Call when a fault has brought this unit back. Any thread may call this. */
void hiber_touched(struct proc *p, uint64_t base);

/* --- hiber.c: the states --- */
/*
 * One turn of the evictor. True: nothing else is to be done in this turn, and the evictor may sleep
 * for *@ms.
 */
bool hiber_turn(struct zns_mem *m, long *ms);

/* --- down.c: evicts all memory --- */
enum down { DOWN_DONE, DOWN_LATER, DOWN_STOPPED };
/* DOWN_LATER: the store is busy. DOWN_STOPPED: another state was requested, see hiber_goes_on(). */
enum down hiber_down(struct zns_mem *m);

/* --- record.c: the units that an activation touched, in their order --- */
int record_make(struct zns_mem *m);
void record_free(struct zns_mem *m);
void record_touch(struct proc *p, uint64_t base);
/*
 * Call when a stream has passed @nr units from @base on. These units keep their state in the
 * record, since the stream itself may have fetched them.
 */
void record_passed(struct proc *p, uint64_t base, unsigned int nr);
void record_turn(struct zns_mem *m); /* call when an activation ends */
uint32_t record_nr(const struct zns_mem *m);
/* Gets entry @i of the record. False: there is none. *@slot: slot of its process. */
bool record_at(const struct zns_mem *m, uint32_t i, unsigned int *slot, uint64_t *base);
/*
 * Is this unit left out, as a sample, when the record is read ahead? It stays in the record only if
 * the program touches it nevertheless.
 */
bool record_leave_out(struct zns_mem *m, uint32_t i);
/*
 * May a prediction read this unit ahead? Not if it is left out as a sample. A unit that was read so
 * is no sample any more, and stays in the record.
 */
bool record_allows(struct proc *p, uint64_t base);

/* --- replay.c: reads back the units that were touched, until the budget is used up --- */
void hiber_replay(struct zns_mem *m);
/* Reads @nr units of the record from index `next` on, as far as ahead_room() allows. */
void replay_some(struct zns_mem *m, unsigned int nr, uint8_t *buf);

/* --- active.c: when a context that was idle, but not hibernated, becomes active --- */
void active_touch(struct zns_mem *m); /* call it before record_touch() */
void active_touched(struct proc *p); /* call it after record_touch() */
void active_fetch(struct proc *p, uint8_t *buf); /* handles FETCH_RECORD */
void active_ended(struct zns_mem *m); /* call when the context is about to hibernate */
void active_began(struct zns_mem *m); /* call when a wake begins an activation */

/* --- activity.c --- */
void activity_look(struct zns_mem *m); /* may be called at any time */
uint64_t activity_idle_ms(const struct zns_mem *m); /* ms since the last activity */
void activity_seen(struct zns_mem *m);

#endif
