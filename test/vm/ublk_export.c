/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * ublk_export DEV      the zoned device DEV (emu:PATH) as a block device of the kernel, /dev/ublkbN
 *
 * Prints the block device's name when it is there, ends on SIGTERM or SIGINT. Requests are served
 * one after the other through the dev vtable: enough to hold the kernel's zoned block layer and our
 * block backend against the emulator, and slow. Wants Linux 6.12 or later (user copy, zoned).
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <linux/blkzoned.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "ublk_abi.h"
#include "zns/dev.h"
#include "zns/util.h"

#define DEPTH 16
#define MAX_IO KIB(256)
#define SECTOR 512u

static struct zns_dev *dev;
static int data_fd = -1; /* /dev/ublkcN */
static void *buffer;

/* ---- requests
 * --------------------------------------------------------------------------------------------------
 */

static uint32_t zone_at(uint64_t sector)
{
	return sector * SECTOR / dev->geo.zone_size;
}

static uint64_t offset_at(uint64_t sector)
{
	return sector * SECTOR % dev->geo.zone_size;
}

static off_t copy_pos(unsigned tag)
{
	return UBLK_IO_BUF_OFFSET + ((off_t)tag << UBLK_TAG_SHIFT);
}

static int from_kernel(unsigned tag, size_t len)
{
	return pread(data_fd, buffer, len, copy_pos(tag)) == (ssize_t)len ? 0 : -EIO;
}

static int to_kernel(unsigned tag, size_t len)
{
	return pwrite(data_fd, buffer, len, copy_pos(tag)) == (ssize_t)len ? 0 : -EIO;
}

static uint8_t condition(const struct zns_zone *z)
{
	switch (z->state) {
	case ZNS_ZONE_IMP_OPEN:
		return BLK_ZONE_COND_IMP_OPEN;
	case ZNS_ZONE_EXP_OPEN:
		return BLK_ZONE_COND_EXP_OPEN;
	case ZNS_ZONE_CLOSED:
		return BLK_ZONE_COND_CLOSED;
	case ZNS_ZONE_FULL:
		return BLK_ZONE_COND_FULL;
	case ZNS_ZONE_READ_ONLY:
		return BLK_ZONE_COND_READONLY;
	case ZNS_ZONE_OFFLINE:
		return BLK_ZONE_COND_OFFLINE;
	default:
		return BLK_ZONE_COND_EMPTY;
	}
}

/* Bytes of the report, or -errno. A zone of length 0 ends it. */
static int report(unsigned tag, uint64_t sector, uint32_t nr)
{
	uint32_t first = zone_at(sector), room = MAX_IO / sizeof(struct blk_zone);
	cleanup_free struct zns_zone *z = NULL;
	struct blk_zone *out = buffer;
	struct zns_err err = ZNS_ERR_INIT;
	uint32_t got;
	int rc;

	nr = zns_min(nr, room);
	got = first < dev->geo.nr_zones ? zns_min(nr, dev->geo.nr_zones - first) : 0;
	z = calloc(nr, sizeof(*z));
	if (!z)
		return -ENOMEM;
	rc = got ? zns_dev_report(dev, first, got, z, &err) : 0;
	if (rc)
		return rc;
	memset(out, 0, nr * sizeof(*out));
	for (uint32_t i = 0; i < got; i++) {
		out[i].start = z[i].index * (dev->geo.zone_size / SECTOR);
		out[i].len = dev->geo.zone_size / SECTOR;
		out[i].capacity = z[i].capacity / SECTOR;
		/* What a drive says of a full zone, too: behind its end. */
		out[i].wp = out[i].start +
			    (z[i].state == ZNS_ZONE_FULL ? out[i].len : z[i].wp / SECTOR);
		out[i].type = BLK_ZONE_TYPE_SEQWRITE_REQ;
		out[i].cond = condition(&z[i]);
	}
	rc = to_kernel(tag, nr * sizeof(*out));
	return rc ? rc : (int)(nr * sizeof(*out));
}

static int reset_all(struct zns_err *err)
{
	uint32_t nr = dev->geo.nr_zones;
	cleanup_free uint32_t *zones = calloc(nr, sizeof(*zones));

	if (!zones)
		return -ENOMEM;
	for (uint32_t i = 0; i < nr; i++)
		zones[i] = i;
	return zns_dev_reset(dev, zones, nr, err);
}

/* What the kernel gets back: bytes, 0, or -errno. For an append *lba is where it went. */
static int serve(unsigned tag, const struct ublk_io_desc *io, uint64_t *lba)
{
	uint64_t sector = io->start_sector, off = offset_at(sector);
	uint32_t zone = zone_at(sector);
	size_t len = (size_t)io->nr_sectors * SECTOR;
	struct zns_err err = ZNS_ERR_INIT;
	int rc;

	switch (io->op_flags & 0xff) {
	case UBLK_OP_READ:
		/* The kernel may read a zone beyond its write pointer; a drive gives something. */
		rc = zns_dev_read(dev, zone, off, buffer, len, &err);
		if (rc == -ENODATA) {
			memset(buffer, 0, len);
			rc = 0;
		}
		if (!rc)
			rc = to_kernel(tag, len);
		return rc ? rc : (int)len;
	case UBLK_OP_WRITE:
		rc = from_kernel(tag, len);
		if (!rc)
			rc = zns_dev_write(dev, zone, off, buffer, len, &err);
		return rc ? rc : (int)len;
	case UBLK_OP_ZONE_APPEND:
		rc = from_kernel(tag, len);
		if (!rc)
			rc = zns_dev_append(dev, zone, buffer, len, &off, &err);
		*lba = (zone * dev->geo.zone_size + off) / SECTOR;
		return rc ? rc : (int)len;
	case UBLK_OP_FLUSH:
		return zns_dev_flush(dev, &err);
	case UBLK_OP_ZONE_RESET:
		return zns_dev_reset(dev, &zone, 1, &err);
	case UBLK_OP_ZONE_RESET_ALL:
		return reset_all(&err);
	case UBLK_OP_ZONE_OPEN:
		return zns_dev_open_zone(dev, zone, &err);
	case UBLK_OP_ZONE_CLOSE:
		return zns_dev_close_zone(dev, zone, &err);
	case UBLK_OP_ZONE_FINISH:
		return zns_dev_finish(dev, zone, &err);
	case UBLK_OP_REPORT_ZONES:
		return report(tag, sector, io->nr_sectors);
	default:
		return -EOPNOTSUPP;
	}
}

/* ---- the queue
 * -------------------------------------------------------------------------------------------------
 */

static void fetch(struct io_uring *ring, unsigned tag, unsigned op, int result, uint64_t lba)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
	const struct ublk_io_cmd cmd = { .tag = tag, .result = result, .lba = lba };

	if (!sqe) /* cannot be: each tag has one */
		abort();
	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = data_fd;
	sqe->cmd_op = op;
	sqe->user_data = tag;
	memcpy(sqe->cmd, &cmd, sizeof(cmd));
}

static void *queue_thread(void *arg)
{
	const struct ublk_io_desc *desc = arg;
	struct io_uring_cqe *cqe;
	struct io_uring ring;
	unsigned alive = DEPTH;

	if (io_uring_queue_init(DEPTH, &ring, 0)) {
		perror("ublk_export: io_uring");
		exit(1);
	}
	for (unsigned tag = 0; tag < DEPTH; tag++)
		fetch(&ring, tag, UBLK_U_IO_FETCH_REQ, 0, 0);
	while (alive) {
		uint64_t lba = 0;
		unsigned tag;
		int res;

		if (io_uring_submit_and_wait(&ring, 1) < 0 || io_uring_peek_cqe(&ring, &cqe))
			continue;
		tag = cqe->user_data;
		res = cqe->res;
		io_uring_cqe_seen(&ring, cqe);
		if (res) { /* the device is going away */
			alive--;
			continue;
		}
		res = serve(tag, &desc[tag], &lba);
		fetch(&ring, tag, UBLK_U_IO_COMMIT_AND_FETCH_REQ, res, lba);
	}
	io_uring_queue_exit(&ring);
	return NULL;
}

/* ---- the device
 * ------------------------------------------------------------------------------------------------
 */

static struct io_uring control_ring;
static int control_fd = -1;

static int control(unsigned op, uint32_t id, void *data, size_t len, uint64_t value)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&control_ring);
	struct ublk_ctrl_cmd cmd = {
		.dev_id = id, .queue_id = -1, .addr = (uintptr_t)data, .len = len, .value = value
	};
	struct io_uring_cqe *cqe;
	int rc;

	if (!sqe)
		return -EBUSY;
	memset(sqe, 0, 2 * sizeof(*sqe));
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = control_fd;
	sqe->cmd_op = op;
	memcpy(sqe->cmd, &cmd, sizeof(cmd));
	rc = io_uring_submit_and_wait(&control_ring, 1);
	if (rc >= 0)
		rc = io_uring_wait_cqe(&control_ring, &cqe);
	if (rc < 0)
		return rc;
	rc = cqe->res;
	io_uring_cqe_seen(&control_ring, cqe);
	return rc;
}

static int set_params(uint32_t id)
{
	unsigned shift = __builtin_ctz(dev->geo.block_size);
	struct ublk_params p = {
		.len = sizeof(p),
		.types = UBLK_PARAM_BASIC | UBLK_PARAM_ZONED,
		.basic = {
			.attrs = UBLK_ATTR_VOLATILE_CACHE,
			.logical_bs_shift = shift, .physical_bs_shift = shift, .io_opt_shift = shift, .io_min_shift = shift,
			.max_sectors = MAX_IO / SECTOR,
			.chunk_sectors = dev->geo.zone_size / SECTOR,
			.dev_sectors = dev->geo.zone_size / SECTOR * dev->geo.nr_zones,
		},
		.zoned = {
			.max_open_zones = dev->geo.max_open,
			.max_active_zones = dev->geo.max_active,
			.max_zone_append_sectors = MAX_IO / SECTOR,
		},
	};

	return control(UBLK_U_CMD_SET_PARAMS, id, &p, sizeof(p), 0);
}

static int fail(const char *what, int rc)
{
	fprintf(stderr, "ublk_export: %s: %s\n", what, strerror(-rc));
	return 1;
}

static int open_control(void)
{
	struct io_uring_params p = { .flags = IORING_SETUP_SQE128 };

	control_fd = open("/dev/ublk-control", O_RDWR | O_CLOEXEC);
	if (control_fd < 0)
		return -errno;
	return io_uring_queue_init_params(4, &control_ring, &p);
}

/* Serves until a signal comes; the device is added, and deleted by the caller. */
static int run(uint32_t id)
{
	const size_t desc_len = zns_align_up(DEPTH * sizeof(struct ublk_io_desc), 4096);
	const struct ublk_io_desc *desc;
	pthread_t thread;
	char node[32];
	sigset_t set;
	int rc, sig;

	rc = set_params(id);
	if (rc)
		return fail("the kernel takes no zoned ublk device (Linux 6.12 does)", rc);
	snprintf(node, sizeof(node), "/dev/ublkc%u", id);
	for (int i = 0; i < 100 && (data_fd = open(node, O_RDWR | O_CLOEXEC)) < 0; i++)
		usleep(20000);
	if (data_fd < 0)
		return fail(node, -errno);
	desc = mmap(NULL, desc_len, PROT_READ, MAP_SHARED | MAP_POPULATE, data_fd, 0);
	if (desc == MAP_FAILED)
		return fail("mmap", -errno);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	if (pthread_create(&thread, NULL, queue_thread, (void *)desc))
		return fail("thread", -EAGAIN);
	rc = control(UBLK_U_CMD_START_DEV, id, NULL, 0, getpid());
	if (rc)
		return fail("start", rc);
	printf("/dev/ublkb%u\n", id);
	fflush(stdout);
	sigwait(&set, &sig);
	control(UBLK_U_CMD_STOP_DEV, id, NULL, 0, 0);
	pthread_join(thread, NULL);
	munmap((void *)desc, desc_len); /* deleting the device waits for this reference, too */
	return 0;
}

int main(int argc, char **argv)
{
	struct ublk_dev_info info = {
		.nr_hw_queues = 1,
		.queue_depth = DEPTH,
		.max_io_buf_bytes = MAX_IO,
		.dev_id = UINT32_MAX,
		.ublksrv_pid = getpid(),
		.flags = UBLK_F_CMD_IOCTL_ENCODE | UBLK_F_USER_COPY | UBLK_F_ZONED,
	};
	struct zns_err err = ZNS_ERR_INIT;
	int rc;

	if (argc != 2) {
		fprintf(stderr, "usage: ublk_export DEV\n");
		return 2;
	}
	if (zns_dev_open(argv[1], 0, &dev, &err)) {
		fprintf(stderr, "ublk_export: %s\n", err.msg);
		return 1;
	}
	buffer = aligned_alloc(4096, MAX_IO);
	rc = open_control();
	if (rc || !buffer)
		return fail("/dev/ublk-control", rc ? rc : -ENOMEM);
	rc = control(UBLK_U_CMD_ADD_DEV, info.dev_id, &info, sizeof(info), 0);
	if (rc)
		return fail("the kernel adds no zoned ublk device (Linux 6.12 does)", rc);
	rc = run(info.dev_id);
	if (data_fd >= 0)
		close(data_fd);
	control(UBLK_U_CMD_DEL_DEV, info.dev_id, NULL, 0, 0);
	zns_dev_close(dev);
	return rc;
}
