/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_GC_H
#define ZNS_CTL_GC_H
/*
 * Which checkpoints a sweep may remove (design.md §4): only those whose recorded origin is a
 * runtime, and only if what they were made for is gone for certain. One function for each kind of
 * origin; in doubt it says GC_UNKNOWN.
 */
#include "ctl.h"

enum gc_life { GC_NEEDED, GC_GONE, GC_UNKNOWN };

/* @why: one line, for the user. Never removes anything. */
typedef enum gc_life (*gc_life_fn)(const ZnsPb__Checkpoint *c, char *why, size_t len);

/* NULL: checkpoints of this kind ("criu", "import", or one that we do not know) are never swept. */
gc_life_fn gc_life_of(const char *kind);

#endif
