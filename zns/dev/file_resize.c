/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Makes a store on an ordinary disk larger or smaller. Each step is durable before the next one
 * begins, and the change happens in one step, when the header is written: with the old header the
 * store has its old zones, whatever other steps were done. If the tables must move, they are
 * written to where neither the old tables nor data are; then no other process may have the store
 * open. If the tables stay in place, other processes may continue to use the store, and the live
 * area tells them the new number of zones.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "file_priv.h"

struct resize {
	struct emu *e;
	struct zns_emu_params p; /* the parameters after the change */
	struct emu_layout lay;
	bool sparse;
};

static bool in_place(const struct resize *r)
{
	return r->lay.live_off == r->e->lay.live_off && r->lay.dur_off == r->e->lay.dur_off;
}

static bool overlap(uint64_t a, uint64_t a_end, uint64_t b, uint64_t b_end)
{
	return a < b_end && b < a_end;
}

/* Computes where the tables will be after the change. */
static int place(struct resize *r, uint32_t nr, struct zns_err *err)
{
	const struct emu_layout *old = &r->e->lay;
	bool behind = old->live_off >= old->data_end;
	struct zns_emu_params *p = &r->p;
	char text[32];

	*p = r->e->p;
	p->nr_zones = nr;
	p->data_off = old->data_off;
	p->table_off = old->live_off;
	p->table_zones = r->e->p.table_off ? r->e->p.table_zones : r->e->p.nr_zones;
	emu_layout_of(p, &r->lay);
	if (nr == r->e->p.nr_zones || (!behind && nr <= p->table_zones))
		return 0;
	p->table_off = EMU_LIVE_OFF;
	p->table_zones = nr;
	emu_layout_of(p, &r->lay);
	if (behind && r->lay.dur_off + r->lay.dur_len <= r->lay.data_off)
		return 0;
	p->table_off = zns_align_up(r->lay.data_end, EMU_LIVE_OFF);
	emu_layout_of(p, &r->lay);
	if (behind && overlap(r->lay.live_off, r->lay.dur_off + r->lay.dur_len, old->live_off,
			      old->dur_off + old->dur_len))
		return zns_fail(
			err, -EINVAL,
			"%s: its tables move with its size, which must change by %s or more",
			r->e->dev.path,
			zns_format_size(zns_max(old->live_len + old->dur_len,
						r->lay.live_len + r->lay.dur_len),
					text, sizeof(text)));
	return 0;
}

static int plan(struct resize *r, const struct zns_dev *dev, uint32_t nr, struct zns_err *err)
{
	int ret;

	*r = (struct resize){ .e = emu_of(dev) };
	if (dev->ops != &file_ops)
		return zns_fail(err, -EMEDIUMTYPE,
				"%s is no store on a disk: a drive's size does not change",
				dev->path);
	ret = place(r, nr, err);
	return ret ? ret : emu_params_check(&r->p, err);
}

int zns_file_zones_for(const struct zns_dev *dev, uint64_t size, uint32_t *nr, struct zns_err *err)
{
	const struct emu *e = emu_of(dev);
	struct resize r;
	uint64_t fixed, n;
	char text[32];
	int ret = plan(&r, dev, dev->geo.nr_zones, err);

	if (ret && err->code == -EMEDIUMTYPE)
		return ret;
	if (file_check_size(size, err))
		return -EINVAL;
	fixed = e->lay.data_off + e->lay.log_stride * e->p.log_zones;
	if (size < fixed + 2 * e->lay.stride)
		return zns_fail(err, -EINVAL, "%s is too small for %s",
				zns_format_size(size, text, sizeof(text)), dev->path);
	n = (size - fixed) / e->lay.stride + e->p.log_zones;
	if (n > EMU_MAX_ZONES)
		return zns_fail(
			err, -EFBIG,
			"%s has zones of %llu KiB, and at most %u of them: make a larger store, "
			"and move the checkpoints there",
			dev->path, (unsigned long long)(e->p.zone_size / 1024), EMU_MAX_ZONES);
	do {
		*nr = (uint32_t)n--;
		if (*nr == e->p.nr_zones)
			return 0;
		ret = plan(&r, dev, *nr, err);
	} while (!ret && r.lay.total > size);
	return ret;
}

bool zns_file_resizes_in_place(const struct zns_dev *dev, uint32_t nr_zones)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct resize r;

	return !plan(&r, dev, nr_zones, &err) && in_place(&r);
}

/* Flushes first, since another process may have written until now. */
static int step_flush(struct resize *r, struct zns_err *err)
{
	return emu_flush(&r->e->dev, err);
}

static int no_room(const struct resize *r, uint64_t have, bool file, struct zns_err *err)
{
	char a[32], b[32];

	return zns_fail(err, -ENOSPC, "%s: a store of this size needs %s%s, %s has %s",
			r->e->dev.path, zns_format_size(r->lay.total, a, sizeof(a)),
			file ? " in all" : "", file ? "its file system" : "the device",
			zns_format_size(have, b, sizeof(b)));
}

/* Makes the file longer. If the store is preallocated, the new part is too. */
static int step_lengthen(struct resize *r, struct zns_err *err)
{
	struct emu *e = r->e;
	struct statfs fs;
	struct stat st;
	int ret;

	if (!e->is_file) {
		off_t end = lseek(e->fd, 0, SEEK_END);

		return end < 0 || (uint64_t)end < r->lay.total ?
			       no_room(r, end < 0 ? 0 : (uint64_t)end, false, err) :
			       0;
	}
	if (fstat(e->fd, &st))
		return zns_fail_sys(err, -errno, "cannot find the size of %s", e->dev.path);
	if ((uint64_t)st.st_size >= r->lay.total)
		return 0;
	if (!r->sparse && !fstatfs(e->fd, &fs) &&
	    (uint64_t)fs.f_bavail * fs.f_bsize < r->lay.total - (uint64_t)st.st_size)
		return no_room(r, (uint64_t)st.st_size + (uint64_t)fs.f_bavail * fs.f_bsize, true,
			       err);
	if (ftruncate(e->fd, r->lay.total))
		return zns_fail_sys(err, -errno, "cannot make %s longer", e->dev.path);
	do
		ret = r->sparse ? 0 : fallocate(e->fd, 0, 0, r->lay.total) ? -errno : 0;
	while (ret == -EINTR);
	return ret ? zns_fail_sys(err, ret, "cannot allocate %s", e->dev.path) : 0;
}

/* Writes the durable entries of the zones from @first on, as they will be after the change. */
static int write_entries(struct resize *r, uint32_t first, struct zns_err *err)
{
	struct emu *e = r->e;
	cleanup_free struct emu_entry *table = calloc(1, r->lay.dur_len);
	int ret;

	if (!table)
		return zns_fail(err, -ENOMEM, "out of memory");
	for (uint32_t z = first; z < r->p.nr_zones; z++) {
		table[z] = z < e->p.nr_zones ? e->mirror[z] : (struct emu_entry){ .gen = 1 };
		emu_durable_seal(&table[z], z);
	}
	ret = zns_pwrite_all(e->fd, table + first, r->lay.dur_len - first * sizeof(*table),
			     r->lay.dur_off + first * sizeof(*table));
	if (ret == -ENOSPC || ret == -EDQUOT)
		return emu_file_no_room(e, err);
	return ret ? zns_fail_sys(err, ret, "%s: cannot write its tables", e->dev.path) :
		     emu_sync(e, err);
}

/* Makes the new zones empty in all tables. Other users of the store write blocks of entries from
 * the mirror, so the lock keeps them out until the mirror has the new entries. */
static int add_zones(struct resize *r, struct zns_err *err)
{
	struct emu *e = r->e;
	const uint32_t per = EMU_BLOCK / sizeof(struct emu_entry);
	int ret = emu_durable_lock(e, err);

	if (ret)
		return ret;
	ret = write_entries(r, e->p.nr_zones / per * per, err);
	for (uint32_t z = e->p.nr_zones; !ret && z < r->p.nr_zones; z++) {
		e->mirror[z] = (struct emu_entry){ .gen = 1 };
		emu_live_reset(e, z);
	}
	emu_durable_unlock(e);
	return ret;
}

/* Writes the entries of the new zones, or of all zones if the tables move. */
static int step_tables(struct resize *r, struct zns_err *err)
{
	int ret;

	/* a store that becomes smaller: the zones at the end exist until the new header is written,
	 * so change nothing */
	if (in_place(r))
		return r->p.nr_zones > r->e->p.nr_zones ? add_zones(r, err) : 0;
	/* Allocate the whole live area: a fault on its mapping could not report that the disk is
	 * full. */
	ret = emu_write_zeroes(r->e->fd, r->lay.live_off, r->lay.live_len);
	if (ret == -ENOSPC || ret == -EDQUOT)
		return emu_file_no_room(r->e, err);
	if (ret)
		return zns_fail_sys(err, ret, "%s: cannot write its tables", r->e->dev.path);
	return write_entries(r, 0, err);
}

/* Invalidates the live tables at the old place, so that the next process that opens the store
 * rebuilds them. */
static int step_forget(struct resize *r, struct zns_err *err)
{
	if (!in_place(r))
		memset(r->e->head->boot_id, 0, sizeof(r->e->head->boot_id));
	return 0;
}

static int step_header(struct resize *r, struct zns_err *err)
{
	int ret = emu_header_write(r->e->fd, &r->p, r->e->uuid);

	return ret ? zns_fail_sys(err, ret, "%s: cannot write its header", r->e->dev.path) :
		     emu_sync(r->e, err);
}

/* Tells other users the new size, so that they notice it before the file is made shorter. */
static int step_tell(struct resize *r, struct zns_err *err)
{
	struct emu *e = r->e;

	if (!in_place(r))
		return 0;
	e->p.table_off = r->p.table_off;
	e->p.table_zones = r->p.table_zones;
	e->p.data_off = r->p.data_off;
	emu_store(&e->head->nr_zones, r->p.nr_zones);
	emu_set_zones(e, r->p.nr_zones);
	return 0;
}

/* Frees space that is no longer used. Errors are ignored, since the store already has its new
 * size. */
static int step_give_back(struct resize *r, struct zns_err *err)
{
	const struct emu_layout *old = &r->e->lay;

	if (!r->e->is_file)
		return 0;
	if (r->sparse && !in_place(r))
		emu_io_punch(r->e, old->live_off, old->live_len + old->dur_len);
	(void)!ftruncate(r->e->fd, r->lay.total);
	return 0;
}

static int (*const steps[])(struct resize *r, struct zns_err *err) = {
	step_flush, step_lengthen, step_tables, step_forget, step_header, step_tell, step_give_back,
};
_Static_assert(ZNS_ARRAY_SIZE(steps) == FILE_RESIZE_STEPS, "each of them can be the last");

int file_resize_steps(struct zns_dev *dev, uint32_t nr_zones, uint32_t nr_steps,
		      struct zns_err *err)
{
	struct emu *e = emu_of(dev);
	struct resize r;
	int ret = plan(&r, dev, nr_zones, err);

	if (!ret)
		ret = emu_check_writable(e, err);
	if (!ret && nr_zones == e->p.nr_zones)
		return 0;
	if (!ret)
		ret = emu_lock_init(e->fd, true, err);
	if (ret)
		return ret;
	r.sparse = emu_file_is_sparse(e);
	if (!in_place(&r) && emu_presence_wait_alone(e->fd))
		ret = zns_fail(err, -EBUSY, "%s is in use by another process: end that first",
			       dev->path);
	for (uint32_t i = 0; i < nr_steps && !ret; i++)
		ret = steps[i](&r, err);
	emu_unlock_init(e->fd);
	return ret;
}

int zns_file_resize(struct zns_dev *dev, uint32_t nr_zones, struct zns_err *err)
{
	return file_resize_steps(dev, nr_zones, FILE_RESIZE_STEPS, err);
}
