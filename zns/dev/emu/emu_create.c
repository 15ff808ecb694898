/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Creates an emulated device. The header is written last: a file without it is not a device. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include "../file_priv.h"

struct target {
	const char *path;
	int fd;
	bool fresh; /* this process created the file, so it removes it on failure */
	bool block;
	uint64_t old_size;
};

/* Refuses a zoned drive: it does not accept random writes. */
static int refuse_zoned(const struct target *t, const struct stat *st, struct zns_err *err)
{
	cleanup_free uint8_t *text = NULL;
	char sys[128];
	size_t len;

	snprintf(sys, sizeof(sys), "/sys/dev/block/%u:%u/queue/zoned", gnu_dev_major(st->st_rdev),
		 gnu_dev_minor(st->st_rdev));
	if (zns_read_file(AT_FDCWD, sys, 4096, &text, &len) || !strncmp((char *)text, "none", 4))
		return 0;
	return zns_fail(err, -EINVAL, "%s is a zoned device itself: `znsctl format %s`", t->path,
			t->path);
}

static int open_existing(struct target *t, struct zns_err *err)
{
	struct stat st;
	off_t end;

	t->fd = open(t->path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (t->fd < 0)
		return zns_fail_sys(err, -errno, "cannot open %s", t->path);
	if (fstat(t->fd, &st))
		return zns_fail_sys(err, -errno, "cannot stat %s", t->path);
	if (S_ISREG(st.st_mode)) {
		t->old_size = st.st_size;
		return 0;
	}
	if (!S_ISBLK(st.st_mode))
		return zns_fail(err, -EINVAL,
				"%s is neither a file nor a block device: name a new file",
				t->path);
	t->block = true;
	close(t->fd);
	/* O_EXCL fails while the device is mounted */
	t->fd = open(t->path, O_RDWR | O_CLOEXEC | O_EXCL);
	if (t->fd < 0)
		return zns_fail_sys(err, -errno, "cannot open %s for itself alone", t->path);
	end = lseek(t->fd, 0, SEEK_END);
	if (end < 0)
		return zns_fail_sys(err, -errno, "cannot tell the size of %s", t->path);
	t->old_size = end;
	return refuse_zoned(t, &st, err);
}

/* Refuses to create a regular file in /dev, which would be in memory: the user meant a device and
 * has mistyped its name. */
static int refuse_new_node(const char *path, struct zns_err *err)
{
	struct stat st;

	if (strncmp(path, "/dev/", 5) || !strncmp(path, "/dev/shm/", 9) || !stat(path, &st))
		return 0;
	return zns_fail(err, -ENOENT, "there is no device %s", path);
}

static int open_target(struct target *t, struct zns_err *err)
{
	int ret = refuse_new_node(t->path, err);

	if (ret)
		return ret;
	t->fd = open(t->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	t->fresh = t->fd >= 0;
	if (t->fresh)
		return 0;
	if (errno != EEXIST)
		return zns_fail_sys(err, -errno, "cannot create %s", t->path);
	return open_existing(t, err);
}

/* Does a block device have data where file systems and partition tables begin? A file only counts
 * as empty if its size is 0. */
static bool has_content(const struct target *t)
{
	cleanup_free uint8_t *buf = NULL;
	size_t len = zns_min(t->old_size, MIB(1));

	if (!t->block || !len)
		return t->old_size != 0;
	buf = malloc(len);
	/* the superblock of a RAID and the second GPT are at the end, so check both ends */
	for (int end = 0; end < 2; end++) {
		if (!buf || zns_pread_all(t->fd, buf, len, end ? t->old_size - len : 0))
			return true; /* cannot be read: assume that there are data */
		if (buf[0] || memcmp(buf, buf + 1, len - 1))
			return true;
	}
	return false;
}

static int may_overwrite(const struct target *t, bool force, struct zns_err *err)
{
	char what[128];

	if (t->fresh || force)
		return 0;
	if (emu_header_present(t->fd))
		return zns_fail(
			err, -EEXIST,
			"%s holds a store already: use it with `znsctl register`, or destroy what is on it with --force",
			t->path);
	if (file_foreign(t->fd, what, sizeof(what)))
		return zns_fail(
			err, -EEXIST,
			"%s holds data of another kind (%s): name another one, or use --force to destroy it",
			t->path, what);
	if (has_content(t))
		return zns_fail(
			err, -EEXIST,
			"%s exists and is not empty: name another file, or use --force to overwrite it",
			t->path);
	return 0;
}

/* Checks whether the zones fit before anything is allocated: a file system that fills up would
 * affect its other users. */
static int too_large(const struct target *t, const struct zns_emu_params *p,
		     const struct emu_layout *lay, uint64_t have, struct zns_err *err)
{
	char need[32], free_space[32];
	uint64_t fit = have > lay->data_off ? (have - lay->data_off) / lay->stride : 0;

	return zns_fail(
		err, -ENOSPC,
		"%s: %u zones need %s, %s has room for %s: use fewer or smaller zones (--zones N, at most %llu)%s",
		t->path, p->nr_zones, zns_format_size(lay->total, need, sizeof(need)),
		t->block ? "it" : "its file system",
		zns_format_size(have, free_space, sizeof(free_space)),
		(unsigned long long)zns_min(fit, (uint64_t)EMU_MAX_ZONES),
		t->block ? "" : ", or --sparse");
}

static int no_room(const struct target *t, uint64_t need, uint64_t have, struct zns_err *err)
{
	char a[32], b[32];

	return zns_fail(err, -ENOSPC,
			"%s: a store of this size takes %s at once, %s has room for %s", t->path,
			zns_format_size(need, a, sizeof(a)), t->block ? "it" : "its file system",
			zns_format_size(have, b, sizeof(b)));
}

/* Allocates the blocks of a store on a disk. If the store is sparse, its tables and log get their
 * blocks when they are written, but the disk must have room for them now. */
static int allocate_store(const struct target *t, const struct zns_emu_params *p,
			  const struct emu_layout *lay, struct zns_err *err)
{
	uint64_t now = p->prealloc == ZNS_EMU_SPARSE ?
			       lay->data_off + lay->log_stride * p->log_zones :
			       lay->total;
	struct statfs fs;
	int ret;

	if (t->block)
		return t->old_size >= lay->total ? 0 : no_room(t, lay->total, t->old_size, err);
	ret = file_check_system(t->fd, t->path, p->is_volatile, err);
	if (ret)
		return ret;
	if (t->fresh || !t->old_size)
		file_no_copy_on_write(t->fd);
	if (!fstatfs(t->fd, &fs) && (uint64_t)fs.f_bavail * fs.f_bsize + t->old_size < now)
		return no_room(t, now, (uint64_t)fs.f_bavail * fs.f_bsize, err);
	/* frees the blocks of an older store in this file */
	if (ftruncate(t->fd, 0) || ftruncate(t->fd, lay->total))
		return zns_fail_sys(err, -errno, "cannot give %s its size", t->path);
	if (p->prealloc == ZNS_EMU_SPARSE)
		return 0;
	while ((ret = fallocate(t->fd, 0, 0, lay->total) ? -errno : 0) == -EINTR)
		;
	return ret ? zns_fail_sys(err, ret, "cannot allocate %s, leave --preallocate out",
				  t->path) :
		     0;
}

static int allocate(const struct target *t, const struct zns_emu_params *p,
		    const struct emu_layout *lay, struct zns_err *err)
{
	uint64_t total = lay->total, have;
	bool sparse = p->prealloc == ZNS_EMU_SPARSE;
	struct statvfs fs;
	struct stat st;
	int ret = 0;

	if (p->log_zones)
		return allocate_store(t, p, lay, err);
	if (t->block)
		return t->old_size >= total ? 0 : too_large(t, p, lay, t->old_size, err);
	if (!sparse && !fstatvfs(t->fd, &fs) && !fstat(t->fd, &st)) {
		have = (uint64_t)fs.f_bavail * fs.f_frsize + (uint64_t)st.st_blocks * 512;
		if (have < total)
			return too_large(t, p, lay, have, err);
	}
	while (!sparse && (ret = fallocate(t->fd, 0, 0, total) ? -errno : 0) == -EINTR)
		;
	if (ret == -EOPNOTSUPP)
		ret = 0; /* the file system cannot allocate: leave the file sparse */
	if (!ret && ftruncate(t->fd, total))
		ret = -errno;
	if (!ret)
		return 0;
	if (!t->fresh && ftruncate(t->fd, t->old_size))
		ret = -errno;
	return zns_fail_sys(err, ret,
			    "cannot make %s for %u zones: use fewer or smaller zones (--zones N)",
			    t->path, p->nr_zones);
}

int emu_write_zeroes(int fd, uint64_t pos, uint64_t len)
{
	static const uint8_t zero[65536];
	int ret = 0;

	for (; !ret && len; pos += zns_min(len, sizeof(zero)), len -= zns_min(len, sizeof(zero)))
		ret = zns_pwrite_all(fd, zero, zns_min(len, sizeof(zero)), pos);
	return ret;
}

/* Writes zeroes, bypassing the page cache if possible, since these pages are not needed there. */
static int write_data(const struct target *t, const struct emu_layout *lay, uint64_t end)
{
	cleanup_close int direct = open(t->path, O_WRONLY | O_DIRECT | O_CLOEXEC);
	cleanup_free void *zero = NULL;
	size_t len = MIB(1);
	int ret = 0;

	if (posix_memalign(&zero, EMU_BLOCK, len))
		return -ENOMEM;
	memset(zero, 0, len);
	for (uint64_t pos = lay->data_off; !ret && pos < end; pos += len) {
		len = zns_min(len, end - pos);
		ret = direct >= 0 ? zns_pwrite_all(direct, zero, len, pos) : -EINVAL;
		if (ret == -EINVAL)
			ret = zns_pwrite_all(t->fd, zero, len, pos);
	}
	return ret;
}

static int write_table(int fd, const struct zns_emu_params *p, const struct emu_layout *lay)
{
	cleanup_free struct emu_entry *table = calloc(1, lay->dur_len);

	if (!table)
		return -ENOMEM;
	for (uint32_t z = 0; z < p->nr_zones; z++) {
		table[z].gen = 1;
		emu_durable_seal(&table[z], z);
	}
	return zns_pwrite_all(fd, table, lay->dur_len, lay->dur_off);
}

static int write_all(const struct target *t, const struct zns_emu_params *p,
		     const struct emu_layout *lay)
{
	uint8_t uuid[ZNS_UUID_LEN];
	int ret = zns_uuid_generate(uuid);

	if (!ret && t->block)
		ret = file_wipe_foreign(t->fd);
	/* Remove the header while the tables change. The live area gets its blocks now, since a
	 * fault on its mapping cannot report ENOSPC. */
	if (!ret)
		ret = emu_write_zeroes(t->fd, 0, EMU_BLOCK);
	if (!ret && fdatasync(t->fd))
		ret = -errno;
	if (!ret)
		ret = emu_write_zeroes(t->fd, lay->live_off, lay->live_len);
	/* Allocate the blocks of the log now, since removals must work on a full file system
	 * too. */
	if (!ret && (p->log_zones || p->prealloc == ZNS_EMU_WRITTEN))
		ret = write_data(t, lay,
				 p->log_zones ? lay->data_off + lay->log_stride * p->log_zones :
						lay->total);
	if (!ret)
		ret = write_table(t->fd, p, lay);
	if (!ret && fdatasync(t->fd))
		ret = -errno;
	if (!ret)
		ret = emu_header_write(t->fd, p, uuid);
	if (!ret && fdatasync(t->fd))
		ret = -errno;
	if (!ret && t->fresh)
		ret = zns_sync_parent(t->path);
	return ret;
}

static int create_in(const struct target *t, const struct zns_emu_params *p,
		     const struct emu_layout *lay, bool force, struct zns_err *err)
{
	int ret = emu_lock_init(t->fd, true, err);

	if (ret)
		return ret;
	ret = emu_presence_wait_alone(t->fd);
	if (ret)
		return zns_fail(err, ret, "%s is in use by another process: end that first",
				t->path);
	ret = may_overwrite(t, force, err);
	/* The file will contain the memory of other users' programs. So its mode must not depend on
	 * the umask or on who creates it. */
	if (!ret && !t->block && fchmod(t->fd, 0600))
		ret = zns_fail_sys(err, -errno, "cannot make %s readable by its owner alone",
				   t->path);
	if (!ret)
		ret = allocate(t, p, lay, err);
	if (ret)
		return ret;
	ret = write_all(t, p, lay);
	return ret ? zns_fail_sys(err, ret, "cannot write %s", t->path) : 0;
}

int zns_emu_create(const char *path, const struct zns_emu_params *p, bool force,
		   struct zns_err *err)
{
	struct target t = { .path = path, .fd = -1 };
	struct emu_layout lay;
	int ret;

	if (!*path)
		return zns_fail(err, -EINVAL,
				"no path given for the device: give file:PATH or emu:PATH");
	ret = emu_params_check(p, err);
	if (ret)
		return ret;
	emu_layout_of(p, &lay);
	ret = open_target(&t, err);
	if (!ret) {
		ret = create_in(&t, p, &lay, force, err);
		if (ret && t.fresh)
			unlink(path);
	}
	if (t.fd >= 0)
		close(t.fd);
	return ret;
}
