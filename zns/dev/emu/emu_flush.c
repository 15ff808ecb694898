/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Flushes all or some zones, and writes data that are durable on return. */
#include <stdlib.h>
#include <string.h>

#include "emu_priv.h"

/* Drops the changes that other processes have flushed meanwhile, or that belong to zones which were
 * reset. An entry may only move forward. */
static size_t still_ahead(struct emu *e, struct emu_change *ch, size_t nr)
{
	size_t kept = 0;

	for (size_t i = 0; i < nr; i++) {
		const struct emu_entry *m = &e->mirror[ch[i].zone];
		struct emu_entry to = ch[i].to;

		if (to.gen != emu_load(&m->gen))
			continue;
		to.wp = zns_max(to.wp, emu_load(&m->wp));
		/* take the newer value of the flags: a finished zone stays finished within its
		 * generation, and the two others only change under this lock */
		to.flags = (to.flags & EMU_F_FINISHED) | (m->flags & EMU_F_FINISHED) |
			   (emu_load(&e->live[ch[i].zone].flags) &
			    (EMU_F_READ_ONLY | EMU_F_OFFLINE));
		if (!emu_entry_unflushed(&to, m))
			continue;
		ch[kept].zone = ch[i].zone;
		ch[kept++].to = to;
	}
	return kept;
}

static int flush_now(struct emu *e, struct zns_err *err)
{
	cleanup_free struct emu_change *ch = NULL;
	uint64_t seq, done;
	size_t nr;
	int ret;

	if (atomic_load(&e->sync_failed))
		return emu_sync_lost(e, err);
	seq = emu_load(&e->head->change_seq);
	if (emu_load(&e->head->durable_seq) >= seq)
		return 0;
	/* Make the list before the sync, since a write pointer may only become durable after the
	 * data below it. */
	ret = emu_table_unflushed(e, &ch, &nr);
	if (ret)
		return zns_fail(err, ret, "out of memory");
	ret = emu_sync(e, err);
	if (ret)
		return ret;
	if (nr) {
		ret = emu_durable_lock(e, err);
		if (ret)
			return ret;
		nr = still_ahead(e, ch, nr);
		if (nr)
			ret = emu_durable_commit(e, ch, nr, err);
		emu_durable_unlock(e);
		if (ret)
			return ret;
	}
	done = emu_load(&e->head->durable_seq);
	while (done < seq && !__atomic_compare_exchange_n(&e->head->durable_seq, &done, seq, false,
							  __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		;
	return 0;
}

int emu_flush(struct zns_dev *d, struct zns_err *err)
{
	struct emu *e = emu_of(d);
	uint64_t issue = emu_timing_issue(e);
	int ret = emu_check_writable(e, err);

	if (!ret)
		ret = emu_check_power(e, err);
	if (!ret)
		ret = flush_now(e, err);
	if (!ret)
		emu_timing_wait(e, emu_timing_book(e, ZNS_EMU_OP_FLUSH, 0, 0, 0, issue));
	return ret;
}

/* Syncs the whole file, but makes only the entries of these zones durable: later a crash may still
 * drop writes to other zones. */
static int flush_some(struct emu *e, const uint32_t *zones, uint32_t nr, struct zns_err *err)
{
	cleanup_free struct emu_change *ch = calloc(nr + 1, sizeof(*ch));
	size_t ahead;
	int ret;

	if (!ch)
		return zns_fail(err, -ENOMEM, "out of memory");
	if (atomic_load(&e->sync_failed))
		return emu_sync_lost(e, err);
	for (uint32_t i = 0; i < nr; i++) /* make the list before the sync, as in flush_now */
		ch[i] = (struct emu_change){ .zone = zones[i],
					     .to = emu_entry_snapshot(&e->live[zones[i]]) };
	ret = emu_sync(e, err);
	if (!ret)
		ret = emu_durable_lock(e, err);
	if (ret)
		return ret;
	ahead = still_ahead(e, ch, nr);
	if (ahead)
		ret = emu_durable_commit(e, ch, ahead, err);
	emu_durable_unlock(e);
	return ret;
}

int emu_flush_zones(struct zns_dev *d, const uint32_t *zones, uint32_t nr, struct zns_err *err)
{
	struct emu *e = emu_of(d);
	uint64_t issue = emu_timing_issue(e), done = 0;
	int ret = emu_check_writable(e, err);

	if (emu_flushes_all(e))
		return emu_flush(d, err);
	for (uint32_t i = 0; i < nr && !ret; i++)
		ret = emu_check_zone(e, zones[i], err);
	if (!ret)
		ret = emu_check_power(e, err);
	if (!ret)
		ret = flush_some(e, zones, nr, err);
	for (uint32_t i = 0; i < nr && !ret; i++)
		done = zns_max(done,
			       emu_timing_book(e, ZNS_EMU_OP_FLUSH_ZONE, zones[i], 0, 0, issue));
	if (!ret)
		emu_timing_wait(e, done);
	return ret;
}

int emu_write_durable(struct zns_dev *d, uint32_t zone, uint64_t off, const void *buf, size_t len,
		      struct zns_err *err)
{
	struct emu *e = emu_of(d);
	int ret = emu_write(d, zone, off, buf, len, err);
	uint64_t issue;

	if (!ret)
		ret = emu_check_power(e, err);
	if (ret)
		return ret;
	issue = emu_timing_issue(e);
	ret = flush_some(e, &zone, 1, err);
	if (!ret)
		emu_timing_wait(e, emu_timing_book(e, ZNS_EMU_OP_FLUSH_ZONE, zone, 0, 0, issue));
	return ret;
}
