/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_GUESS_H
#define MEM_GUESS_H
/*
 * Predictions that are not confirmed yet: which units, without their bytes. A prediction is right
 * if its unit is used while a unit that came into memory at the same time would still be there:
 * only then was fetching it useful. These functions only compute; the caller holds a lock.
 */
#include <stdbool.h>
#include <stdint.h>

#define GUESSES 4096U /* if there are more open predictions, the oldest counts as wrong */

struct guess {
	/* born: number of the process (0: this prediction was right); block: its unit */
	uint32_t born, block;
	uint32_t at_ms;
	bool stream; /* predicted by address order; otherwise by the predictor */
};

/* Set it to zeroes at the start. */
struct guesses {
	struct guess ring[GUESSES];
	uint32_t head, nr;
};

void guess_add(struct guesses *g, struct guess guess);
/* Was the unit predicted? If so, removes the prediction and copies it to *@out. */
bool guess_asked(struct guesses *g, uint32_t born, uint32_t block, struct guess *out);
/*
 * Removes the oldest prediction if it is older than @age_ms, or if there is no room for another
 * one. False: there is no such prediction.
 */
bool guess_wrong(struct guesses *g, uint32_t now_ms, uint32_t age_ms, struct guess *out);

#endif
