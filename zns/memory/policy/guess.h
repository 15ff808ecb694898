/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_GUESS_H
#define MEM_GUESS_H
/*
 * Predictions that were not confirmed yet: which units, not their bytes. A prediction is right if
 * its unit is asked for while a unit that came into memory at the same time would still be there:
 * only then was it worth fetching. Only arithmetic here; the caller holds a lock.
 */
#include <stdbool.h>
#include <stdint.h>

#define GUESSES 4096U /* if there are more, the oldest counts as wrong */

struct guess {
	uint32_t born, block; /* born: the process (0: this guess was right); block: its unit */
	uint32_t at_ms;
	bool stream; /* predicted by the order of addresses; else by a chain */
};

/* To begin, set it to zeroes. */
struct guesses {
	struct guess ring[GUESSES];
	uint32_t head, nr;
};

void guess_add(struct guesses *g, struct guess guess);
/* Was the unit predicted? If so, takes the guess out, into *@out. */
bool guess_asked(struct guesses *g, uint32_t born, uint32_t block, struct guess *out);
/* Takes out the oldest guess if it is older than @age_ms, or if there is no room for another
 * one. False: there is no such guess. */
bool guess_wrong(struct guesses *g, uint32_t now_ms, uint32_t age_ms, struct guess *out);

#endif
