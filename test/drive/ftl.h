/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TEST_DRIVE_FTL_H
#define TEST_DRIVE_FTL_H
/*
 * The map of a conventional drive: which physical page has which page of the host. It does not deal
 * with time. A die has blocks; pages are programmed in order, and a block is erased as a whole.
 */
#include <stdbool.h>
#include <stdint.h>
#include "zns/err.h"

#define FTL_NONE UINT32_MAX

struct ftl_block {
	uint32_t used, valid; /* used: programmed pages; valid: those with live data */
	bool open;
};

struct ftl_die {
	uint32_t host, gc; /* two open blocks: for pages from the host, and for copies */
	uint32_t nr_free;
	uint64_t programmed, copied, erased; /* pages, pages, blocks */
};

struct ftl {
	uint32_t nr_pages; /* pages that the host sees */
	uint32_t nr_dies, blocks, block_pages; /* blocks of a die */
	uint32_t next; /* the die that gets the next page */
	uint32_t *place; /* indexed by the host's page; FTL_NONE */
	uint32_t *owner; /* by the physical page; FTL_NONE: no page of the host needs it */
	struct ftl_block *block;
	struct ftl_die *die;
};

int ftl_map_new(struct ftl *f, uint32_t nr_pages, uint32_t nr_dies, uint32_t block_pages,
		uint32_t spare_pct, struct zns_err *err);
void ftl_map_free(struct ftl *f);
/* Chooses the die of the next page: dies take turns in the order of arrival. */
uint32_t ftl_turn(struct ftl *f);
/* Programs @page on @die. False: the die has no free page, collect first. */
bool ftl_program(struct ftl *f, uint32_t die, uint32_t page);
void ftl_unmap(struct ftl *f, uint32_t page);
/* The die of a page; FTL_NONE if it has never been written. */
uint32_t ftl_die_of(const struct ftl *f, uint32_t page);
/* Has the die few free blocks? */
bool ftl_wants_gc(const struct ftl *f, uint32_t die);
/* Moves the valid pages of the die's block with the fewest of them to its other blocks. *@moved:
 * number of pages. False: no block would give room. */
bool ftl_collect(struct ftl *f, uint32_t die, uint32_t *moved);
#endif
