/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef EMU_TIMED_H
#define EMU_TIMED_H
/* For tests of the timing model: a small device with timing, and its constants in ns. */
#include "emu_common.h"

#define UNIT KIB(192)
#define C UINT64_C(10000) /* a command's latency */
#define PROG UINT64_C(1875000) /* a unit at 100 MiB/s */
#define X UINT64_C(234375) /* a unit over a channel of 800 MiB/s */
#define ms(n) ((n)*UINT64_C(1000000))

static inline struct zns_emu_params timed(void)
{
	struct zns_emu_params p = small();

	p.timing = true;
	p.max_open = p.max_active = 0;
	return p;
}

static inline struct zns_dev *make_timed(void)
{
	struct zns_emu_params p = timed();

	return make_dev(&p);
}

static inline uint64_t ask(struct zns_dev *d, enum zns_emu_op op, uint32_t zone, uint64_t bytes,
			   uint64_t issue)
{
	uint64_t done = 0;

	assert_ok(zns_emu_model_submit(d, op, zone, bytes, issue, &done, &err));
	return done;
}

#endif
