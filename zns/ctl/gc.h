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

/* May a sweep remove @c? Not if its kind is "criu", "import", or an unknown one. */
bool gc_swept(const ZnsPb__Checkpoint *c);
/* Is @c still needed, by what it was made for? Only for a @c of which gc_swept() is true. @why: one
 * line for the user. Never removes anything. */
enum gc_life gc_life(const ZnsPb__Checkpoint *c, char *why, size_t len);
/* From now on a gc.d program that gives no answer in this time is killed; the answer is then
 * GC_UNKNOWN. */
void gc_life_within(int ms);
/* From now on no gc.d program is asked: what only it could tell is unknown. */
void gc_life_without_programs(void);

#endif
