/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A process that never stops to unmap, move, drop, write anew and look at its memory, in blocks and
 * in parts of them, and that forks: what a restore on demand brings must not turn up where it no
 * longer belongs, nor be missing where it does. Each page holds its own generation, or is zero;
 * every access is checked at once. zonetest: {'flavour': 'h ns', 'forks': True}
 */
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include "zt.h"

#define BLOCK_PAGES 64ul
#define BLOCKS 256
#define SLOTS (BLOCKS + 64) /* addresses: some are free, for blocks that move */

struct block {
	uint8_t *mem;
	uint32_t gen[BLOCK_PAGES]; /* 0: zero */
};

static struct block block[BLOCKS];
static uint8_t *area, *spare[SLOTS - BLOCKS];
static uint64_t rnd = 88172645463325252ull;
static uint32_t gen = 1;

static uint64_t below(uint64_t n)
{
	rnd ^= rnd << 13;
	rnd ^= rnd >> 7;
	rnd ^= rnd << 17;
	return (rnd >> 11) % n;
}

static uint64_t word_of(uint32_t g, size_t b, size_t p)
{
	return g ? (g + b * 1000003ull + p * 7919ull) * 0x9e3779b97f4a7c15ull : 0;
}

static void write_page(size_t b, size_t p)
{
	uint64_t *w = (uint64_t *)(block[b].mem + p * ZT_PAGE);

	block[b].gen[p] = ++gen;
	for (size_t i = 0; i < ZT_PAGE / 8; i++)
		w[i] = word_of(gen, b, p);
}

static void check_page(size_t b, size_t p)
{
	const uint64_t *w = (uint64_t *)(block[b].mem + p * ZT_PAGE);

	for (size_t i = 0; i < ZT_PAGE / 8; i += 73)
		ZT_CHECK(w[i] == word_of(block[b].gen[p], b, p),
			 "page %zu of block %zu is not of generation %u", p, b, block[b].gen[p]);
}

static void check_blocks(void)
{
	for (size_t b = 0; b < BLOCKS; b++)
		for (size_t p = 0; p < BLOCK_PAGES; p++)
			check_page(b, p);
}

static void drop(size_t b, size_t first, size_t nr)
{
	ZT_SYS(madvise(block[b].mem + first * ZT_PAGE, nr * ZT_PAGE, MADV_DONTNEED));
	memset(&block[b].gen[first], 0, nr * sizeof(block[b].gen[0]));
}

static void replace(size_t b, size_t first, size_t nr)
{
	uint8_t *at = block[b].mem + first * ZT_PAGE;

	ZT_SYS(munmap(at, nr * ZT_PAGE));
	zt_mmap_at(at, nr * ZT_PAGE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	memset(&block[b].gen[first], 0, nr * sizeof(block[b].gen[0]));
}

/*
 * Where several mappings meet (some are watched by the daemon, new ones are not), page by page.
 * Linux 6.17 and newer move the mappings before the first watched one and only then fail
 * (mm/mremap.c, remap_move): what has gone is there already.
 */
static void move_part(uint8_t *from, uint8_t *to, size_t pages)
{
	size_t len = pages * ZT_PAGE;
	unsigned char in_core;

	if (mremap(from, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to)
		return;
	for (size_t at = 0; at < len; at += ZT_PAGE)
		if (!mincore(from + at, ZT_PAGE, &in_core) || errno != ENOMEM)
			ZT_SYS(mremap(from + at, ZT_PAGE, ZT_PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
				      to + at));
}

/* Moves a block to a free address, and another block may move to the old one; in two steps, so that
 * a mapping is split at a place where none was split. */
static void move(size_t b)
{
	uint8_t **to = &spare[below(SLOTS - BLOCKS)], *from = block[b].mem;
	size_t cut = below(BLOCK_PAGES - 1) + 1;

	move_part(from, *to, cut);
	move_part(from + cut * ZT_PAGE, *to + cut * ZT_PAGE, BLOCK_PAGES - cut);
	block[b].mem = *to;
	*to = from;
}

static void child(void)
{
	int status;
	pid_t pid = ZT_SYS(fork());

	if (!pid) {
		for (int i = 0; i < 50; i++) {
			size_t b = below(BLOCKS), p = below(BLOCK_PAGES);

			check_page(b, p);
			write_page(b, p);
			check_page(b, p);
		}
		_exit(0);
	}
	ZT_CHECK(waitpid(pid, &status, 0) == pid && !status, "a child ended with status %#x",
		 status);
}

static void step(void)
{
	size_t b = below(BLOCKS), first = below(BLOCK_PAGES), nr = below(BLOCK_PAGES - first) + 1;
	uint64_t what = below(100);

	if (what < 50)
		check_page(b, first);
	else if (what < 70)
		write_page(b, first);
	else if (what < 80)
		drop(b, first, nr);
	else if (what < 88)
		replace(b, first, nr);
	else if (what < 99)
		move(b);
	else if (!below(8))
		child();
	/* dropped pages are written again, otherwise soon none would be left */
	for (size_t p = first; what >= 70 && what < 88 && p < first + nr; p++)
		if (below(4))
			write_page(b, p);
}

int main(int argc, char **argv)
{
	struct timespec pause = { .tv_nsec = 1000000 };

	zt_init(argc, argv);
	area = zt_mmap((size_t)SLOTS * BLOCK_PAGES * ZT_PAGE);
	madvise(area, (size_t)SLOTS * BLOCK_PAGES * ZT_PAGE, MADV_NOHUGEPAGE);
	for (size_t s = 0; s < SLOTS; s++) {
		uint8_t *at = area + s * BLOCK_PAGES * ZT_PAGE;

		if (s < BLOCKS)
			block[s].mem = at;
		else
			spare[s - BLOCKS] = at;
	}
	for (size_t s = 0; s < SLOTS - BLOCKS; s++)
		ZT_SYS(munmap(spare[s], BLOCK_PAGES * ZT_PAGE));
	for (size_t b = 0; b < BLOCKS; b++)
		for (size_t p = 0; p < BLOCK_PAGES; p++)
			write_page(b, p);
	zt_ready(NULL);
	while (!zt_asked()) {
		for (int i = 0; i < 20; i++)
			step();
		nanosleep(&pause, NULL);
	}
	zt_flip(block[3].mem + 5 * ZT_PAGE);
	zt_finish(check_blocks);
}
