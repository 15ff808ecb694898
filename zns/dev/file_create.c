/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What is decided before a store on an ordinary disk is created: its parameters, and whether the
 * file system is suitable. */
#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/ioctl.h>
#include <sys/vfs.h>

#include "file_priv.h"

#ifndef CIFS_SUPER_MAGIC
#define CIFS_SUPER_MAGIC 0xff534d42
#endif
#ifndef SMB2_SUPER_MAGIC
#define SMB2_SUPER_MAGIC 0xfe534d42
#endif

#define ZONES 65536u /* desired number of zones; ZONE_MIN and ZONE_MAX limit their size */
#define ZONE_MIN MIB(1)
#define ZONE_MAX MIB(64)
#define SIZE_MIN MIB(64)
/* The log gets one byte for each 256 bytes of the store. As a record takes a sector or two, there
 * is room for one checkpoint per 256 KiB of the store. Three zones: for a generation, for the next
 * one, and one in reserve if a zone fails. */
#define LOG_ZONES 3u
#define LOG_PART 256u
#define LOG_BLOCK 512u
#define LOG_MIN MIB(4)
#define LOG_MAX MIB(256)

/*
 * Chooses the size of zones. Each stream of a dump wastes half a zone on average, since a zone
 * belongs to one checkpoint: that is a reason for small zones. But a broker looks at all zones, and
 * a manifest must fit into one. test/sim/churn.py has the figures for other sizes.
 */
static uint64_t zone_size_for(uint64_t size)
{
	uint64_t zone = ZONE_MIN;

	while (zone < ZONE_MAX && zone * ZONES < size)
		zone *= 2;
	return zone;
}

/* The tables have room for four times the zones, so that a store can grow that far without moving
 * them. The minimum lets a small store grow to some GiB. */
#define ROOM_TIMES 4u
#define ROOM_MIN 8192u /* in zones; tables of about this length fit into the first MiB */

static void leave_room(struct zns_emu_params *p)
{
	struct emu_layout lay;
	uint64_t least = zns_min((uint64_t)p->nr_zones * ROOM_TIMES, (uint64_t)EMU_MAX_ZONES);

	p->table_off = EMU_LIVE_OFF;
	p->table_zones = (uint32_t)zns_max(least, (uint64_t)ROOM_MIN);
	emu_layout_of(p, &lay);
	p->data_off = zns_align_up(lay.dur_off + lay.dur_len, EMU_DATA_ALIGN);
}

int file_check_size(uint64_t size, struct zns_err *err)
{
	char text[32];

	return size >= SIZE_MIN ?
		       0 :
		       zns_fail(err, -EINVAL, "a store of %s is too small: 64 MiB at least",
				zns_format_size(size, text, sizeof(text)));
}

int zns_file_params(uint64_t size, struct zns_emu_params *p, struct zns_err *err)
{
	struct emu_layout lay;
	uint64_t zone, log, nr;
	char text[32];

	if (file_check_size(size, err))
		return -EINVAL;
	zone = zone_size_for(size);
	log = zns_align_down(zns_max(LOG_MIN, zns_min(size / LOG_PART, LOG_MAX)), MIB(1));
	log = zns_max(log, zone);
	*p = (struct zns_emu_params){
		.block_size = 4096,
		.zone_size = zone,
		.zone_capacity = zone,
		.channels = 1,
		.ways = 1,
		.map = ZNS_EMU_MAP_SHARED,
		.prealloc = ZNS_EMU_SPARSE,
		/* required by the header's format, but not used: the measured rate is in the
		 * profile */
		.die_write_mibps = 1,
		.die_read_mibps = 1,
		.channel_mibps = 1,
		.log_zones = LOG_ZONES,
		.log_capacity = log,
		.log_block = LOG_BLOCK,
	};
	nr = (size - LOG_ZONES * log) / zone + LOG_ZONES;
	if (nr > EMU_MAX_ZONES)
		return zns_fail(err, -EFBIG, "a store of %s is too large: 64 TiB at most",
				zns_format_size(size, text, sizeof(text)));
	do {
		p->nr_zones = (uint32_t)nr--;
		leave_room(p);
		emu_layout_of(p, &lay);
	} while (lay.total > size);
	return 0;
}

int file_check_system(int fd, const char *path, bool is_volatile, struct zns_err *err)
{
	struct statfs fs;

	if (fstatfs(fd, &fs))
		return zns_fail_sys(err, -errno, "cannot tell the file system of %s", path);
	switch ((uint32_t)fs.f_type) {
	case TMPFS_MAGIC:
	case RAMFS_MAGIC:
		return is_volatile ?
			       0 :
			       zns_fail(
				       err, -EINVAL,
				       "%s is on a tmpfs, in memory, and gone after a reboot: name "
				       "a file on a disk, or say --volatile",
				       path);
	case NFS_SUPER_MAGIC:
	case CIFS_SUPER_MAGIC:
	case SMB2_SUPER_MAGIC:
	case SMB_SUPER_MAGIC:
		return zns_fail(
			err, -EOPNOTSUPP,
			"%s is on a network file system, which shares no memory between the programs that have "
			"the store open: name a file on a disk of this machine",
			path);
	default:
		return 0;
	}
}

void file_no_copy_on_write(int fd)
{
	struct statfs fs;
	int flags;

	if (fstatfs(fd, &fs) || (uint32_t)fs.f_type != BTRFS_SUPER_MAGIC ||
	    ioctl(fd, FS_IOC_GETFLAGS, &flags))
		return;
	flags |= FS_NOCOW_FL;
	ioctl(fd, FS_IOC_SETFLAGS, &flags);
}
