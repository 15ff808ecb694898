/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_HOLD_H
#define MEM_HOLD_H
#include "mem.h"

/*
 * Starts the holder of userfaultfds. Call it when the socket of births exists, and before any event
 * is read. It replaces the dead pager's holder at hold_relieve().
 */
int hold_start(struct zns_mem *m);
void hold_end(struct zns_mem *m); /* our holder ends, and keeps nothing open */
/*
 * hold_await(): call before a successor takes over anything; waits until the dead pager's holder
 * has put everything into the socket. hold_relieve(): call when our own holder runs; ends the old
 * one.
 */
void hold_await(struct zns_mem *m);
void hold_relieve(struct zns_mem *m);

/* --- unkept.c: what the holder does then. Returns when it is not needed any more --- */
void unkept_watch(struct zns_mem *m);
#endif
