/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The NAND timing model, a first one: a command occupies its die for bytes / die bandwidth and its channel
 * for bytes / channel bandwidth, each behind what is booked there already, and is done when both are. The
 * busy-until times are in the live area, so processes that share a die really slow each other. Beside them
 * the sum of all work per die: model time, which no scheduler disturbs.
 */
#include <time.h>

#include "emu_priv.h"

static uint64_t cost_ns(uint64_t len, uint32_t mibps)
{
	return (unsigned __int128)len * 1000000000u / ((uint64_t)mibps << 20);
}

static uint64_t book(struct emu_busy *b, uint64_t now, uint64_t ns)
{
	uint64_t until = emu_load(&b->until_ns), end;

	do
		end = zns_max(until, now) + ns;
	while (!__atomic_compare_exchange_n(&b->until_ns, &until, end, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
	__atomic_fetch_add(&b->work_ns, ns, __ATOMIC_RELAXED);
	return end;
}

static uint64_t book_on(struct emu *e, uint32_t die, uint64_t now, uint64_t len, bool write)
{
	uint64_t a = book(&e->channel_busy[die % e->p.channels], now, cost_ns(len, e->p.channel_mibps));
	uint64_t b = book(&e->die_busy[die], now, cost_ns(len, write ? e->p.die_write_mibps : e->p.die_read_mibps));

	return zns_max(a, b);
}

uint64_t emu_timing_book(struct emu *e, uint32_t zone, size_t len, bool write)
{
	uint32_t dies = e->p.channels * e->p.ways;
	uint64_t now, done = 0;

	if (!e->p.timing || e->fd_rdonly)
		return 0;
	now = zns_mono_ns();
	if (e->p.map != ZNS_EMU_MAP_SHARED)
		return book_on(e, e->die_of_zone[zone], now, len, write);
	for (uint32_t d = 0; d < dies; d++) {
		uint64_t end = book_on(e, d, now, len / dies, write);

		done = zns_max(done, end);
	}
	return done;
}

void emu_timing_wait(uint64_t done_ns)
{
	struct timespec ts = { .tv_sec = done_ns / 1000000000u, .tv_nsec = done_ns % 1000000000u };

	if (!done_ns)
		return;
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
		;
}

uint64_t emu_timing_work(const struct emu *e, uint32_t die)
{
	return __atomic_load_n(&e->die_busy[die].work_ns, __ATOMIC_RELAXED);
}
