/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Sends a command to the drive: through an io_uring (one for each command in flight), or with an
 * ioctl. */
#include <libnvme.h>
#include <liburing.h>
#include <linux/nvme_ioctl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "nvme_priv.h"

#define READ_TRIES 4
#define STATUS_MASK 0x7ff /* the status code and its type, without flags */

struct nvme_ring {
	struct io_uring ring;
	struct nvme_ring *next;
};

int nvme_outcome(int status, struct zns_err *why)
{
	const char *text;
	int code = -EIO;

	if (!status)
		return 0;
	if (status < 0 && errno == EINTR)
		return zns_fail(why, -EIO,
				"the kernel reset the drive's controller meanwhile (see dmesg)");
	if (status < 0)
		return zns_fail(why, errno == ENOMEM ? -ENOMEM : -EIO, "%s", strerror(errno));
	status &= STATUS_MASK;
	if (status >> 8 == NVME_SCT_CMD_SPECIFIC) {
		switch (status & 0xff) {
		case NVME_SC_ZNS_BOUNDARY_ERROR:
		case NVME_SC_ZNS_FULL:
			code = -ENOSPC;
			break;
		case NVME_SC_ZNS_READ_ONLY:
			code = -EROFS;
			break;
		case NVME_SC_ZNS_OFFLINE:
			code = -ENXIO;
			break;
		case NVME_SC_ZNS_TOO_MANY_ACTIVE:
			code = -EOVERFLOW;
			break;
		case NVME_SC_ZNS_TOO_MANY_OPENS:
			code = -ETOOMANYREFS;
			break;
		}
	}
	if (status == NVME_SC_RESERVATION_CONFLICT)
		code = -EBADE;
	text = nvme_status_to_string(status, false); /* a text of the form "Name: explanation" */
	return zns_fail(why, code, "%.*s (NVMe status 0x%03x)", (int)strcspn(text, ":"), text,
			status);
}

static int run_ioctl(struct nvme_ns *n, struct nvme_command *c)
{
	struct nvme_passthru_cmd64 cmd = {
		.opcode = c->opcode,
		.nsid = n->nsid,
		.addr = (uintptr_t)c->data,
		.data_len = c->len,
		.cdw10 = c->cdw10,
		.cdw11 = c->cdw11,
		.cdw12 = c->cdw12,
		.cdw13 = c->cdw13,
	};
	int status = ioctl(n->fd, NVME_IOCTL_IO64_CMD, &cmd);

	c->result = cmd.result;
	return status;
}

static struct nvme_ring *ring_new(void)
{
	struct io_uring_params p = { .flags = IORING_SETUP_SQE128 | IORING_SETUP_CQE32 };
	struct nvme_ring *r = calloc(1, sizeof(*r));

	if (r && io_uring_queue_init_params(2, &r->ring, &p)) {
		free(r);
		return NULL;
	}
	return r;
}

static struct nvme_ring *ring_get(struct nvme_ns *n)
{
	struct nvme_ring *r;

	pthread_mutex_lock(&n->lock);
	r = n->idle;
	if (r)
		n->idle = r->next;
	pthread_mutex_unlock(&n->lock);
	return r ? r : ring_new();
}

static void ring_put(struct nvme_ns *n, struct nvme_ring *r)
{
	pthread_mutex_lock(&n->lock);
	r->next = n->idle;
	n->idle = r;
	pthread_mutex_unlock(&n->lock);
}

static void ring_free(struct nvme_ring *r)
{
	io_uring_queue_exit(&r->ring);
	free(r);
}

/* Fills in an SQE of 128 bytes, where the command starts at `cmd` and continues into the second
 * half. */
static void fill(struct io_uring_sqe *sqe, const struct nvme_ns *n, const struct nvme_command *c)
{
	const struct nvme_uring_cmd cmd = {
		.opcode = c->opcode,
		.nsid = n->nsid,
		.addr = (uintptr_t)c->data,
		.data_len = c->len,
		.cdw10 = c->cdw10,
		.cdw11 = c->cdw11,
		.cdw12 = c->cdw12,
		.cdw13 = c->cdw13,
	};

	memset(sqe, 0, 2 * sizeof(*sqe));
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = n->fd;
	sqe->cmd_op = NVME_URING_CMD_IO;
	memcpy(sqe->cmd, &cmd, sizeof(cmd));
}

/* Returns what the ioctl returns: the drive's status, or -1 and errno. -2: the command was not
 * sent, so the ioctl must be used. The wait cannot be interrupted, since the drive uses the buffer
 * until the command is complete. */
static int run_ring(struct nvme_ns *n, struct nvme_command *c)
{
	struct nvme_ring *r = ring_get(n);
	struct io_uring_sqe *sqe;
	struct io_uring_cqe *cqe;
	int ret;

	if (!r)
		return -2;
	sqe = io_uring_get_sqe(&r->ring);
	if (!sqe) {
		ring_free(r);
		return -2;
	}
	fill(sqe, n, c);
	do
		ret = io_uring_submit(&r->ring);
	while (ret == -EINTR);
	if (ret != 1) { /* the command was not submitted; closing the ring discards it */
		ring_free(r);
		return -2;
	}
	do
		ret = io_uring_wait_cqe(&r->ring, &cqe);
	while (ret == -EINTR || ret == -EAGAIN);
	if (ret) { /* cannot happen, since only we use the ring */
		errno = -ret;
		return -1;
	}
	c->result = cqe->big_cqe[0];
	ret = cqe->res;
	io_uring_cqe_seen(&r->ring, cqe);
	ring_put(n, r);
	if (ret < 0) {
		errno = -ret;
		ret = -1;
	}
	return ret;
}

int nvme_run(struct nvme_ns *n, struct nvme_command *c, struct zns_err *why)
{
	bool reads = c->opcode == nvme_cmd_read || c->opcode == nvme_zns_cmd_mgmt_recv;
	int status, tries = 0;

	/* EINTR: the kernel has reset the controller. It repeats requests of the block device, but
	 * not passthrough commands. A read can be repeated here, a write cannot, since the drive
	 * may have done it. */
	do {
		status = n->uring ? run_ring(n, c) : -2;
		if (status == -2)
			status = run_ioctl(n, c);
	} while (status == -1 && errno == EINTR && reads && ++tries < READ_TRIES);
	return nvme_outcome(status, why);
}

void nvme_transport_init(struct nvme_ns *n)
{
	struct nvme_command c = { .opcode = nvme_zns_cmd_mgmt_recv, .len = 128 };
	int status;

	if (nvme_wants_ioctl())
		return;
	/* Try the ring with a report of one zone, which changes nothing. Some kernels have io_uring
	 * but not this command for this kind of file. */
	c.data = aligned_alloc(HW_PAGE, HW_PAGE);
	if (!c.data)
		return;
	c.cdw12 = c.len / 4 - 1;
	c.cdw13 = NVME_ZNS_ZRA_REPORT_ZONES | 1u << 16;
	status = run_ring(n, &c);
	n->uring = !status;
	free(c.data);
	if (!n->uring)
		nvme_transport_fini(n);
}

void nvme_transport_fini(struct nvme_ns *n)
{
	struct nvme_ring *r;

	while ((r = n->idle)) {
		n->idle = r->next;
		ring_free(r);
	}
}
