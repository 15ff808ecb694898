/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Applies the timing model to calls: converts the time at which a call is issued to model time, and
 * sleeps until it is complete. The origin of model time is set once per boot, so that all processes
 * agree. */
#include <time.h>

#include "emu_priv.h"

bool emu_timing_active(const struct emu *e)
{
	return e->model && !e->fd_rdonly;
}

/* Signed, because the model may have run ahead, and then its origin is before the host's boot. */
static uint64_t wall_ns(const struct emu *e)
{
	int64_t ns = zns_mono_ns() - e->model->origin_ns;

	return ns > 0 ? ns : 0;
}

void emu_timing_catch_up(struct emu *e)
{
	uint64_t now;

	if (!emu_timing_active(e) || emu_model_enter(e, NULL))
		return;
	now = wall_ns(e);
	if (e->model->clock_ns > now)
		e->model->origin_ns -= e->model->clock_ns - now;
	emu_model_leave(e);
}

uint64_t emu_timing_issue(struct emu *e)
{
	if (!emu_timing_active(e))
		return 0;
	return e->clock ? e->clock->issue(e) : wall_ns(e);
}

uint64_t emu_timing_book(struct emu *e, enum zns_emu_op op, uint32_t zone, uint64_t off,
			 uint64_t bytes, uint64_t issue)
{
	uint64_t done;

	/* without the lock the call is done without timing; the caller's data are more important */
	if (!emu_timing_active(e) || emu_model_enter(e, NULL))
		return 0;
	done = emu_model_run(e, op, zone, off, bytes, issue);
	emu_model_leave(e);
	return done;
}

void emu_timing_wait(struct emu *e, uint64_t done)
{
	struct timespec ts;

	if (!done || !emu_timing_active(e))
		return;
	if (e->clock) {
		e->clock->wait(e, done);
		return;
	}
	done += e->model->origin_ns;
	ts = (struct timespec){ .tv_sec = done / 1000000000u, .tv_nsec = done % 1000000000u };
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
		;
}
