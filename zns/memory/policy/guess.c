/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "guess.h"

void guess_add(struct guesses *g, struct guess guess)
{
	if (g->nr == GUESSES) { /* the oldest prediction is dropped without a result */
		g->head = (g->head + 1) % GUESSES;
		g->nr--;
	}
	g->ring[(g->head + g->nr++) % GUESSES] = guess;
}

bool guess_asked(struct guesses *g, uint32_t born, uint32_t block, struct guess *out)
{
	for (uint32_t i = 0; i < g->nr; i++) {
		struct guess *s = &g->ring[(g->head + i) % GUESSES];

		if (s->born != born || s->block != block)
			continue;
		*out = *s;
		s->born = 0;
		return true;
	}
	return false;
}

bool guess_wrong(struct guesses *g, uint32_t now_ms, uint32_t age_ms, struct guess *out)
{
	while (g->nr) {
		*out = g->ring[g->head];
		if (out->born && g->nr < GUESSES && now_ms - out->at_ms <= age_ms)
			return false;
		g->head = (g->head + 1) % GUESSES;
		g->nr--;
		if (out->born)
			return true;
	}
	return false;
}
