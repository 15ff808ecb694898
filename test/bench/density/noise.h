/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef NOISE_H
#define NOISE_H
/*
 * A noise container's objects: 500 of 160 KiB, 100 of 640 KiB, 80 of 1.6 MiB, which are 270 MiB
 * (the paper's by 1/128). Server and client compute the content, so that each answer is checked.
 */
#include <stdint.h>

struct object_class {
	uint32_t nr, bytes;
};
static const struct object_class classes[] = { { 500, 160 << 10 },
					       { 100, 640 << 10 },
					       { 80, 1638 << 10 } };
#define NR_CLASSES (sizeof(classes) / sizeof(classes[0]))

/* @divide: a container has only that part of each class. Returns 0 if this object does not
 * exist. */
static inline uint32_t object_bytes(uint32_t object, uint32_t divide)
{
	for (unsigned int c = 0; c < NR_CLASSES; c++) {
		uint32_t nr = (classes[c].nr + divide - 1) / divide;

		if (object < nr)
			return classes[c].bytes;
		object -= nr;
	}
	return 0;
}

static inline uint32_t nr_objects(uint32_t divide)
{
	uint32_t nr = 0;

	for (unsigned int c = 0; c < NR_CLASSES; c++)
		nr += (classes[c].nr + divide - 1) / divide;
	return nr;
}

/* The word at offset @at of an object. */
static inline uint64_t object_word(uint32_t server, uint32_t object, uint64_t at)
{
	uint64_t x = ((uint64_t)server << 52 ^ (uint64_t)object << 32 ^ at) * 0x9e3779b97f4a7c15ull;

	return x ^ x >> 29;
}

#endif
