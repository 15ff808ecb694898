/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_GC_H
#define ZNS_CTL_GC_H
/*
 * Which checkpoints a sweep may remove (design.md §4): only those that a runtime made, and only if
 * their owner is gone for certain. There is one function for each kind of origin. In doubt it says
 * GC_UNKNOWN.
 */
#include "lib/ctl.h"

enum gc_life { GC_NEEDED, GC_GONE, GC_UNKNOWN };

/* Does a sweep ever decide about it? Not if its kind is "criu", "import", or an unknown one. */
bool gc_swept(const ZnsPb__Checkpoint *c);
/* Of one that is swept. @why: one line for the user. Never removes anything. */
enum gc_life gc_life(const ZnsPb__Checkpoint *c, char *why, size_t len);
/* From now on a program that is asked and gives no answer in this time is killed: it is unknown. */
void gc_life_within(int ms);
/* From now on no gc.d program is asked: what only it could tell is unknown. */
void gc_life_without_programs(void);

#endif
