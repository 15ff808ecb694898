/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_HIBER_H
#define MEM_HIBER_H
/*
 * Hibernation: all that can go is on zones, and the pager rests. The evictor's thread does all of
 * it; others only say what they want, and what was touched.
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

/* --- wish.c: what is wanted, and the evictor's sleep --- */
int hiber_make(struct zns_mem *m);
void hiber_free(struct zns_mem *m);
void hiber_wait(struct zns_mem *m, long ms); /* so long, or until hiber_rouse() */
void hiber_rouse(struct zns_mem *m);
/* A fault brought this unit back. Any thread. */
void hiber_touched(struct proc *p, uint64_t base);

/* --- hiber.c: the states --- */
/* One turn of the evictor. True: it has nothing else to do in this one, and may wait for *@ms. */
bool hiber_turn(struct zns_mem *m, long *ms);

/* --- down.c: all goes out --- */
enum down { DOWN_DONE, DOWN_LATER, DOWN_STOPPED };
/* LATER: the store is busy. STOPPED: somebody wants something else, see hiber_goes_on(). */
enum down hiber_down(struct zns_mem *m);

/* --- record.c: the units that an activation touched, in order --- */
int record_make(struct zns_mem *m);
void record_free(struct zns_mem *m);
void record_touch(struct proc *p, uint64_t base);
/* A stream has passed @nr units from @base on. Those that it knows stay as they are: it may have
 * brought them back itself. */
void record_passed(struct proc *p, uint64_t base, unsigned int nr);
void record_turn(struct zns_mem *m); /* an activation ends */
uint32_t record_nr(const struct zns_mem *m);
/* False: there is none of that number. *@slot: of its process. */
bool record_at(const struct zns_mem *m, uint32_t i, unsigned int *slot, uint64_t *base);
/* To read ahead: not this one. It stays in the record if the program touches it all the same. */
bool record_leave_out(struct zns_mem *m, uint32_t i);
/* May a chain read it ahead? Not what was left out to see whether it is asked for. What it reads is
 * not left out any more, and stays in the record. */
bool record_allows(struct proc *p, uint64_t base);

/* --- replay.c: what was touched comes back, until the budget is used --- */
void hiber_replay(struct zns_mem *m);
/* So many from number `next` on, as ahead.c has room. */
void replay_some(struct zns_mem *m, unsigned int nr, uint8_t *buf);

/* --- active.c: a context that was idle, and not hibernated, turns active --- */
void active_touch(struct zns_mem *m); /* before the record hears of a touch */
void active_touched(struct proc *p); /* and behind that */
void active_fetch(struct proc *p, uint8_t *buf); /* FETCH_RECORD */
void active_ended(struct zns_mem *m); /* it goes to hibernate */
void active_began(struct zns_mem *m); /* by a wake */

/* --- activity.c --- */
void activity_look(struct zns_mem *m); /* as often as one likes */
uint64_t activity_idle_ms(const struct zns_mem *m); /* since the last of it */
void activity_seen(struct zns_mem *m);

#endif
