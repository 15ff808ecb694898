/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Locks zones for a change. If a process died in the middle of a reset, the next process that locks
 * the zone completes or undoes the reset. */
#include "emu_priv.h"

int emu_zone_lock(struct emu *e, uint32_t zone, struct zns_err *err)
{
	int ret = emu_zone_lock_bare(e, zone, err);

	if (ret)
		return ret;
	ret = emu_table_heal(e, zone, err);
	if (ret)
		emu_zone_unlock(e, zone);
	return ret;
}

int emu_zone_lock_to_change(struct emu *e, uint32_t zone, struct zns_err *err)
{
	int ret = emu_check_writable(e, err);

	if (!ret)
		ret = emu_check_zone(e, zone, err);
	return ret ? ret : emu_zone_lock(e, zone, err);
}

int emu_zones_lock(struct emu *e, const uint32_t *zones, uint32_t nr, struct zns_err *err)
{
	int ret = emu_zones_lock_bare(e, zones, nr, err);

	if (ret)
		return ret;
	for (uint32_t i = 0; !ret && i < nr; i++)
		ret = emu_table_heal(e, zones[i], err);
	if (ret)
		emu_zones_unlock(e, zones, nr);
	return ret;
}
