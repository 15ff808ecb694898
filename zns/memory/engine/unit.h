/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_UNIT_H
#define MEM_UNIT_H
/* A unit: 64 KiB of a process's memory, and the word that says where they are. */
#include <stdatomic.h>
#include <stdint.h>

#include "zns/pages.h"

#define UNIT ((uint64_t)ZNS_PAGES_UNIT)
#define PAGE 4096ULL
#define UNIT_PAGES 16U
#define STRAYS_MAX (1U << 20)

/*
 * Who may change the state:  RES -> BUSY, WPING: anybody who needs it, by compare and exchange;
 * CLEAN -> BUSY, RES, DROP: so, too, and who takes it from CLEAN to another than DROP gives up its
 * place;
 * BUSY and LOADING: the worker that made it so; WPING to DROP: the evictor, and a worker that ends
 * the eviction (-> BUSY) before DROP; the reader of events: any of them, since an event says that
 * the memory is not there any more.
 */
enum unit_state {
	U_RES, /* nothing is known of it: all its pages are in memory, or were never there */
	U_BUSY, /* as RES; a worker lifts its protection or fills a hole */
	U_WPING, /* it is being protected from writes */
	U_COPY, /* protected; it is being read */
	U_WRITE, /* and written */
	U_DROP, /* it is on a zone; its pages are being dropped */
	U_ZONE, /* on a zone; a page that is present nevertheless is the truth */
	U_LOADING, /* the same; a worker reads it back */
	U_CLEAN, /* it came back, and is protected: its pages are what is at its place. The others
		  * of the unit were holes then */
};

/* In a memfd that outlives us. The state and the place are one word, so that a kill finds it whole.
 */
struct unit {
	_Atomic uint64_t word; /* place | state << 48 */
	uint64_t hash; /* of what is at the place; written before the word */
	/* Bits 0-15: pages that are to come from the place, or came from there. 16-31, in DROP: our
	 * own removals of which the kernel has not told yet, if it tells; else: removals by the
	 * program that it was told of, and that may not be done yet */
	_Atomic uint32_t pages;
	_Atomic uint32_t stamp; /* ms of CLOCK_MONOTONIC, cut to 32 bits: last known use; 0: none */
	_Atomic uint64_t addr; /* of a stray: where its first page is; else 0 */
};

/* Beside each unit: what zns/pages.h wants to check it with. Written before the word. */
struct unit_check {
	uint32_t piece[ZNS_PAGES_PIECES];
};

#define WORD(state, place) ((uint64_t)(state) << 48 | (place))
#define STATE(word) ((enum unit_state)((word) >> 48))
#define PLACE(word) ((word) & ((1ULL << 48) - 1))
#define ON_ZONE(word) (STATE(word) >= U_DROP && STATE(word) <= U_LOADING)
#define HAS_PLACE(word) (STATE(word) >= U_DROP)

#endif
