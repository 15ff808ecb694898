/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The timing model in use: when a call is issued in model time, sleeping until it is done, and what tests and
 * benchmarks read of it. The wall clock is mapped into model time by one origin per boot, so all processes agree.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "emu_priv.h"

/* With ZNS_EMU_CLOCK_THREAD; of the handle this thread used last. */
static __thread struct {
	uint64_t handle, ns;
} own;

static uint64_t *own_clock(struct emu *e)
{
	if (own.handle != e->serial) {
		own.handle = e->serial;
		own.ns = e->thread_start_ns;
	}
	return &own.ns;
}

static bool active(const struct emu *e)
{
	return e->model && !e->fd_rdonly;
}

bool emu_timing_active(const struct emu *e)
{
	return active(e);
}

/* Signed: a model that ran ahead may have its origin before the host's boot. */
static uint64_t wall_ns(const struct emu *e)
{
	int64_t ns = zns_mono_ns() - e->model->origin_ns;

	return ns > 0 ? ns : 0;
}

void emu_timing_catch_up(struct emu *e)
{
	uint64_t now;

	if (!active(e) || emu_model_enter(e, NULL))
		return;
	now = wall_ns(e);
	if (e->model->clock_ns > now)
		e->model->origin_ns -= e->model->clock_ns - now;
	emu_model_leave(e);
}

uint64_t emu_timing_issue(struct emu *e)
{
	if (!active(e))
		return 0;
	return e->thread_clock ? *own_clock(e) : wall_ns(e);
}

uint64_t emu_timing_book(struct emu *e, enum zns_emu_op op, uint32_t zone, uint64_t bytes, uint64_t issue)
{
	uint64_t done;

	/* a lock that fails costs timing, not the caller's data */
	if (!active(e) || emu_model_enter(e, NULL))
		return 0;
	done = emu_model_run(e, op, zone, bytes, issue);
	emu_model_leave(e);
	return done;
}

void emu_timing_wait(struct emu *e, uint64_t done)
{
	struct timespec ts;

	if (!done || !active(e))
		return;
	if (e->thread_clock) {
		uint64_t *clock = own_clock(e);

		*clock = zns_max(*clock, done);
		return;
	}
	done += e->model->origin_ns;
	ts = (struct timespec) { .tv_sec = done / 1000000000u, .tv_nsec = done % 1000000000u };
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
		;
}

/* Every public call below begins with this. */
static int enter(struct zns_dev *dev, struct zns_err *err)
{
	struct emu *e = emu_of(dev);

	if (dev->ops != &emu_ops)
		return emu_refuse_foreign(dev, err);
	if (e->fd_rdonly)
		return zns_fail(err, -EBADF, "%s: no right to write, so no share in its timing model", dev->path);
	if (!e->model)
		return zns_fail(err, -EINVAL, "%s has no timing model: create it with --timing on", dev->path);
	return emu_model_enter(e, err);
}

int zns_emu_model_submit(struct zns_dev *dev, enum zns_emu_op op, uint32_t zone, uint64_t bytes, uint64_t issue_ns,
			 uint64_t *done_ns, struct zns_err *err)
{
	struct emu *e = emu_of(dev);
	int rc = enter(dev, err);

	if (rc)
		return rc;
	if (op != ZNS_EMU_OP_FLUSH)
		rc = emu_check_zone(e, zone, err);
	if (!rc && ((unsigned)op > ZNS_EMU_OP_FLUSH_ZONE || bytes > GIB(1024)))
		rc = zns_fail(err, -EINVAL, "unknown command %u or too large", (unsigned)op);
	if (!rc)
		*done_ns = emu_model_run(e, op, zone, bytes, issue_ns);
	emu_model_leave(e);
	return rc;
}

int zns_emu_model_load(struct zns_dev *dev, enum zns_emu_unit unit, uint32_t nr, struct zns_emu_load *out,
		       struct zns_err *err)
{
	struct emu *e = emu_of(dev);
	const struct emu_cal *c = NULL;
	uint32_t alike = 1;	/* with a shared map the first stands for all */
	int rc = enter(dev, err);

	if (rc)
		return rc;
	if (unit == ZNS_EMU_DIE && nr < e->p.channels * e->p.ways) {
		alike = e->p.map == ZNS_EMU_MAP_SHARED ? e->p.channels * e->p.ways : 1;
		c = &e->die_cal[alike > 1 ? 0 : nr];
	} else if (unit == ZNS_EMU_CHANNEL && nr < e->p.channels) {
		alike = e->p.map == ZNS_EMU_MAP_SHARED ? e->p.channels : 1;
		c = &e->channel_cal[alike > 1 ? 0 : nr];
	} else if (unit == ZNS_EMU_CONTROLLER && !nr) {
		c = &e->model->controller;
	}
	if (c)
		*out = (struct zns_emu_load) {
			.busy_ns = c->busy_ns,
			.idle_from_ns = emu_cal_idle_from(c),
			.written = c->written / alike,
			.read = c->read / alike,
		};
	emu_model_leave(e);
	return c ? 0 : zns_fail(err, -EINVAL, "%s: no die, channel or controller %u", dev->path, nr);
}

int zns_emu_model_clock(struct zns_dev *dev, uint64_t *out_ns, struct zns_err *err)
{
	int rc = enter(dev, err);

	if (rc)
		return rc;
	*out_ns = emu_of(dev)->model->clock_ns;
	emu_model_leave(emu_of(dev));
	return 0;
}

uint64_t zns_emu_model_stalls(struct zns_dev *dev)
{
	uint64_t n;

	if (enter(dev, NULL))
		return 0;
	n = emu_of(dev)->model->stalls;
	emu_model_leave(emu_of(dev));
	return n;
}

int zns_emu_set_clock(struct zns_dev *dev, enum zns_emu_clock clock, struct zns_err *err)
{
	static _Atomic uint64_t serial;
	struct emu *e = emu_of(dev);
	int rc = enter(dev, err);
	bool was;

	if (rc)
		return rc;
	e->thread_start_ns = e->model->clock_ns;
	e->serial = atomic_fetch_add(&serial, 1) + 1;	/* all threads begin anew */
	was = e->thread_clock;
	e->thread_clock = clock == ZNS_EMU_CLOCK_THREAD;
	emu_model_leave(e);
	if (was && !e->thread_clock)
		emu_timing_catch_up(e);
	return 0;
}

uint64_t zns_emu_thread_clock(struct zns_dev *dev)
{
	return dev->ops == &emu_ops ? emu_timing_issue(emu_of(dev)) : 0;
}

void zns_emu_set_thread_clock(struct zns_dev *dev, uint64_t ns)
{
	if (dev->ops == &emu_ops)
		*own_clock(emu_of(dev)) = ns;
}

int emu_clock_from_env(struct emu *e, struct zns_err *err)
{
	const char *env = secure_getenv("ZNS_EMU_CLOCK");

	if (!env || !*env || !strcmp(env, "wall") || !active(e))
		return 0;
	if (strcmp(env, "thread"))
		return zns_fail(err, -EINVAL, "ZNS_EMU_CLOCK=\"%.64s\": should be \"wall\" or \"thread\"", env);
	return zns_emu_set_clock(&e->dev, ZNS_EMU_CLOCK_THREAD, err);
}
