/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_GC_H
#define ZNS_CTL_GC_H
/*
 * Decides which checkpoints a sweep may remove (design.md §4): only those that a runtime made, and
 * only if their owner is certainly gone. There is one function for each kind of origin. When in
 * doubt it returns GC_UNKNOWN.
 */
#include "lib/ctl.h"

enum gc_life { GC_NEEDED, GC_GONE, GC_UNKNOWN };

/*
 * May a sweep remove @c at all? Not if its origin is of the kind "criu" or "import", or of an
 * unknown kind.
 */
bool gc_swept(const ZnsPb__Checkpoint *c);
/*
 * Does the owner of @c still exist? Only for a @c for which gc_swept() is true. @why: one line for
 * the user. This only answers, it removes nothing.
 */
enum gc_life gc_life(const ZnsPb__Checkpoint *c, char *why, size_t len);
/*
 * From now on a gc.d program that does not answer within @ms is killed, and its answer counts as
 * GC_UNKNOWN.
 */
void gc_life_within(int ms);
/* From now on no gc.d program is executed: its answer counts as GC_UNKNOWN. */
void gc_life_without_programs(void);

#endif
