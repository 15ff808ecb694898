/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_UNIT_H
#define MEM_UNIT_H
/* A unit: 64 KiB of a process's memory, and the word that says where its bytes are. */
#include <stdatomic.h>
#include <stdint.h>

#include "zns/pages.h"

#define UNIT ((uint64_t)ZNS_PAGES_UNIT)
#define PAGE 4096ULL
#define UNIT_PAGES 16U
#define STRAYS_MAX (1U << 20)

/*
 * Who may change the state of a unit:
 * RES -> BUSY, WPING: any thread, by compare and exchange.
 * CLEAN -> BUSY, RES, DROP: any thread, too; except for DROP it gives up the place.
 * BUSY and LOADING: the worker that set them.
 * WPING to DROP: the evictor, and a worker that ends the eviction (-> BUSY) before DROP.
 * Any state: the reader of events, since an event says that the memory is gone.
 */
enum unit_state {
	U_RES, /* all its pages are in memory or were never there; nothing else is known */
	U_BUSY, /* like RES; a worker lifts its protection or fills a hole */
	U_WPING, /* a worker is protecting it from writes */
	U_COPY, /* protected, and being copied */
	U_WRITE, /* being written to the zone */
	U_DROP, /* on a zone, and its pages are being dropped */
	U_ZONE, /* on a zone; a page that is in memory nevertheless is newer and counts */
	U_LOADING, /* like ZONE; a worker reads it back */
	/* It came back and is protected: its pages are equal to what is at its place. Its other
	 * pages were holes at that time. */
	U_CLEAN,
};

/* Lies in a memfd that outlives the pager. State and place are one word, so a kill leaves both
 * or neither changed. */
struct unit {
	_Atomic uint64_t word; /* place | state << 48 */
	uint64_t hash; /* of what is at the place; written before the word */
	/* Bits 0-15: pages whose bytes are at the place, and come or came from there. Bits 16-31
	 * in DROP: removals of our own whose event has not been read yet (on kernels that send
	 * one). In other states: removals by the program that were read and may not be done yet. */
	_Atomic uint32_t pages;
	/* last known use, in ms of CLOCK_MONOTONIC cut to 32 bits; 0: none */
	_Atomic uint32_t stamp;
	_Atomic uint64_t addr; /* of a stray: address of its first page; else 0 */
};

/* For each unit, the piece hashes that zns/pages.h checks it with. Written before the word. */
struct unit_check {
	uint32_t piece[ZNS_PAGES_PIECES];
};

#define WORD(state, place) ((uint64_t)(state) << 48 | (place))
#define STATE(word) ((enum unit_state)((word) >> 48))
#define PLACE(word) ((word) & ((1ULL << 48) - 1))
#define ON_ZONE(word) (STATE(word) >= U_DROP && STATE(word) <= U_LOADING)
#define HAS_PLACE(word) (STATE(word) >= U_DROP)

#endif
