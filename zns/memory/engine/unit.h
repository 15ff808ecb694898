/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_UNIT_H
#define MEM_UNIT_H
/*
 * A unit: 64 KiB of a process's memory, and the word that says where its bytes are: in memory, at
 * a place on a zone (struct zns_pages_ref), or on the way from one to the other.
 */
#include <stdatomic.h>
#include <stdint.h>

#include "zns/pages.h"

#define UNIT ((uint64_t)ZNS_PAGES_UNIT)
#define PAGE 4096ULL
#define UNIT_PAGES 16U
#define STRAYS_MAX (1U << 20)

/*
 * Which thread may change the state of a unit:
 *   RES -> BUSY, WPING        any thread, by compare-and-exchange
 *   CLEAN -> BUSY, RES, DROP  any thread; the unit gives up its place, except for DROP
 *   BUSY and LOADING          the worker that has set them
 *   WPING to DROP             the evictor; before DROP also a worker that ends the eviction
 *                             (-> BUSY)
 *   any state                 the reader of events, since an event says that the memory is gone
 */
enum unit_state {
	U_RES, /* all its pages are in memory, or have never existed; nothing else is known */
	U_BUSY, /* like RES; a worker ends its protection or fills a hole */
	U_WPING, /* the evictor is write-protecting it */
	U_COPY, /* protected, and being copied to a buffer */
	U_WRITE, /* being written to the zone */
	U_DROP, /* on a zone; its pages are being removed from memory */
	U_ZONE, /* on a zone; if a page is nevertheless in memory, that page is newer and valid */
	U_LOADING, /* like ZONE; a worker is reading it back */
	/*
	 * It was read back and is protected: its pages are equal to those at its place. Its other
	 * pages were holes at that time.
	 */
	U_CLEAN,
};

/*
 * The units are in a memfd that outlives the pager. State and place are in one word, so that a kill
 * changes both or neither.
 */
struct unit {
	_Atomic uint64_t word; /* place | state << 48 */
	uint64_t hash; /* hash of the bytes at the place; written before the word */
	/*
	 * Bits 0-15: pages whose bytes are at the place, whether they are in memory or not. Bits
	 * 16-31 in DROP: pages removed by the pager, whose event was not read yet (on kernels that
	 * send one). In other states: pages whose removal by the program was reported, but may not
	 * be done yet.
	 */
	_Atomic uint32_t pages;
	/* last known use, in ms of CLOCK_MONOTONIC truncated to 32 bits; 0: unknown */
	_Atomic uint32_t stamp;
	_Atomic uint64_t addr; /* for a stray: address of its first page; else 0 */
};

/* The hashes of a unit's pieces, with which zns/pages.h verifies them. Written before the word. */
struct unit_check {
	uint32_t piece[ZNS_PAGES_PIECES];
};

#define WORD(state, place) ((uint64_t)(state) << 48 | (place))
#define STATE(word) ((enum unit_state)((word) >> 48))
#define PLACE(word) ((word) & ((1ULL << 48) - 1))
#define ON_ZONE(word) (STATE(word) >= U_DROP && STATE(word) <= U_LOADING)
#define HAS_PLACE(word) (STATE(word) >= U_DROP)

#endif
