/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_BIRTH_H
#define MEM_BIRTH_H
#include "mem.h"

int birth_open(struct zns_mem *m);
/* The event of a fork was read just now. Its number. */
uint64_t birth_begin(struct zns_mem *m, int uffd);
void birth_done(struct proc *child); /* it has all that its parent had */
/* The keeper has all that were born until then. */
void birth_kept(struct zns_mem *m, uint64_t last);

/* Of a successor: those whom the keeper has not heard of. @give takes the descriptors, or returns
 * false. */
typedef bool birth_take_fn(void *arg, uint32_t slot, int table, int uffd);
void birth_take(struct zns_mem *m, birth_take_fn *give, void *arg);
#endif
