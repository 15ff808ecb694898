/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The visible state of a zone, what is refused in that state, and the limits of open and active
 * zones. */
#include "emu_priv.h"

/* Returns the visible state. Whether a zone is full is derived from the write pointer and the
 * flags, so that a process that dies between two stores leaves no contradiction. */
enum zns_zone_state emu_state(const struct emu *e, const struct emu_entry *en)
{
	uint32_t flags = emu_load(&en->flags), state = emu_load(&en->state);
	uint64_t wp = emu_load(&en->wp);

	if (flags & EMU_F_OFFLINE)
		return ZNS_ZONE_OFFLINE;
	if (flags & EMU_F_READ_ONLY)
		return ZNS_ZONE_READ_ONLY;
	if ((flags & EMU_F_FINISHED) || wp >= emu_capacity(e, (uint32_t)(en - e->live)))
		return ZNS_ZONE_FULL;
	if (state == ZNS_ZONE_IMP_OPEN || state == ZNS_ZONE_EXP_OPEN)
		return state;
	return wp ? ZNS_ZONE_CLOSED : ZNS_ZONE_EMPTY;
}

int emu_check_zone(struct emu *e, uint32_t zone, struct zns_err *err)
{
	int ret = emu_check_power(e, err);

	if (ret)
		return ret;
	if (zone >= e->p.nr_zones)
		return zns_fail(err, -EINVAL, "zone %u: the device has zones 0 to %u", zone,
				e->p.nr_zones - 1);
	return 0;
}

int emu_check_writable(struct emu *e, struct zns_err *err)
{
	if (e->rdonly)
		return zns_fail(err, -EBADF, "%s is open for reading only", e->dev.path);
	return 0;
}

int emu_zone_refuses(uint32_t zone, enum zns_zone_state st, struct zns_err *err)
{
	switch (st) {
	case ZNS_ZONE_FULL:
		return zns_fail(err, -ENOSPC, "zone %u is full: use another zone or reset it",
				zone);
	case ZNS_ZONE_READ_ONLY:
		return zns_fail(err, -EROFS,
				"zone %u is read-only: its data can be read, use another zone",
				zone);
	case ZNS_ZONE_OFFLINE:
		return zns_fail(err, -ENXIO, "zone %u is offline: use another zone", zone);
	default:
		return 0;
	}
}

/* Called with the zone locked. Counts the zones of all processes each time, because a stored
 * counter would be wrong after a process was killed. */
static int check_limits(struct emu *e, uint32_t zone, enum zns_zone_state from, struct zns_err *err)
{
	uint32_t open = 0, active = 0;

	if (!e->p.max_open && !e->p.max_active)
		return 0;
	for (uint32_t z = 0; z < e->p.nr_zones; z++) {
		enum zns_zone_state st = emu_state(e, &e->live[z]);

		open += zns_zone_is_open(st);
		active += zns_zone_is_active(st);
	}
	if (e->p.max_active && !zns_zone_is_active(from) && active >= e->p.max_active)
		return zns_fail(
			err, -EOVERFLOW,
			"zone %u: %u zones are active, the device's limit is %u: finish or reset one first",
			zone, active, e->p.max_active);
	if (e->p.max_open && !zns_zone_is_open(from) && open >= e->p.max_open)
		return zns_fail(
			err, -ETOOMANYREFS,
			"zone %u: %u zones are open, the device's limit is %u: close, finish or reset one first",
			zone, open, e->p.max_open);
	return 0;
}

int emu_zone_activate(struct emu *e, uint32_t zone, enum zns_zone_state to, struct zns_err *err)
{
	struct emu_entry *en = &e->live[zone];
	int ret = emu_count_lock(e, err);

	if (ret)
		return ret;
	ret = check_limits(e, zone, emu_state(e, en), err);
	if (!ret)
		emu_store(&en->state, to);
	emu_count_unlock(e);
	return ret;
}
