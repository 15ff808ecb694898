/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The generator splitmix64. It must never change: permuted maps, which are part of the format, and
 * seeds of tests depend on it. */
#include "emu_priv.h"

uint64_t emu_random(uint64_t *state)
{
	uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}
