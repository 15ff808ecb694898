/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_BIRTH_H
#define MEM_BIRTH_H
#include "../engine/mem.h"

int birth_open(struct zns_mem *m);
/* The event of fork @nr was read just now. */
void birth_put(struct zns_mem *m, uint64_t nr, int uffd);
/* The same of the next fork. Its number. */
uint64_t birth_begin(struct zns_mem *m, int uffd);
void birth_table(struct proc *child); /* it has all that its parent had, and no slot yet */
/* It has lost its memory, and must not go on. */
void birth_doom(struct zns_mem *m, uint64_t nr, int uffd);
/* The keeper has all that were born until then. */
void birth_kept(struct zns_mem *m, uint64_t last);

/* Of a successor: those whom the keeper has not heard of. @give takes the descriptors, or returns
 * false. @slot -1: it had none yet. */
typedef bool birth_take_fn(void *arg, uint64_t nr, int slot, int table, int uffd);
void birth_take(struct zns_mem *m, birth_take_fn *give, void *arg);
#endif
