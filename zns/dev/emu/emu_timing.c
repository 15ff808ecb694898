/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The timing model in use: maps the issue of a call to model time, and sleeps until the call is
 * done. One origin per boot maps the wall clock to model time, so all processes agree. */
#include <time.h>

#include "emu_priv.h"

bool emu_timing_active(const struct emu *e)
{
	return e->model && !e->fd_rdonly;
}

/* Signed: if the model ran ahead, its origin may be before the host's boot. */
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

	/* a failed lock costs the timing, not the caller's data */
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
