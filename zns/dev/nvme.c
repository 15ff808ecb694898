/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Opens an NVMe zoned namespace for passthrough. */
#include <endian.h>
#include <fcntl.h>
#include <libnvme.h>
#include <stdlib.h>
#include <string.h>

#include "backends.h"
#include "nvme_priv.h"

/* unit of MDTS and ZASL: the controller's smallest page size, which is at least 4 KiB */
#define MPSMIN_SHIFT 12
#define SEGMENTS 127u /* limit for one command if the block layer does not report one */
#define NO_LIMIT UINT32_MAX

static void nvme_close(struct zns_dev *d)
{
	struct nvme_ns *n = nvme_of((struct hw *)d);

	nvme_transport_fini(n);
	pthread_mutex_destroy(&n->lock);
	if (n->fd >= 0)
		close(n->fd);
	hw_unclaim(&n->hw);
	hw_fini(&n->hw);
	free(n);
}

static int nvme_command_fd(struct zns_dev *d)
{
	return nvme_of((struct hw *)d)->fd;
}

static const struct zns_dev_ops nvme_ops = {
	.name = "nvme",
	HW_OPS,
	.close = nvme_close,
	.nvme_fd = nvme_command_fd,
};

struct identity {
	struct nvme_id_ns ns;
	struct nvme_id_ctrl ctrl;
	struct nvme_zns_id_ns zns;
	struct nvme_zns_id_ctrl zctrl;
	struct nvme_zns_changed_zone_log changed;
};

static int ask(struct nvme_ns *n, struct identity *id, const char *spec, struct zns_err *err)
{
	struct zns_err why = ZNS_ERR_INIT;
	int ret;

	if (nvme_get_nsid(n->fd, &n->nsid))
		return zns_fail(err, -EMEDIUMTYPE, "%s is not an NVMe namespace: give /dev/ngXnY",
				spec);
	ret = nvme_identify_ns(n->fd, n->nsid, &id->ns);
	if (ret < 0 && (errno == EACCES || errno == EPERM))
		return zns_fail(
			err, -EACCES,
			"%s: this kernel lets only root send commands to a drive: run as root, or use the block device",
			spec);
	if (nvme_outcome(ret, &why) || nvme_outcome(nvme_identify_ctrl(n->fd, &id->ctrl), &why))
		return zns_fail(err, -EIO, "%s does not identify itself: %s", spec, why.msg);
	if (nvme_outcome(nvme_zns_identify_ns(n->fd, n->nsid, &id->zns), &why) ||
	    nvme_outcome(nvme_zns_identify_ctrl(n->fd, &id->zctrl), &why))
		return zns_fail(
			err, -EMEDIUMTYPE,
			"%s is not a zoned namespace (%s): give one whose command set is ZNS, or emu:PATH",
			spec, why.msg);
	/*
	 * Reads, and so clears, the list of zones that changed by themselves. We ignore its
	 * contents, since nothing is cached yet. But the drive reports further changes only after
	 * the list was read. Some drives have no such list, so errors are ignored.
	 */
	nvme_get_log_zns_changed_zones(n->fd, n->nsid, false, &id->changed);
	return 0;
}

/* Converts a limit of 2^exp pages to bytes; 0: no limit */
static uint64_t transfer_bytes(uint8_t exp)
{
	return exp ? UINT64_C(1) << zns_min(exp + MPSMIN_SHIFT, 40) : UINT64_MAX;
}

/* The kernel's limit for one command. It is only visible at the block device of the same name, if
 * there is one. */
static uint64_t kernel_bytes(const char *name)
{
	uint64_t max = (uint64_t)SEGMENTS * HW_PAGE, v;
	char block[72];

	snprintf(block, sizeof(block), "nvme%s", name + strlen("ng"));
	if (!hw_queue_number(block, "max_segments", &v) && v)
		max = v * HW_PAGE;
	if (!hw_queue_number(block, "max_hw_sectors_kb", &v) && v)
		max = zns_min(max, KIB(v));
	return max;
}

static int geometry(struct nvme_ns *n, const struct identity *id, const char *spec,
		    const char *name, struct zns_err *err)
{
	uint8_t f = (id->ns.flbas & 0xf) | (id->ns.flbas >> 5 & 3) << 4;
	const struct nvme_lbaf *lbaf = &id->ns.lbaf[f];
	uint64_t nsze = le64toh(id->ns.nsze), zones, max;
	struct zns_geometry *g = &n->hw.dev.geo;

	n->zone_lbas = le64toh(id->zns.lbafe[f].zsze);
	n->lba_shift = lbaf->ds;
	if (lbaf->ms || id->ns.dps & 7)
		return zns_fail(
			err, -EMEDIUMTYPE,
			"%s is formatted with metadata or protection information: format it without (nvme format)",
			spec);
	/* Offsets are computed in bytes, so check that the drive's sizes do not overflow them. */
	if (lbaf->ds < 9 || lbaf->ds > 16 || !n->zone_lbas || n->zone_lbas > nsze ||
	    nsze > (uint64_t)INT64_MAX >> lbaf->ds)
		return zns_fail(
			err, -EMEDIUMTYPE,
			"%s: blocks of 2^%u bytes in zones of %llu blocks are not supported", spec,
			lbaf->ds, (unsigned long long)n->zone_lbas);
	zones = nsze / n->zone_lbas;
	if (!zones || zones > UINT32_MAX)
		return zns_fail(err, -EMEDIUMTYPE, "%s: %llu zones are not supported", spec,
				(unsigned long long)zones);
	max = zns_min(transfer_bytes(id->ctrl.mdts), kernel_bytes(name));
	n->max_report = zns_min(max, KIB(256));
	max = zns_min(max, transfer_bytes(id->zctrl.zasl));
	*g = (struct zns_geometry){
		.nr_zones = zones,
		.block_size = 1u << lbaf->ds,
		.zone_size = n->zone_lbas << lbaf->ds,
		/* the drive reports both limits minus one */
		.max_open = le32toh(id->zns.mor) == NO_LIMIT ? 0 : le32toh(id->zns.mor) + 1,
		.max_active = le32toh(id->zns.mar) == NO_LIMIT ? 0 : le32toh(id->zns.mar) + 1,
		/* a command has a field of 16 bits for the number of blocks */
		.max_io_bytes = zns_min(hw_transfer_limit(max), 1u << zns_min(lbaf->ds + 16, 30)),
		.mem_align = 4,
	};
	return 0;
}

static int setup(struct nvme_ns *n, const char *spec, const char *name, unsigned flags,
		 struct zns_err *err)
{
	cleanup_free struct identity *id = aligned_alloc(HW_PAGE,
							 zns_align_up(sizeof(*id), HW_PAGE));
	char node[80];
	int ret = 0;

	if (!id)
		return zns_fail(err, -ENOMEM, "out of memory");
	memset(id, 0, sizeof(*id));
	snprintf(node, sizeof(node), "/dev/nvme%s", name + strlen("ng"));
	ret = hw_claim(&n->hw, node, spec, flags, err);
	if (ret)
		return ret;
	n->fd = open(spec, (flags & ZNS_DEV_RDONLY ? O_RDONLY : O_RDWR) | O_CLOEXEC);
	if (n->fd < 0)
		return zns_fail_sys(err, errno == ENXIO ? -ENODEV : -errno, "cannot open %s", spec);
	ret = ask(n, id, spec, err);
	if (!ret)
		ret = geometry(n, id, spec, name, err);
	if (!ret)
		ret = hw_init(&n->hw, &nvme_raw, flags, err);
	if (ret)
		return ret;
	nvme_transport_init(n);
	return hw_typical_capacity(&n->hw, err);
}

int nvme_open_ns(const char *spec, dev_t dev, unsigned flags, struct zns_dev **out,
		 struct zns_err *err)
{
	char name[64], class[32];
	struct nvme_ns *n;
	int ret = hw_kernel_name(dev, false, name, sizeof(name), class, sizeof(class));

	if (ret)
		return zns_fail(err, -ENODEV, "%s: its kind is not known (is /sys mounted?)", spec);
	if (strcmp(class, "nvme-generic") || strncmp(name, "ng", 2))
		return zns_fail(
			err, -EMEDIUMTYPE,
			"%s is not a zoned device: give /dev/nvmeXnY, /dev/ngXnY or emu:PATH",
			spec);
	n = calloc(1, sizeof(*n));
	if (!n)
		return zns_fail(err, -ENOMEM, "out of memory");
	n->hw.dev.ops = &nvme_ops;
	n->fd = n->hw.claim_fd = -1;
	pthread_mutex_init(&n->lock, NULL);
	memcpy(n->hw.dev.path, spec, strlen(spec) + 1);
	ret = setup(n, spec, name, flags, err);
	if (ret) {
		nvme_close(&n->hw.dev);
		return ret;
	}
	*out = &n->hw.dev;
	return 0;
}
