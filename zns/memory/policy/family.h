/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_FAMILY_H
#define MEM_FAMILY_H
#include "../engine/mem.h"

/* Extend one process. */
int family_join(struct zns_mem *m, pid_t pid, struct zns_err *err);
/* All descendants of @root, which is extended already. */
void family_tree(struct zns_mem *m, pid_t root, struct zns_err *err);
/* Now and then: who has ended, who is new. For one thread, the evictor. */
void family_look(struct zns_mem *m);

#endif
