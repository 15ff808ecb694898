/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Opens and closes an emulated device. */
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "../backends.h"
#include "emu_priv.h"
#include "zns/config.h"

static int read_boot_id(char out[64], struct zns_err *err)
{
	static const char path[] = "/proc/sys/kernel/random/boot_id";
	cleanup_free uint8_t *text = NULL;
	size_t len;
	int ret = zns_read_file(AT_FDCWD, path, 63, &text, &len);

	if (ret || !len)
		return zns_fail_sys(err, ret ? ret : -EIO, "cannot read %s (is /proc mounted?)",
				    path);
	memset(out, 0, 64);
	memcpy(out, text, len);
	return 0;
}

static void place_tables(struct emu *e)
{
	uint8_t *base = e->map;

	e->head = (struct emu_live_head *)base;
	e->live = (struct emu_entry *)(base + EMU_BLOCK);
	e->mirror = (struct emu_entry *)(base + e->lay.mirror_off);
	if (!e->p.timing)
		return;
	e->model = (struct emu_model *)(base + e->lay.model_off);
	e->model_zone = (struct emu_model_zone *)(e->model + 1);
	e->die_cal = (struct emu_cal *)(e->model_zone + e->p.nr_zones);
	e->channel_cal = e->die_cal + (size_t)e->p.channels * e->p.ways * emu_planes(&e->p);
	if (e->p.cache_mib)
		e->cache = (struct emu_cache *)(base + e->lay.cache_off);
	if (e->p.heat_mib)
		e->heat = (struct emu_heat *)(base + e->lay.heat_off);
}

static int map_live(struct emu *e, bool private, struct zns_err *err)
{
	int prot = PROT_READ | (private || !e->fd_rdonly ? PROT_WRITE : 0);
	void *map;

	if (private)
		map = mmap(NULL, e->lay.live_len, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	else
		map = mmap(NULL, e->lay.live_len, prot, MAP_SHARED, e->fd, (off_t)e->lay.live_off);
	if (map == MAP_FAILED)
		return zns_fail_sys(
			err, -errno,
			"%s: cannot map the zone table: put it on a file system with shared mappings",
			e->dev.path);
	if (e->map)
		munmap(e->map, e->map_len);
	e->map = map;
	e->map_len = e->lay.live_len;
	place_tables(e);
	return 0;
}

/* Does the live area share a block with a reflink copy or a snapshot? */
static bool is_shared(const struct emu *e)
{
	union {
		struct fiemap map;
		uint8_t room[sizeof(struct fiemap) + 64 * sizeof(struct fiemap_extent)];
	} q;
	const uint64_t end = e->lay.live_off + e->lay.live_len;
	uint64_t at = e->lay.live_off;

	while (at < end) {
		const struct fiemap_extent *x = NULL;

		q.map = (struct fiemap){ .fm_start = at,
					 .fm_length = end - at,
					 .fm_extent_count = 64 };
		if (ioctl(e->fd, FS_IOC_FIEMAP, &q.map) || !q.map.fm_mapped_extents)
			return false;
		for (uint32_t i = 0; i < q.map.fm_mapped_extents; i++) {
			x = &q.map.fm_extents[i];
			if (x->fe_flags & FIEMAP_EXTENT_SHARED)
				return true;
		}
		if (x->fe_flags & FIEMAP_EXTENT_LAST || x->fe_logical + x->fe_length <= at)
			return false;
		at = x->fe_logical + x->fe_length;
	}
	return false;
}

/*
 * Makes the live area's blocks exclusive before it is first written. The first write to a shared
 * block allocates a new one, and a fault on the mapping could not report that the disk is full.
 */
static int own_blocks(struct emu *e, struct zns_err *err)
{
	struct statfs fs;

	if (!is_shared(e) || !madvise(e->map, e->map_len, MADV_POPULATE_WRITE) || errno != EFAULT)
		return 0;
	if (!fstatfs(e->fd, &fs) && fs.f_bavail * (uint64_t)fs.f_bsize < e->map_len + MIB(16))
		return zns_fail(
			err, -EDQUOT,
			"no space left on the file system below %s for blocks that it shares with a copy or "
			"snapshot: free some there",
			e->dev.path);
	return zns_fail(
		err, -EIO,
		"%s: its zone table cannot be mapped for writing: a quota is used up, or the disk fails",
		e->dev.path);
}

/* Rebuilds the live tables. Called with the init lock held. Fails if another process has the device
 * open: one with another boot id must be on another machine. */
static int rebuild_alone(struct emu *e, const char boot_id[64], struct zns_err *err)
{
	int ret = emu_presence_wait_alone(e->fd);

	if (ret)
		return zns_fail(
			err, ret,
			"%s: its state is not of this boot, but another process has it open: close it there first",
			e->dev.path);
	/* if this process is killed in the middle, the next one must start again */
	memset(e->head->boot_id, 0, sizeof(e->head->boot_id));
	if (e->model) {
		memset(e->model, 0, e->lay.live_len - e->lay.model_off);
		e->model->origin_ns = zns_mono_ns();
	}
	ret = emu_table_rebuild(e, err);
	if (ret)
		return ret;
	memcpy(e->head->boot_id + 1, boot_id + 1, sizeof(e->head->boot_id) - 1);
	/* set the first byte last: only from now on the ids are equal */
	emu_store(&e->head->boot_id[0], boot_id[0]);
	return emu_presence_share(e->fd, err);
}

/* Completes or undoes interrupted resets before the process that opens the device sees them. */
static int settle_resets(struct emu *e, struct zns_err *err)
{
	int ret = 0;

	for (uint32_t z = 0; !e->fd_rdonly && !ret && z < e->p.nr_zones; z++) {
		if (!(emu_load(&e->mirror[z].flags) & EMU_F_PENDING) &&
		    emu_load(&e->live[z].gen) >= emu_load(&e->mirror[z].gen))
			continue;
		ret = emu_zone_lock(e, z, err);
		if (!ret)
			emu_zone_unlock(e, z);
	}
	return ret;
}

/* Uses the live tables. After a reboot, or if the host lost pages of them, rebuilds them from the
 * durable ones. */
static int attach(struct emu *e, bool served, struct zns_err *err)
{
	char boot_id[64];
	bool same;
	int ret = read_boot_id(boot_id, err);

	if (!ret)
		ret = map_live(e, false, err);
	/* skipped if a broker serves the device, since the broker has done this */
	if (!ret && !served && !e->fd_rdonly && e->is_file && e->p.log_zones)
		ret = own_blocks(e, err);
	if (ret)
		return ret;
	same = !memcmp(boot_id, e->head->boot_id, sizeof(boot_id));
	if (same) {
		ret = emu_table_is_stale(e, err);
		if (ret <= 0)
			return ret                            ? ret :
			       (ret = emu_power_back(e, err)) ? ret :
								settle_resets(e, err);
	}
	if (!e->fd_rdonly)
		return rebuild_alone(e, boot_id, err);
	/* Without write permission, map privately: a snapshot that is valid until another process
	 * writes. */
	ret = map_live(e, true, err);
	return ret ? ret : emu_table_rebuild(e, err);
}

/* Lets the wall clock of the model catch up, if no other process has the device open. A process
 * that used model time without sleeping does this when it closes the device, unless it was
 * killed. */
static int skip_ahead(struct emu *e, struct zns_err *err)
{
	if (emu_presence_try_alone(e->fd))
		return 0;
	emu_timing_catch_up(e);
	return emu_presence_share(e->fd, err);
}

static int open_file(struct emu *e, const char *path, bool claim, struct zns_err *err)
{
	bool file = zns_spec_on_disk(e->dev.path);
	struct stat st;
	int ret;

	/* O_NONBLOCK, because opening a FIFO would block; it is refused afterwards */
	e->fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (e->fd < 0 && e->rdonly && (errno == EACCES || errno == EROFS || errno == EPERM)) {
		e->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
		e->fd_rdonly = true;
	}
	if (e->fd < 0) {
		ret = -errno;
		if (ret == -ENOENT)
			return zns_fail(err, ret,
					"no %s at %s: create one with `znsctl create %s%s`",
					file ? "store" : "emulated device", path, e->dev.path,
					file ? " --size SIZE" : "");
		if (ret != -EISDIR)
			return zns_fail_sys(err, ret, "cannot open %s", path);
	}
	if (e->fd < 0 || fstat(e->fd, &st) || (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode)))
		return zns_fail(
			err, -EMEDIUMTYPE,
			"%s is neither a file nor a block device: create one with `znsctl create %s:PATH`",
			path, file ? "file" : "emu");
	e->is_file = S_ISREG(st.st_mode);
	if (e->is_file || !claim)
		return 0;
	e->claim_fd = open(path, O_RDONLY | O_EXCL | O_CLOEXEC);
	return e->claim_fd < 0 ?
		       zns_fail_sys(err, -errno, "cannot have %s for the store alone", path) :
		       0;
}

static int setup(struct emu *e, const char *path, bool served, struct zns_err *err)
{
	struct zns_geometry *g = &e->dev.geo;
	int ret = emu_header_read(e->fd, e->dev.path, &e->p, e->uuid, err);

	if (ret)
		return ret;
	emu_layout_of(&e->p, &e->lay);
	/*
	 * If the header of a store on a disk does not say where its tables are, this follows from
	 * the number of zones. Store the place now: another process may make the store smaller, but
	 * the tables stay where they are.
	 */
	if (e->p.log_zones && !e->p.table_off) {
		e->p.table_off = e->lay.live_off;
		e->p.table_zones = e->p.nr_zones;
		e->p.data_off = e->lay.data_off;
	}
	e->die_of_zone = calloc(emu_room(e), sizeof(*e->die_of_zone));
	if (!e->die_of_zone)
		return zns_fail(err, -ENOMEM, "out of memory");
	emu_map_build(&e->p, e->die_of_zone);
	emu_io_open(e, path);
	*g = (struct zns_geometry){
		.nr_zones = e->p.nr_zones,
		.block_size = e->p.block_size,
		.zone_size = zns_max(e->p.zone_size, e->p.log_capacity),
		.zone_capacity = e->p.zone_capacity,
		.max_open = e->p.max_open,
		.max_active = e->p.max_active,
		.max_io_bytes = EMU_MAX_IO,
		.mem_align = zns_max(e->dio_mem, 512u),
		.log_zones = e->p.log_zones,
		.log_block = e->p.log_block,
	};
	ret = attach(e, served, err);
	if (!ret && e->p.log_zones && !e->fd_rdonly &&
	    emu_load(&e->head->nr_zones) != e->p.nr_zones)
		emu_store(&e->head->nr_zones, e->p.nr_zones);
	if (!ret && e->model && !e->fd_rdonly)
		ret = skip_ahead(e, err);
	return ret ? ret : emu_control_open(e, err);
}

static void emu_close(struct zns_dev *d)
{
	struct emu *e = emu_of(d);

	if (e->map && e->clock)
		emu_timing_catch_up(e);
	if (e->map)
		munmap(e->map, e->map_len);
	if (e->dfd >= 0)
		close(e->dfd);
	if (e->claim_fd >= 0)
		close(e->claim_fd);
	if (e->fd >= 0)
		close(e->fd); /* closing the descriptor releases all locks */
	for (unsigned i = 0; i < EMU_STRIPES; i++)
		pthread_mutex_destroy(&e->stripe[i]);
	pthread_mutex_destroy(&e->count_mutex);
	pthread_mutex_destroy(&e->durable_mutex);
	pthread_mutex_destroy(&e->model_mutex);
	emu_control_close(e);
	free(e->die_of_zone);
	free(e->taken);
	free(e);
}

int emu_refuse_foreign(const struct zns_dev *dev, struct zns_err *err)
{
	return zns_fail(err, -EMEDIUMTYPE,
			"%s is not an emulated device: this is for emulated devices only",
			dev->path);
}

#define SHARED_OPS                                                                        \
	.report = emu_report, .write = emu_write, .append = emu_append, .read = emu_read, \
	.reset = emu_reset, .open_zone = emu_open_zone, .close_zone = emu_close_zone,     \
	.finish = emu_finish, .flush = emu_flush, .write_durable = emu_write_durable,     \
	.flush_zones = emu_flush_zones, .close = emu_close, .scrub = emu_scrub

const struct zns_dev_ops emu_ops = {
	.name = "emu",
	SHARED_OPS,
	.race = emu_race,
	.now_ns = emu_now_ns,
};

const struct zns_dev_ops file_ops = {
	.name = "file",
	SHARED_OPS,
	.offer = file_offer,
	.take = file_take,
	.allocate = file_allocate,
	.give_back = file_give_back,
	.follow = emu_follow,
};

int emu_open(const char *spec, unsigned flags, struct zns_dev **out, struct zns_err *err)
{
	bool file = zns_spec_on_disk(spec);
	const char *path = zns_spec_path(spec);
	struct emu *e;
	int ret;

	if (!*path)
		return zns_fail(err, -EINVAL, "\"%s\" names no file: give %sPATH", spec, spec);
	e = calloc(1, sizeof(*e));
	if (!e)
		return zns_fail(err, -ENOMEM, "out of memory");
	e->dev.ops = file ? &file_ops : &emu_ops;
	memcpy(e->dev.path, spec, strlen(spec) + 1); /* zns_dev_open has checked the length */
	e->fd = e->dfd = e->claim_fd = -1;
	e->rdonly = flags & ZNS_DEV_RDONLY;
	for (unsigned i = 0; i < EMU_STRIPES; i++)
		pthread_mutex_init(&e->stripe[i], NULL);
	pthread_mutex_init(&e->count_mutex, NULL);
	pthread_mutex_init(&e->durable_mutex, NULL);
	pthread_mutex_init(&e->model_mutex, NULL);

	ret = open_file(e, path, flags & ZNS_DEV_CLAIM, err);
	if (!ret)
		ret = emu_lock_init(e->fd, !e->fd_rdonly, err);
	if (!ret) {
		ret = emu_presence_share(e->fd, err);
		if (!ret)
			ret = setup(e, path, flags & ZNS_DEV_SERVED, err);
		emu_unlock_init(e->fd);
	}
	if (ret) {
		emu_close(&e->dev);
		return ret;
	}
	*out = &e->dev;
	return 0;
}

int zns_emu_info(const struct zns_dev *dev, struct zns_emu_params *p, uint8_t uuid[ZNS_UUID_LEN])
{
	const struct emu *e = emu_of(dev);

	if (dev->ops != &emu_ops && dev->ops != &file_ops)
		return -EMEDIUMTYPE;
	if (p)
		*p = e->p;
	if (uuid)
		memcpy(uuid, e->uuid, ZNS_UUID_LEN);
	return 0;
}

int zns_emu_zone_map(const struct zns_dev *dev, uint32_t *die_of_zone, struct zns_err *err)
{
	const struct emu *e = emu_of(dev);

	if (dev->ops != &emu_ops && dev->ops != &file_ops)
		return zns_fail(err, -EMEDIUMTYPE,
				"%s is not an emulated device: its zone map is not known",
				dev->path);
	memcpy(die_of_zone, e->die_of_zone, e->p.nr_zones * sizeof(*die_of_zone));
	return 0;
}
