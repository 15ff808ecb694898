/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef UBLK_ABI_H
#define UBLK_ABI_H
/*
 * What a ublk server and the kernel say to each other, as far as it is needed here. Written down
 * because the headers of Debian 12 are older than zoned ublk devices; the kernel's
 * Documentation/block/ublk.rst explains it.
 */
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

/* In dev_info.flags */
#define UBLK_F_CMD_IOCTL_ENCODE (UINT64_C(1) << 6)
/* data by pread and pwrite on the character device */
#define UBLK_F_USER_COPY (UINT64_C(1) << 7)
#define UBLK_F_ZONED (UINT64_C(1) << 8)

struct ublk_ctrl_cmd {
	uint32_t dev_id;
	uint16_t queue_id; /* -1: not of a queue */
	uint16_t len;
	uint64_t addr;
	uint64_t value;
	uint16_t dev_path_len;
	uint16_t pad;
	uint32_t reserved;
};

struct ublk_dev_info {
	uint16_t nr_hw_queues;
	uint16_t queue_depth;
	uint16_t state;
	uint16_t pad0;
	uint32_t max_io_buf_bytes;
	uint32_t dev_id;
	int32_t ublksrv_pid;
	uint32_t pad1;
	uint64_t flags;
	uint64_t ublksrv_flags;
	uint32_t owner_uid;
	uint32_t owner_gid;
	uint64_t reserved[2];
};

struct ublk_io_desc {
	uint32_t op_flags; /* operation: bits 0 to 7 */
	uint32_t nr_sectors; /* or zones, of a report */
	uint64_t start_sector;
	uint64_t addr;
};

struct ublk_io_cmd {
	uint16_t q_id;
	uint16_t tag;
	int32_t result;
	uint64_t lba; /* of a zone append, in sectors */
};

enum ublk_op {
	UBLK_OP_READ = 0,
	UBLK_OP_WRITE = 1,
	UBLK_OP_FLUSH = 2,
	UBLK_OP_ZONE_OPEN = 10,
	UBLK_OP_ZONE_CLOSE = 11,
	UBLK_OP_ZONE_FINISH = 12,
	UBLK_OP_ZONE_APPEND = 13,
	UBLK_OP_ZONE_RESET_ALL = 14,
	UBLK_OP_ZONE_RESET = 15,
	UBLK_OP_REPORT_ZONES = 18,
};

#define UBLK_ATTR_VOLATILE_CACHE (1u << 2)

struct ublk_param_basic {
	uint32_t attrs;
	uint8_t logical_bs_shift;
	uint8_t physical_bs_shift;
	uint8_t io_opt_shift;
	uint8_t io_min_shift;
	uint32_t max_sectors;
	uint32_t chunk_sectors;
	uint64_t dev_sectors;
	uint64_t virt_boundary_mask;
};

struct ublk_param_zoned {
	uint32_t max_open_zones;
	uint32_t max_active_zones;
	uint32_t max_zone_append_sectors;
	uint8_t reserved[20];
};

#define UBLK_PARAM_BASIC (1u << 0)
#define UBLK_PARAM_ZONED (1u << 3)

struct ublk_params {
	uint32_t len;
	uint32_t types;
	struct ublk_param_basic basic;
	uint32_t discard[5];
	uint32_t devt[4];
	struct ublk_param_zoned zoned;
};

#define UBLK_U_CMD_ADD_DEV _IOWR('u', 0x04, struct ublk_ctrl_cmd)
#define UBLK_U_CMD_DEL_DEV _IOWR('u', 0x05, struct ublk_ctrl_cmd)
#define UBLK_U_CMD_START_DEV _IOWR('u', 0x06, struct ublk_ctrl_cmd)
#define UBLK_U_CMD_STOP_DEV _IOWR('u', 0x07, struct ublk_ctrl_cmd)
#define UBLK_U_CMD_SET_PARAMS _IOWR('u', 0x08, struct ublk_ctrl_cmd)
#define UBLK_U_IO_FETCH_REQ _IOWR('u', 0x20, struct ublk_io_cmd)
#define UBLK_U_IO_COMMIT_AND_FETCH_REQ _IOWR('u', 0x21, struct ublk_io_cmd)

/* Where the data of a request are in the character device. */
#define UBLK_IO_BUF_OFFSET 0x80000000
#define UBLK_TAG_SHIFT 25

#endif
