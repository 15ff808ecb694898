/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_DEFRAG_H
#define ZNS_DEFRAG_H
/* Moves of data that makes restores slow: compact --defrag. */
#include "../ctl/compact/compaction.h"
#include "layout.h"

/*
 * For --defrag: a move must gain at least this many per cent of the bandwidth for each per cent of
 * the bytes, and all moves together move at most so many per cent.
 */
#define DEFRAG_PAYS 0.25
#define DEFRAG_MOST 30

/*
 * defrag.c: plans the moves, makes them, and prints the result. @what: a container or a
 * checkpoint's id; NULL: all.
 */
int defrag_all(struct compact *x, const char *spec, const char *what, struct zns_err *err);

#endif
