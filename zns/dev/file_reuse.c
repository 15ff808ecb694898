/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Reuses the space of removed checkpoints while the rest of the zone stays: a disk can do that, a
 * zoned drive cannot. On a drive, the write pointer makes a late write fail of a writer that the
 * broker has given up. Below the write pointer the token does: a counter for each zone, in memory
 * that all processes share. It need not survive a reboot, since writers do not either.
 */
#include <stdlib.h>

#include "emu/emu_priv.h"

int file_offer(struct zns_dev *d, uint32_t zone, uint64_t *end, uint64_t *turn, struct zns_err *err)
{
	struct emu *e = emu_of(d);
	struct emu_entry *en;
	int ret = emu_zone_lock_to_change(e, zone, err);

	if (ret)
		return ret;
	en = &e->live[zone];
	*turn = __atomic_add_fetch(&en->turn, 1, __ATOMIC_ACQ_REL);
	/* above its write pointer a finished zone always reads as zeroes, so do not offer that
	 * part */
	*end = emu_load(&en->flags) & EMU_F_FINISHED ? emu_load(&en->wp) : emu_capacity(e, zone);
	emu_zone_unlock(e, zone);
	return 0;
}

int file_take(struct zns_dev *d, uint32_t zone, uint64_t start, uint64_t end, uint64_t turn,
	      struct zns_err *err)
{
	struct emu *e = emu_of(d);
	int ret = emu_zone_lock_to_change(e, zone, err);

	if (ret)
		return ret;
	if (zone < e->p.log_zones || start > end || end > emu_capacity(e, zone))
		ret = zns_fail(err, -EINVAL, "zone %u: bytes %llu to %llu cannot be written anew",
			       zone, (unsigned long long)start, (unsigned long long)end);
	pthread_mutex_lock(&e->count_mutex);
	if (!ret && !e->taken)
		emu_store(&e->taken, calloc(emu_room(e), sizeof(*e->taken)));
	pthread_mutex_unlock(&e->count_mutex);
	if (!ret && !e->taken)
		ret = zns_fail(err, -ENOMEM, "out of memory");
	if (!ret)
		e->taken[zone] = (struct file_place){ start, end, turn };
	emu_zone_unlock(e, zone);
	return ret;
}

bool file_has_taken(const struct emu *e, uint32_t zone, uint64_t off, size_t len)
{
	const struct file_place *p = emu_load(&e->taken);

	p = p ? p + zone : NULL;
	return p && p->turn && p->turn == emu_load(&e->live[zone].turn) && off >= p->start &&
	       off <= p->end && len <= p->end - off;
}
