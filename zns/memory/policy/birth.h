/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_BIRTH_H
#define MEM_BIRTH_H
#include "../engine/mem.h"

int birth_open(struct zns_mem *m);
/* Stores @uffd of fork @nr, whose event was just read. */
void birth_put(struct zns_mem *m, uint64_t nr, int uffd);
/* Like birth_put(), for the next fork; returns its number. */
uint64_t birth_begin(struct zns_mem *m, int uffd);
/* Call when the child has a copy of its parent's table, but no slot yet: stores the table too. */
void birth_table(struct proc *child);
/* Marks a child that has lost its memory, so that a successor does not let it continue. */
void birth_doom(struct zns_mem *m, uint64_t nr, int uffd);
/* The keeper has the descriptors of all children up to fork @last. */
void birth_kept(struct zns_mem *m, uint64_t last);

/*
 * For a successor: calls @give for each child that the keeper does not know. @give takes over the
 * descriptors, or returns false. @slot -1: the child had no slot yet.
 */
typedef bool birth_take_fn(void *arg, uint64_t nr, int slot, int table, int uffd);
void birth_take(struct zns_mem *m, birth_take_fn *give, void *arg);
#endif
