/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef CRASH_FLIP_H
#define CRASH_FLIP_H
#include "load.h"

enum flip_place { FLIP_DATA, FLIP_MANIFEST, FLIP_FOOTER, FLIP_LOG, FLIP_PLACES };
extern const char *const flip_place_name[FLIP_PLACES];

struct flip_count {
	uint64_t flips[FLIP_PLACES];
	uint64_t refused[FLIP_PLACES]; /* the store did not open, and the error says why */
	/* the store opened, and reading the damaged checkpoint failed */
	uint64_t noticed[FLIP_PLACES];
	/* the damage did no harm: the byte is not needed at present */
	uint64_t harmless[FLIP_PLACES];
	uint64_t wrong[FLIP_PLACES]; /* wrong bytes with a right checksum */
	uint64_t lost[FLIP_PLACES]; /* an acknowledged checkpoint is gone without a message */
};

/*
 * Damages one live byte of what the load left, @nr times, chosen by @rng: of units, manifests and
 * footers of committed checkpoints, and of the log's records. Prints the first few failures (wrong,
 * lost).
 */
int flip_run(struct trace *t, const struct load *l, uint64_t nr, uint64_t *rng,
	     struct flip_count *sum, struct zns_err *err);

#endif
