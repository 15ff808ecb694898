/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Reports, opens, closes, finishes and resets zones. */
#include <stdlib.h>
#include <string.h>

#include "emu_priv.h"

static void fill(const struct emu *e, uint32_t zone, struct zns_zone *out)
{
	const struct emu_entry *en = &e->live[zone];

	memset(out, 0, sizeof(*out));
	out->index = zone;
	out->state = emu_state(e, en);
	out->capacity = emu_capacity(e, zone);
	out->wp = emu_load(&en->wp);
	/* a process was killed during a reset: show the zone as reset; the next process that locks
	 * it completes the reset */
	if (emu_load(&en->gen) < emu_load(&e->mirror[zone].gen)) {
		out->wp = 0;
		out->state = ZNS_ZONE_EMPTY;
	}
	if (out->state == ZNS_ZONE_FULL)
		out->wp = out->capacity;
	else if (out->wp == out->capacity && out->state != ZNS_ZONE_READ_ONLY &&
		 out->state != ZNS_ZONE_OFFLINE)
		out->state = ZNS_ZONE_FULL; /* the zone became full between the two reads */
}

int emu_report(struct zns_dev *d, uint32_t first, uint32_t nr, struct zns_zone *out,
	       struct zns_err *err)
{
	struct emu *e = emu_of(d);
	int ret = emu_check_power(e, err);

	if (ret)
		return ret;
	if (first > e->p.nr_zones || nr > e->p.nr_zones - first)
		return zns_fail(err, -EINVAL,
				"report of %u zones from zone %u: the device has %u zones", nr,
				first, e->p.nr_zones);
	for (uint32_t i = 0; i < nr; i++)
		fill(e, first + i, &out[i]);
	return 0;
}

int emu_open_zone(struct zns_dev *d, uint32_t zone, struct zns_err *err)
{
	struct emu *e = emu_of(d);
	enum zns_zone_state st;
	int ret = emu_zone_lock_to_change(e, zone, err);

	if (ret)
		return ret;
	st = emu_state(e, &e->live[zone]);
	ret = emu_zone_refuses(zone, st, err);
	if (!ret && st != ZNS_ZONE_EXP_OPEN)
		ret = emu_zone_activate(e, zone, ZNS_ZONE_EXP_OPEN, err);
	emu_zone_unlock(e, zone);
	return ret;
}

int emu_close_zone(struct zns_dev *d, uint32_t zone, struct zns_err *err)
{
	struct emu *e = emu_of(d);
	enum zns_zone_state st;
	int ret = emu_zone_lock_to_change(e, zone, err);

	if (ret)
		return ret;
	st = emu_state(e, &e->live[zone]);
	ret = emu_zone_refuses(zone, st, err);
	if (!ret && st == ZNS_ZONE_EMPTY)
		ret = zns_fail(err, -EIO, "zone %u is empty: only an open zone can be closed",
			       zone);
	if (!ret) /* emu_state() then shows a zone that was opened and never written as empty */
		emu_store(&e->live[zone].state, ZNS_ZONE_CLOSED);
	emu_zone_unlock(e, zone);
	return ret;
}

static int finish_locked(struct emu *e, uint32_t zone, uint64_t *padded, struct zns_err *err)
{
	struct emu_entry *en = &e->live[zone];
	enum zns_zone_state st = emu_state(e, en);
	int ret;

	if (st == ZNS_ZONE_FULL)
		return 0;
	ret = emu_zone_refuses(zone, st, err);
	if (ret)
		return ret;
	/* A real device opens the zone for the padding, so the limits apply as for a write. */
	if (!zns_zone_is_open(st)) {
		ret = emu_zone_activate(e, zone, ZNS_ZONE_IMP_OPEN, err);
		if (ret)
			return ret;
	}
	*padded = emu_capacity(e, zone) - emu_load(&en->wp);
	emu_store(&en->flags, emu_load(&en->flags) | EMU_F_FINISHED);
	__atomic_fetch_add(&e->head->change_seq, 1, __ATOMIC_ACQ_REL);
	return 0;
}

int emu_finish(struct zns_dev *d, uint32_t zone, struct zns_err *err)
{
	struct emu *e = emu_of(d);
	uint64_t issue = emu_timing_issue(e), padded = 0, done = 0;
	int ret = emu_zone_lock_to_change(e, zone, err);

	if (ret)
		return ret;
	ret = finish_locked(e, zone, &padded, err);
	if (!ret && padded)
		done = emu_timing_book(e, ZNS_EMU_OP_FINISH, zone, 0, padded, issue);
	emu_zone_unlock(e, zone);
	emu_timing_wait(e, done);
	return ret;
}

static int by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

/* Does a reset need a sync? Only if durable data are to be reset; an open zone without writes needs
 * none. */
static bool reset_needs_disk(const struct emu_entry *live, const struct emu_entry *mirror)
{
	return live->wp || mirror->wp || ((live->flags | mirror->flags) & EMU_F_FINISHED);
}

/* Books the resets in the model. Erasing takes as long for a nearly empty zone as for a finished
 * one. */
static uint64_t time_resets(struct emu *e, const struct emu_change *ch, size_t nr, uint64_t issue)
{
	uint64_t done = 0;

	for (size_t i = 0; i < nr; i++) {
		uint64_t end = emu_timing_book(e, ZNS_EMU_OP_RESET, ch[i].zone, 0, 1, issue);

		done = zns_max(done, end);
	}
	return done;
}

/* Called with all zones locked. The order is disk and mirror (both in the commit), then live: see
 * emu_table.c. */
static int reset_locked(struct emu *e, const uint32_t *zones, uint32_t nr, struct emu_change *ch,
			uint64_t *done, struct zns_err *err)
{
	uint64_t issue = emu_timing_issue(e);
	size_t n = 0;
	int ret = 0;

	for (uint32_t i = 0; i < nr; i++) {
		enum zns_zone_state st = emu_state(e, &e->live[zones[i]]);

		if (st == ZNS_ZONE_READ_ONLY || st == ZNS_ZONE_OFFLINE)
			return emu_zone_refuses(zones[i], st, err);
	}
	ret = emu_durable_lock(e, err);
	if (ret)
		return ret;
	for (uint32_t i = 0; i < nr; i++) {
		const struct emu_entry *live = &e->live[zones[i]];

		if (!reset_needs_disk(live, &e->mirror[zones[i]]))
			continue;
		ch[n++] = (struct emu_change){ .zone = zones[i], .to.gen = live->gen + 1 };
	}
	if (n) {
		__atomic_fetch_add(&e->head->change_seq, 1, __ATOMIC_ACQ_REL);
		for (size_t i = 0; i < n; i++)
			__atomic_fetch_or(&e->mirror[ch[i].zone].flags, EMU_F_PENDING,
					  __ATOMIC_ACQ_REL);
		ret = emu_durable_commit(e, ch, n, err);
	}
	emu_durable_unlock(e);
	if (ret)
		return ret;
	for (uint32_t i = 0; i < nr; i++)
		emu_store(&e->live[zones[i]].state, ZNS_ZONE_EMPTY);
	for (size_t i = 0; i < n; i++)
		emu_live_reset(e, ch[i].zone);
	*done = time_resets(e, ch, n, issue);
	return 0;
}

int emu_reset(struct zns_dev *d, const uint32_t *zones, uint32_t nr, struct zns_err *err)
{
	struct emu *e = emu_of(d);
	cleanup_free uint32_t *sorted = NULL;
	cleanup_free struct emu_change *ch = NULL;
	uint64_t done = 0;
	uint32_t n = 0;
	int ret = emu_check_writable(e, err);

	if (ret || !nr)
		return ret;
	for (uint32_t i = 0; i < nr; i++) {
		ret = emu_check_zone(e, zones[i], err);
		if (ret)
			return ret;
	}
	sorted = malloc(nr * sizeof(*sorted));
	ch = malloc(nr * sizeof(*ch));
	if (!sorted || !ch)
		return zns_fail(err, -ENOMEM, "out of memory");
	memcpy(sorted, zones, nr * sizeof(*sorted));
	qsort(sorted, nr, sizeof(*sorted), by_number);
	for (uint32_t i = 0; i < nr; i++)
		if (!n || sorted[n - 1] != sorted[i])
			sorted[n++] = sorted[i];
	ret = emu_zones_lock(e, sorted, n, err);
	if (ret)
		return ret;
	ret = reset_locked(e, sorted, n, ch, &done, err);
	emu_zones_unlock(e, sorted, n);
	if (!ret)
		emu_give_back(e, sorted, n);
	emu_timing_wait(e, done);
	return ret;
}
