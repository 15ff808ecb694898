/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Writes, appends and reads of zones. */
#include <string.h>

#include "emu_priv.h"

#define APPEND UINT64_MAX

static uint64_t zone_pos(const struct emu *e, uint32_t zone, uint64_t off)
{
	return emu_zone_pos(e, zone) + off;
}

/* A lack of memory must not become -EIO: that would mean that the zone failed, and the caller would
 * replace the zone. */
static int host_error(int code)
{
	return code == -ENOMEM ? code : -EIO;
}

static int check_transfer(struct emu *e, const char *what, uint32_t zone, uint64_t off, size_t len,
			  struct zns_err *err)
{
	int ret = emu_check_zone(e, zone, err);
	uint64_t size;

	if (ret)
		return ret;
	size = e->dev.geo.zone_size;
	if ((off != APPEND && off % emu_block(e, zone)) || len % emu_block(e, zone))
		return zns_fail(
			err, -EINVAL,
			"%s of zone %u at offset %llu, %zu bytes: not a multiple of the block size of %u",
			what, zone, (unsigned long long)(off == APPEND ? 0 : off), len,
			emu_block(e, zone));
	if (off != APPEND && (off >= size || len > size - off))
		return zns_fail(
			err, -EINVAL,
			"%s of zone %u at offset %llu, %zu bytes: leaves the zone of %llu bytes",
			what, zone, (unsigned long long)off, len, (unsigned long long)size);
	return 0;
}

/* Called with the zone locked. Advances wp if the data were written. */
static int write_locked(struct emu *e, uint32_t zone, uint64_t off, const void *buf, size_t len,
			uint64_t *at, struct zns_err *err)
{
	struct emu_entry *en = &e->live[zone];
	enum zns_zone_state st = emu_state(e, en);
	uint64_t wp = emu_load(&en->wp);
	bool anew = off < wp && file_has_taken(e, zone, off, len);
	int ret = anew && st == ZNS_ZONE_FULL ? 0 : emu_zone_refuses(zone, st, err);

	if (ret)
		return ret;
	if (off == APPEND)
		off = wp;
	if (off + len > emu_capacity(e, zone))
		return zns_fail(
			err, -ENOSPC,
			"write to zone %u at offset %llu, %zu bytes: beyond its capacity of %llu bytes, use another zone",
			zone, (unsigned long long)off, len,
			(unsigned long long)emu_capacity(e, zone));
	if (off != wp && !anew)
		return zns_fail(
			err, -EIO,
			"write to zone %u at offset %llu: not at its write pointer %llu: report the zone and write there, or reset it",
			zone, (unsigned long long)off, (unsigned long long)wp);
	*at = off;
	if (!len)
		return 0;
	if (!zns_zone_is_open(st) && !anew) {
		ret = emu_zone_activate(e, zone, ZNS_ZONE_IMP_OPEN, err);
		if (ret)
			return ret;
	}
	ret = emu_fault_before(e, true, zone, off, err);
	if (ret)
		return ret;
	/* the file may have been truncated; writing would only make it longer again */
	ret = emu_file_whole(e, err);
	if (ret)
		return ret;
	ret = emu_io_write(e, zone_pos(e, zone, off), buf, len);
	if (ret == -ENOSPC || ret == -EDQUOT)
		return emu_file_no_room(e, err);
	if (ret)
		return zns_fail(
			err, host_error(ret),
			"write to zone %u at offset %llu: the host's storage under %s failed: %s",
			zone, (unsigned long long)off, e->dev.path, strerror(-ret));
	if (off + len > wp)
		emu_store(&en->wp, off + len);
	__atomic_fetch_add(&e->head->change_seq, 1, __ATOMIC_ACQ_REL);
	emu_fault_after_write(e, zone);
	return 0;
}

/* Runs a write as a command that is issued at @issue in model time. *done: the time of its
 * completion, or 0 with timing off. The caller must wait until then. */
int emu_write_at(struct emu *e, uint32_t zone, uint64_t off, const void *buf, size_t len,
		 uint64_t *at, uint64_t issue, uint64_t *done, struct zns_err *err)
{
	int ret = emu_check_writable(e, err);

	*done = 0;
	if (!ret)
		ret = check_transfer(e, off == APPEND ? "append" : "write", zone, off, len, err);
	if (!ret)
		ret = emu_zone_lock(e, zone, err);
	if (ret)
		return ret;
	ret = write_locked(e, zone, off, buf, len, at, err);
	if (!ret && len)
		*done = emu_timing_book(e, ZNS_EMU_OP_WRITE, zone, 0, len, issue);
	emu_zone_unlock(e, zone);
	return ret;
}

static int do_write(struct emu *e, uint32_t zone, uint64_t off, const void *buf, size_t len,
		    uint64_t *at, struct zns_err *err)
{
	uint64_t done;
	int ret = emu_write_at(e, zone, off, buf, len, at, emu_timing_issue(e), &done, err);

	emu_timing_wait(e, done);
	return ret;
}

int emu_write(struct zns_dev *d, uint32_t zone, uint64_t off, const void *buf, size_t len,
	      struct zns_err *err)
{
	uint64_t at;

	if (off == APPEND) /* APPEND is an internal marker that a caller must not pass */
		off--;
	return do_write(emu_of(d), zone, off, buf, len, &at, err);
}

int emu_append(struct zns_dev *d, uint32_t zone, const void *buf, size_t len, uint64_t *off,
	       struct zns_err *err)
{
	return do_write(emu_of(d), zone, APPEND, buf, len, off, err);
}

/* Takes no lock: data below a write pointer do not change until a reset, and zones with readers are
 * not reset. */
int emu_read_at(struct emu *e, uint32_t zone, uint64_t off, void *buf, size_t len, bool cached,
		uint64_t issue, uint64_t *done, struct zns_err *err)
{
	struct emu_entry *en;
	enum zns_zone_state st;
	uint64_t wp, end;
	size_t stored;
	int ret = check_transfer(e, "read", zone, off == APPEND ? off - 1 : off, len, err);

	*done = 0;
	if (ret)
		return ret;
	en = &e->live[zone];
	st = emu_state(e, en);
	if (st == ZNS_ZONE_OFFLINE)
		return zns_fail(
			err, -ENXIO,
			"read of zone %u at offset %llu: the zone is offline, its data is lost",
			zone, (unsigned long long)off);
	wp = emu_load(&en->wp);
	end = st == ZNS_ZONE_FULL || (emu_load(&en->flags) & EMU_F_FINISHED) ?
		      emu_capacity(e, zone) :
		      wp;
	if (off + len > end)
		return zns_fail(
			err, -ENODATA,
			"read of zone %u at offset %llu, %zu bytes: beyond its write pointer %llu",
			zone, (unsigned long long)off, len, (unsigned long long)end);
	ret = len ? emu_fault_before(e, false, zone, off, err) : 0;
	if (ret)
		return ret;
	/* Above its write pointer a finished zone reads as zeroes, not as the data of an older
	 * generation. */
	stored = off >= wp ? 0 : zns_min(len, wp - off);
	ret = (cached ? emu_io_read_cached : emu_io_read)(e, zone_pos(e, zone, off), buf, stored);
	if (ret)
		return zns_fail(
			err, host_error(ret),
			"read of zone %u at offset %llu: the host's storage under %s failed: %s",
			zone, (unsigned long long)off, e->dev.path, strerror(-ret));
	memset((char *)buf + stored, 0, len - stored);
	if (len)
		*done = emu_timing_book(e, ZNS_EMU_OP_READ, zone, off, len, issue);
	return 0;
}

int emu_read(struct zns_dev *d, uint32_t zone, uint64_t off, void *buf, size_t len,
	     struct zns_err *err)
{
	struct emu *e = emu_of(d);
	uint64_t done;
	int ret = emu_read_at(e, zone, off, buf, len, false, emu_timing_issue(e), &done, err);

	emu_timing_wait(e, done);
	return ret;
}

/* Overwrites reset data. A reset only moves the write pointer: nobody can read the old data through
 * the device, but they are still in the file. */
int emu_scrub(struct zns_dev *d, uint32_t zone, struct zns_err *err)
{
	struct emu *e = emu_of(d);
	int ret = emu_zone_lock_to_change(e, zone, err);
	uint64_t wp;

	if (ret)
		return ret;
	wp = emu_load(&e->live[zone].wp);
	/* zones of the log keep their blocks when they are zeroed */
	ret = wp < emu_capacity(e, zone) ?
		      emu_io_zero(e, zone_pos(e, zone, wp), emu_capacity(e, zone) - wp,
				  zone < e->p.log_zones) :
		      0;
	/* counts as a change, so that the next flush syncs */
	__atomic_fetch_add(&e->head->change_seq, 1, __ATOMIC_ACQ_REL);
	emu_zone_unlock(e, zone);
	return ret ? zns_fail(err, host_error(ret),
			      "zone %u: the host's storage under %s failed: %s", zone, d->path,
			      strerror(-ret)) :
		     0;
}

/*
 * Frees the blocks above the write pointers of a run of consecutive zones, those of empty zones in
 * one call. A failure is ignored: a later reset tries again.
 */
static void give_back_run(struct emu *e, const uint32_t *zones, uint32_t nr)
{
	uint64_t from = emu_zone_pos(e, zones[0]), end = from, wp;
	struct zns_err why = ZNS_ERR_INIT;

	if (emu_zones_lock(e, zones, nr, &why))
		return;
	for (uint32_t i = 0; i < nr; i++, end += e->lay.stride) {
		wp = zns_align_up(emu_load(&e->live[zones[i]].wp), (uint64_t)EMU_BLOCK);
		if (wp && end > from)
			emu_io_punch(e, from, end - from);
		if (wp)
			from = end + wp;
	}
	if (end > from)
		emu_io_punch(e, from, end - from);
	emu_zones_unlock(e, zones, nr);
}

/*
 * Frees the blocks of reset zones, whose old data nobody can read. A fully allocated file keeps
 * them: overwriting them is faster, and they cannot run out. A sparse file frees them once the
 * reset is durable.
 */
void emu_give_back(struct emu *e, const uint32_t *zones, uint32_t nr)
{
	uint32_t n;

	if (!emu_file_is_sparse(e))
		return;
	/* skip zones of the log, which must always have room */
	for (; nr && zones[0] < e->p.log_zones; zones++)
		nr--;
	for (uint32_t i = 0; i < nr; i += n) {
		for (n = 1; i + n < nr && zones[i + n] == zones[i] + n;)
			n++;
		give_back_run(e, &zones[i], n);
	}
}
