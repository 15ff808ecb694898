/* SPDX-License-Identifier: GPL-2.0-only */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ftl.h"
#include "zns/util.h"

#define FREE_LOW 3u /* blocks: one for writes, one for copies, one in reserve */

static uint32_t block_nr(const struct ftl *f, uint32_t die, uint32_t i)
{
	return die * f->blocks + i;
}

static uint32_t take_free(struct ftl *f, uint32_t die)
{
	for (uint32_t i = 0; i < f->blocks; i++) {
		struct ftl_block *b = &f->block[block_nr(f, die, i)];

		if (b->open || b->used)
			continue;
		b->open = true;
		f->die[die].nr_free--;
		return block_nr(f, die, i);
	}
	return FTL_NONE;
}

/* A physical page of the open block @*open; FTL_NONE: the die is full. */
static uint32_t next_place(struct ftl *f, uint32_t die, uint32_t *open)
{
	struct ftl_block *b;

	if (*open != FTL_NONE && f->block[*open].used == f->block_pages) {
		f->block[*open].open = false;
		*open = FTL_NONE;
	}
	if (*open == FTL_NONE)
		*open = take_free(f, die);
	if (*open == FTL_NONE)
		return FTL_NONE;
	b = &f->block[*open];
	return *open * f->block_pages + b->used++;
}

static void put(struct ftl *f, uint32_t page, uint32_t place)
{
	ftl_unmap(f, page);
	f->place[page] = place;
	f->owner[place] = page;
	f->block[place / f->block_pages].valid++;
}

int ftl_map_new(struct ftl *f, uint32_t nr_pages, uint32_t nr_dies, uint32_t block_pages,
		uint32_t spare_pct, struct zns_err *err)
{
	uint64_t pages = (uint64_t)nr_pages * (100 + spare_pct) / 100, all;

	memset(f, 0, sizeof(*f));
	if (!nr_pages || !nr_dies || !block_pages)
		return zns_fail(err, -EINVAL, "a drive without pages, dies or blocks");
	f->nr_pages = nr_pages;
	f->nr_dies = nr_dies;
	f->block_pages = block_pages;
	f->blocks = (uint32_t)((pages + (uint64_t)nr_dies * block_pages - 1) /
			       ((uint64_t)nr_dies * block_pages)) +
		    FREE_LOW;
	all = (uint64_t)f->blocks * nr_dies * block_pages;
	if (all >= FTL_NONE)
		return zns_fail(err, -EINVAL, "a drive of more than 16 TiB");
	f->place = malloc(nr_pages * sizeof(*f->place));
	f->owner = malloc(all * sizeof(*f->owner));
	f->block = calloc((size_t)f->blocks * nr_dies, sizeof(*f->block));
	f->die = calloc(nr_dies, sizeof(*f->die));
	if (!f->place || !f->owner || !f->block || !f->die) {
		ftl_map_free(f);
		return zns_fail(err, -ENOMEM, "no memory for the map");
	}
	memset(f->place, 0xff, nr_pages * sizeof(*f->place));
	memset(f->owner, 0xff, all * sizeof(*f->owner));
	for (uint32_t i = 0; i < nr_dies; i++)
		f->die[i] = (struct ftl_die){ FTL_NONE, FTL_NONE, f->blocks, 0, 0, 0 };
	return 0;
}

void ftl_map_free(struct ftl *f)
{
	free(f->place);
	free(f->owner);
	free(f->block);
	free(f->die);
	memset(f, 0, sizeof(*f));
}

uint32_t ftl_turn(struct ftl *f)
{
	uint32_t die = f->next;

	f->next = (f->next + 1) % f->nr_dies;
	return die;
}

bool ftl_program(struct ftl *f, uint32_t die, uint32_t page)
{
	uint32_t place = next_place(f, die, &f->die[die].host);

	if (place == FTL_NONE)
		return false;
	put(f, page, place);
	f->die[die].programmed++;
	return true;
}

void ftl_unmap(struct ftl *f, uint32_t page)
{
	uint32_t place = f->place[page];

	if (place == FTL_NONE)
		return;
	f->place[page] = f->owner[place] = FTL_NONE;
	f->block[place / f->block_pages].valid--;
}

uint32_t ftl_die_of(const struct ftl *f, uint32_t page)
{
	uint32_t place = f->place[page];

	return place == FTL_NONE ? FTL_NONE : place / f->block_pages / f->blocks;
}

bool ftl_wants_gc(const struct ftl *f, uint32_t die)
{
	return f->die[die].nr_free < FREE_LOW;
}

static uint32_t victim(const struct ftl *f, uint32_t die)
{
	uint32_t best = FTL_NONE;

	for (uint32_t i = 0; i < f->blocks; i++) {
		uint32_t nr = block_nr(f, die, i);
		const struct ftl_block *b = &f->block[nr];

		if (b->used == f->block_pages && nr != f->die[die].host && nr != f->die[die].gc &&
		    (best == FTL_NONE || b->valid < f->block[best].valid))
			best = nr;
	}
	return best != FTL_NONE && f->block[best].valid < f->block_pages ? best : FTL_NONE;
}

bool ftl_collect(struct ftl *f, uint32_t die, uint32_t *moved)
{
	uint32_t nr = victim(f, die);

	*moved = 0;
	if (nr == FTL_NONE)
		return false;
	for (uint32_t i = 0; i < f->block_pages; i++) {
		uint32_t page = f->owner[nr * f->block_pages + i], place;

		if (page == FTL_NONE)
			continue;
		place = next_place(f, die, &f->die[die].gc);
		if (place == FTL_NONE)
			return false;
		put(f, page, place);
		++*moved;
	}
	f->die[die].copied += *moved;
	f->die[die].erased++;
	f->die[die].nr_free++;
	f->block[nr] = (struct ftl_block){ 0 };
	return true;
}
