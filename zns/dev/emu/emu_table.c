/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The three zone tables, and what keeps them consistent if a process or the host dies at any
 * moment:
 *
 * - Each field of a live entry is changed by one atomic store. The order of the stores is such that
 *   after each of them the state is valid: a write stores wp after its data; a reset stores gen
 *   last.
 * - change_seq is incremented after each change that a flush must make durable.
 * - durable is written in whole blocks that are built from mirror, under the durable lock. mirror
 *   is updated only after the sync, so it never claims more than the disk holds. If a process is
 *   killed in between, mirror is behind, and the next flush writes the same entries once more.
 * - A reset changes durable, then mirror, then live. Before the disk changes, it marks the entry in
 *   mirror as PENDING. If the process dies then, the disk may hold either state, and the next
 *   process that opens the device, flushes or locks the zone writes the live state back. If it dies
 *   after mirror got the new generation, that process completes the reset (emu_table_heal).
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "emu_priv.h"
#include "zns/grow.h"

void emu_durable_seal(struct emu_entry *en, uint32_t zone)
{
	en->flags &= EMU_F_DURABLE;
	en->state = 0;
	en->check = zns_hash_seeded(en, offsetof(struct emu_entry, check), zone);
}

static bool entry_valid(const struct emu *e, const struct emu_entry *en, uint32_t zone)
{
	return en->check == zns_hash_seeded(en, offsetof(struct emu_entry, check), zone) &&
	       en->wp <= emu_capacity(e, zone) && !(en->wp % emu_block(e, zone)) &&
	       !(en->flags & ~EMU_F_DURABLE) && !en->state;
}

/* Reads the durable entries of all zones. *out is aligned for direct I/O; the caller frees it. */
static int durable_load(struct emu *e, struct emu_entry **out, struct zns_err *err)
{
	size_t len = zns_align_up((uint64_t)e->p.nr_zones * sizeof(**out), EMU_BLOCK);
	void *buf;
	int ret;

	if (posix_memalign(&buf, EMU_BLOCK, len))
		return zns_fail(err, -ENOMEM, "out of memory");
	ret = emu_io_read(e, e->lay.dur_off, buf, len);
	if (ret) {
		free(buf);
		return zns_fail_sys(err, ret, "%s: cannot read the zone table", e->dev.path);
	}
	*out = buf;
	return 0;
}

int emu_table_rebuild(struct emu *e, struct zns_err *err)
{
	cleanup_free struct emu_entry *dur = NULL;
	int ret = durable_load(e, &dur, err);

	if (ret)
		return ret;
	for (uint32_t z = 0; z < e->p.nr_zones; z++) {
		struct emu_entry en = dur[z];

		/* If an entry is damaged, only its zone is lost. */
		if (!entry_valid(e, &en, z))
			en = (struct emu_entry){ .flags = EMU_F_OFFLINE };
		en.check = 0;
		e->mirror[z] = en;
		/* like a real device, a power loss closes open zones */
		en.state = en.wp ? ZNS_ZONE_CLOSED : ZNS_ZONE_EMPTY;
		e->live[z] = en;
	}
	emu_model_idle(e);
	emu_store(&e->head->change_seq, 0);
	emu_store(&e->head->durable_seq, 0);
	memset(e->head->of_tests, 0, sizeof(e->head->of_tests));
	return 0;
}

int emu_table_is_stale(struct emu *e, struct zns_err *err)
{
	cleanup_free struct emu_entry *dur = NULL;
	int ret, stale = 0;

	/* The lock keeps resets and flushes out, because during these durable is ahead of live for
	 * a moment. */
	if (!e->fd_rdonly && (ret = emu_durable_lock(e, err)))
		return ret;
	ret = durable_load(e, &dur, err);
	for (uint32_t z = 0; !ret && z < e->p.nr_zones; z++) {
		const struct emu_entry *en = &dur[z];
		uint64_t gen = emu_load(&e->mirror[z].gen);

		if ((emu_load(&e->mirror[z].flags) & EMU_F_PENDING) || !entry_valid(e, en, z))
			continue;
		if (en->gen > gen || (en->gen == gen && gen == emu_load(&e->live[z].gen) &&
				      en->wp > emu_load(&e->live[z].wp)))
			stale = 1;
	}
	if (!e->fd_rdonly)
		emu_durable_unlock(e);
	return ret ? ret : stale;
}

void emu_live_reset(struct emu *e, uint32_t zone)
{
	struct emu_entry *live = &e->live[zone];

	__atomic_fetch_add(&live->turn, 1, __ATOMIC_ACQ_REL);
	emu_store(&live->state, ZNS_ZONE_EMPTY);
	emu_store(&live->flags, 0);
	emu_store(&live->wp, 0);
	emu_store(&live->gen, emu_load(&e->mirror[zone].gen));
}

/* Completes or undoes a reset that failed half-way or whose process died. (A reset that still runs
 * holds the zone's lock.) Usually there is nothing to do. It is done before any other operation can
 * see one of the two states. */
int emu_table_heal(struct emu *e, uint32_t zone, struct zns_err *err)
{
	struct emu_entry *mirror = &e->mirror[zone];
	struct emu_change ch = { .zone = zone };
	int ret;

	if (emu_load(&e->live[zone].gen) < emu_load(&mirror->gen)) {
		emu_live_reset(e, zone); /* the reset is already durable, so complete it */
		__atomic_fetch_and(&mirror->flags, ~EMU_F_PENDING, __ATOMIC_ACQ_REL);
		return 0;
	}
	if (!(emu_load(&mirror->flags) & EMU_F_PENDING))
		return 0;
	/* The disk may hold either state. Write the live one back; first sync, since the data must
	 * be on the disk before their write pointer. */
	ch.to = e->live[zone];
	ret = emu_sync(e, err);
	if (!ret)
		ret = emu_durable_lock(e, err);
	if (ret)
		return ret;
	ret = emu_durable_commit(e, &ch, 1, err);
	emu_durable_unlock(e);
	return ret;
}

int emu_sync_lost(struct emu *e, struct zns_err *err)
{
	return zns_fail(
		err, -EIO,
		"%s: an earlier write to the host's storage failed, what it holds is unknown: check the host's disk, then open the device anew",
		e->dev.path);
}

int emu_sync(struct emu *e, struct zns_err *err)
{
	if (atomic_load(&e->sync_failed))
		return emu_sync_lost(e, err);
	while (fdatasync(e->fd)) {
		int ret = -errno;

		if (ret == -EINTR)
			continue;
		/* The kernel reports a lost page only once, so a later success would prove
		 * nothing. */
		atomic_store(&e->sync_failed, true);
		/* some file systems allocate blocks only at the sync */
		if (ret == -ENOSPC || ret == -EDQUOT)
			return emu_file_no_room(e, err);
		return zns_fail_sys(err, -EIO, "%s: cannot sync (%s)", e->dev.path, strerror(-ret));
	}
	return emu_file_ours(e, err);
}

/* Builds one block of the durable table from mirror and the changes that are in this block. */
static size_t build_block(struct emu *e, uint32_t first, const struct emu_change *ch, size_t nr,
			  struct emu_entry *block)
{
	const uint32_t per = EMU_BLOCK / sizeof(*block);
	size_t used = 0;

	memset(block, 0, EMU_BLOCK);
	/* Use emu_room: the store may have more zones by now than this process has noticed. */
	for (uint32_t i = 0; i < per && first + i < emu_room(e); i++) {
		if (used < nr && ch[used].zone == first + i)
			block[i] = ch[used++].to;
		else
			block[i] = e->mirror[first + i];
		emu_durable_seal(&block[i], first + i);
	}
	return used;
}

int emu_durable_commit(struct emu *e, const struct emu_change *ch, size_t nr, struct zns_err *err)
{
	const uint32_t per = EMU_BLOCK / sizeof(struct emu_entry);
	struct emu_entry block[EMU_BLOCK / sizeof(struct emu_entry)]
		__attribute__((aligned(EMU_BLOCK)));
	int ret;

	if (atomic_load(&e->sync_failed))
		return emu_sync_lost(e, err);
	for (size_t i = 0; i < nr;) {
		uint32_t first = ch[i].zone / per * per;

		i += build_block(e, first, ch + i, nr - i, block);
		ret = emu_io_write(e, e->lay.dur_off + (uint64_t)first * sizeof(struct emu_entry),
				   block, EMU_BLOCK);
		if (ret) {
			atomic_store(&e->sync_failed, true);
			return zns_fail_sys(err, -EIO, "%s: cannot write the zone table (%s)",
					    e->dev.path, strerror(-ret));
		}
	}
	ret = emu_sync(e, err);
	if (ret)
		return ret;
	for (size_t i = 0; i < nr; i++) {
		struct emu_entry *m = &e->mirror[ch[i].zone];

		emu_store(&m->wp, ch[i].to.wp);
		emu_store(&m->gen, ch[i].to.gen);
		/* store the flags last, since this clears PENDING */
		emu_store(&m->flags, ch[i].to.flags & EMU_F_DURABLE);
	}
	return 0;
}

/* Does the live entry have changes that are not on the disk? Generations only differ during a
 * reset. */
bool emu_entry_unflushed(const struct emu_entry *live, const struct emu_entry *mirror)
{
	return live->gen == mirror->gen &&
	       ((mirror->flags & EMU_F_PENDING) || live->wp != mirror->wp ||
		((live->flags ^ mirror->flags) & EMU_F_DURABLE));
}

/* Copies an entry. Needs no zone lock: a reset stores gen last, so if gen has not changed, the
 * other fields belong to it. */
struct emu_entry emu_entry_snapshot(const struct emu_entry *en)
{
	struct emu_entry s = { 0 };

	do {
		s.gen = emu_load(&en->gen);
		s.flags = emu_load(&en->flags);
		s.wp = emu_load(&en->wp);
	} while (emu_load(&en->gen) != s.gen);
	return s;
}

int emu_table_unflushed(struct emu *e, struct emu_change **out, size_t *nr)
{
	cleanup_free struct emu_change *list = NULL;
	size_t n = 0, room = 0;

	for (uint32_t z = 0; z < e->p.nr_zones; z++) {
		struct emu_entry live = emu_entry_snapshot(&e->live[z]),
				 mirror = emu_entry_snapshot(&e->mirror[z]);

		if (!emu_entry_unflushed(&live, &mirror))
			continue;
		if (zns_grow(list, n, room))
			return -ENOMEM;
		list[n++] = (struct emu_change){ .zone = z, .to = live };
	}
	*out = list;
	list = NULL;
	*nr = n;
	return 0;
}
