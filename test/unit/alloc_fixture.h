/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ALLOC_FIXTURE_H
#define ALLOC_FIXTURE_H
/* For test_alloc*.c: groups of a drive of eight channels. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "zns/alloc.h"

#define CHANNELS 8
#define WAYS 4
#define DIES (CHANNELS * WAYS)

static inline void table(struct zns_group_state *g, uint32_t nr)
{
	uint32_t i;

	memset(g, 0, nr * sizeof(*g));
	for (i = 0; i < nr; i++) {
		g[i].id = i;
		g[i].channel = i % CHANNELS;
		g[i].free_zones = 2;
	}
}

#endif
