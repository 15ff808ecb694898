/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A model clock for each thread, so that a probe or a test of an emulated device need not sleep for
 * computed times. Only programs that ask for it use it. */
#include "emu_priv.h"

/* The clock of this thread, for the handle that it used last. */
static __thread struct {
	uint64_t handle, ns;
} own;

uint64_t *emu_thread_clock(struct emu *e)
{
	if (own.handle != e->serial) {
		own.handle = e->serial;
		own.ns = e->thread_start_ns;
	}
	return &own.ns;
}

static uint64_t issue(struct emu *e)
{
	return *emu_thread_clock(e);
}

static void wait(struct emu *e, uint64_t done)
{
	uint64_t *clock = emu_thread_clock(e);

	*clock = zns_max(*clock, done);
}

static const struct emu_clock thread_clock = { .issue = issue, .wait = wait };

int zns_emu_set_clock(struct zns_dev *dev, enum zns_emu_clock clock, struct zns_err *err)
{
	static _Atomic uint64_t serial;
	struct emu *e = emu_of(dev);
	bool was;
	int ret;

	if (dev->ops != &emu_ops)
		return emu_refuse_foreign(dev, err);
	ret = emu_model_ask(e, err);
	if (ret)
		return ret;
	e->thread_start_ns = e->model->clock_ns;
	/* a new serial number: the clocks of all threads start again */
	e->serial = atomic_fetch_add(&serial, 1) + 1;
	was = e->clock;
	e->clock = clock == ZNS_EMU_CLOCK_THREAD ? &thread_clock : NULL;
	emu_model_leave(e);
	if (was && !e->clock)
		emu_timing_catch_up(e);
	return 0;
}
