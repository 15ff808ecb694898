/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_DEV_NVME_PRIV_H
#define ZNS_DEV_NVME_PRIV_H
/*
 * NVMe passthrough (/dev/ngXnY): commands go to the drive unchanged and bypass the block layer, its
 * schedulers and its cgroup limits. It also works on kernels without zoned block devices.
 *
 * Data commands go through io_uring if the kernel and the administrator allow it, otherwise through
 * ioctl. Everything else is done by libnvme.
 */
#include "control.h"
#include "hw_priv.h"

struct nvme_ring;

struct nvme_ns {
	struct hw hw;
	int fd;
	uint32_t nsid;
	unsigned lba_shift;
	uint64_t zone_lbas;
	uint32_t max_report; /* size of the buffer for a zone report in bytes */
	bool uring;
	pthread_mutex_t lock; /* protects the list of free rings */
	struct nvme_ring *idle;
};

static inline struct nvme_ns *nvme_of(struct hw *h)
{
	return (struct nvme_ns *)h;
}

struct nvme_command {
	uint8_t opcode;
	uint32_t cdw10, cdw11, cdw12, cdw13;
	void *data;
	uint32_t len;
	uint64_t result;
};

/* ---- nvme_command.c ---- */
/* n->fd and n->nsid must have been set. Finds out whether io_uring works with this device. */
void nvme_transport_init(struct nvme_ns *n);
void nvme_transport_fini(struct nvme_ns *n);
int nvme_run(struct nvme_ns *n, struct nvme_command *c, struct zns_err *why);
/* Converts libnvme's result: returns 0, or the errno for struct hw_raw with the text of the drive
 * or the kernel. */
int nvme_outcome(int status, struct zns_err *why);

/* ---- nvme_zone.c ---- */
extern const struct hw_raw nvme_raw;

#endif
