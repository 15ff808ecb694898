/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_DEV_NVME_PRIV_H
#define ZNS_DEV_NVME_PRIV_H
/*
 * NVMe passthrough (/dev/ngXnY): commands go to the drive as they are, past the block layer, its
 * schedulers and its cgroup limits. Works, too, on kernels without zoned block devices.
 *
 * Data commands travel through io_uring where the kernel and the administrator allow it, else
 * through ioctl. What else there is, libnvme does.
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
	uint32_t max_report; /* bytes of one zone report */
	bool uring;
	pthread_mutex_t lock; /* of the rings that nobody uses */
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

/* nvme_command.c */
/* n->fd and n->nsid are set; tries io_uring on this device */
void nvme_transport_init(struct nvme_ns *n);
void nvme_transport_fini(struct nvme_ns *n);
int nvme_run(struct nvme_ns *n, struct nvme_command *c, struct zns_err *why);
/* From what libnvme returns: 0, or the errno that struct hw_raw wants, with the drive's or the
 * kernel's words. */
int nvme_outcome(int status, struct zns_err *why);

/* nvme_zone.c */
extern const struct hw_raw nvme_raw;

#endif
