/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_GUESS_H
#define MEM_GUESS_H
/*
 * What was predicted last and not asked for yet: which units, not their bytes. A guess is right if
 * its unit is asked for before one that came into memory at the same time would go out again, for
 * that is what fetching is for. Arithmetic alone; the caller has a lock.
 */
#include <stdbool.h>
#include <stdint.h>

#define GUESSES 4096U /* then the oldest one was wrong */

struct guess {
	uint32_t born, block; /* which process (0: was right), which of its units */
	uint32_t at_ms;
	bool stream; /* by order of addresses; else by a chain */
};

/* All zeroes is a new one. */
struct guesses {
	struct guess ring[GUESSES];
	uint32_t head, nr;
};

void guess_add(struct guesses *g, struct guess guess);
/* Was it guessed? Then it is no longer, and in *@out. */
bool guess_asked(struct guesses *g, uint32_t born, uint32_t block, struct guess *out);
/* The oldest one, taken out, if it is older than @age_ms at @now_ms, or there is no room for
 * another one. False: there is none such. */
bool guess_wrong(struct guesses *g, uint32_t now_ms, uint32_t age_ms, struct guess *out);

#endif
