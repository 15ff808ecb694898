/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_FAMILY_H
#define MEM_FAMILY_H
#include "../engine/mem.h"

/* Attaches one process. */
int family_join(struct zns_mem *m, pid_t pid, struct zns_err *err);
/*
 * Attaches all descendants of @root, which is attached already. If one cannot be attached, it is
 * left out with a warning.
 */
void family_tree(struct zns_mem *m, pid_t root);
/*
 * Checks which processes have ended and which are new. Only the evictor calls this, now and then.
 */
void family_look(struct zns_mem *m);

#endif
