/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_HOLD_H
#define MEM_HOLD_H
#include "mem.h"

/* When the socket of births is there, and before anything is read. It counts from hold_relieve()
 * on.
 */
int hold_start(struct zns_mem *m);
void hold_end(struct zns_mem *m); /* it ends with us, and puts nothing */
/* Of a successor, before it takes anything: that of the dead pager has put all away. Ours is there:
 * that one ends. */
void hold_await(struct zns_mem *m);
void hold_relieve(struct zns_mem *m);

/* --- unkept.c: what it does then. Returns when nobody needs it any more --- */
void unkept_watch(struct zns_mem *m);
#endif
