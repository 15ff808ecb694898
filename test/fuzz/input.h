/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef FUZZ_INPUT_H
#define FUZZ_INPUT_H
/* A fuzzer's bytes as a row of small numbers; when they have run out, zeroes. */
#include <stddef.h>
#include <stdint.h>

struct input {
	const uint8_t *p;
	size_t left;
};

static inline uint32_t take(struct input *in, uint32_t below)
{
	if (!in->left)
		return 0;
	in->left--;
	return *in->p++ % below;
}

#endif
