/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* NVMe passthrough: reports, zone management, reads, and Zone Append with a check of the place that
 * the drive returns. */
#include <endian.h>
#include <libnvme.h>
#include <stdlib.h>
#include <string.h>

#include "nvme_priv.h"

typedef unsigned long long ull;

static enum zns_zone_state state_of(uint8_t zs)
{
	switch (zs >> 4) {
	case NVME_ZNS_ZS_IMPL_OPEN:
		return ZNS_ZONE_IMP_OPEN;
	case NVME_ZNS_ZS_EXPL_OPEN:
		return ZNS_ZONE_EXP_OPEN;
	case NVME_ZNS_ZS_CLOSED:
		return ZNS_ZONE_CLOSED;
	case NVME_ZNS_ZS_FULL:
		return ZNS_ZONE_FULL;
	case NVME_ZNS_ZS_READ_ONLY:
		return ZNS_ZONE_READ_ONLY;
	case NVME_ZNS_ZS_OFFLINE:
		return ZNS_ZONE_OFFLINE;
	default:
		return ZNS_ZONE_EMPTY;
	}
}

static void convert(const struct nvme_ns *n, const struct nvme_zns_desc *z, uint32_t index,
		    struct zns_zone *out)
{
	uint64_t start = le64toh(z->zslba), wp = le64toh(z->wp);

	*out = (struct zns_zone){
		.index = index,
		.state = state_of(z->zs),
		.conventional = (z->zt & 0xf) != NVME_ZONE_TYPE_SEQWRITE_REQ,
		.capacity = le64toh(z->zcap) << n->lba_shift,
	};
	if (out->conventional || out->state == ZNS_ZONE_OFFLINE)
		return;
	if (out->state == ZNS_ZONE_FULL || out->state == ZNS_ZONE_READ_ONLY)
		out->wp = out->capacity;
	else if (wp > start)
		out->wp = zns_min((wp - start) << n->lba_shift, out->capacity);
}

static int nvme_report(struct hw *h, uint32_t first, uint32_t nr, struct zns_zone *out,
		       struct zns_err *why)
{
	struct nvme_ns *n = nvme_of(h);
	uint32_t most = (n->max_report - sizeof(struct nvme_zone_report)) /
			sizeof(struct nvme_zns_desc);
	uint32_t len = sizeof(struct nvme_zone_report) +
		       zns_min(nr, most) * sizeof(struct nvme_zns_desc);
	cleanup_free struct nvme_zone_report *rep = aligned_alloc(HW_PAGE,
								  zns_align_up(len, HW_PAGE));

	if (!rep)
		return zns_fail(why, -ENOMEM, "no memory for %u zones", nr);
	for (uint32_t done = 0; done < nr;) {
		uint64_t got;
		int ret;

		memset(rep, 0, len);
		ret = nvme_zns_report_zones(n->fd, n->nsid, (uint64_t)(first + done) * n->zone_lbas,
					    NVME_ZNS_ZRAS_REPORT_ALL, false, true, len, rep,
					    NVME_DEFAULT_IOCTL_TIMEOUT, NULL);
		ret = nvme_outcome(ret, why);
		if (ret)
			return ret == -ENOMEM ? ret : -EIO;
		got = zns_min(le64toh(rep->nr_zones), (uint64_t)zns_min(nr - done, most));
		if (!got)
			return zns_fail(why, -EIO, "%u zones instead of %u from zone %u on", done,
					nr, first);
		for (uint32_t i = 0; i < got; i++, done++) {
			if (le64toh(rep->entries[i].zslba) !=
			    (uint64_t)(first + done) * n->zone_lbas)
				return zns_fail(why, -EIO, "zone %u is reported at LBA %llu",
						first + done, (ull)le64toh(rep->entries[i].zslba));
			convert(n, &rep->entries[i], first + done, &out[done]);
		}
	}
	return 0;
}

/* dword 12 of a write or append: it is complete only when the data are on the medium */
#define FUA (1u << 30)

static int append_with(struct hw *h, uint32_t flags, uint32_t zone, const void *buf, size_t len,
		       uint64_t *off, struct zns_err *why)
{
	struct nvme_ns *n = nvme_of(h);
	uint64_t start = zone * n->zone_lbas;
	struct nvme_command c = {
		.opcode = nvme_zns_cmd_append,
		.cdw10 = (uint32_t)start,
		.cdw11 = start >> 32,
		.cdw12 = ((len >> n->lba_shift) - 1) | flags,
		.data = (void *)buf,
		.len = len,
	};
	int ret = nvme_run(n, &c, why);

	if (ret)
		return ret;
	if (c.result < start || c.result - start >= n->zone_lbas)
		return zns_fail(why, -ESTALE,
				"the drive put the data at LBA %llu, outside the zone",
				(ull)c.result);
	*off = (c.result - start) << n->lba_shift;
	return 0;
}

static int nvme_append_at(struct hw *h, uint32_t zone, const void *buf, size_t len, uint64_t *off,
			  struct zns_err *why)
{
	return append_with(h, 0, zone, buf, len, off, why);
}

/* Writes by Zone Append, which writes at the write pointer. That is @off, unless another process
 * has written to the zone. */
static int write_with(struct hw *h, uint32_t flags, uint32_t zone, uint64_t off, const void *buf,
		      size_t len, struct zns_err *why)
{
	uint64_t at = 0;
	int ret = append_with(h, flags, zone, buf, len, &at, why);

	if (!ret && at != off)
		ret = zns_fail(why, -ESTALE, "the data went to offset %llu", (ull)at);
	return ret;
}

static int nvme_write_zone(struct hw *h, uint32_t zone, uint64_t off, const void *buf, size_t len,
			   struct zns_err *why)
{
	return write_with(h, 0, zone, off, buf, len, why);
}

static int nvme_write_fua(struct hw *h, uint32_t zone, uint64_t off, const void *buf, size_t len,
			  struct zns_err *why)
{
	return write_with(h, FUA, zone, off, buf, len, why);
}

static int nvme_read_zone(struct hw *h, uint32_t zone, uint64_t off, void *buf, size_t len,
			  struct zns_err *why)
{
	struct nvme_ns *n = nvme_of(h);
	uint64_t lba = zone * n->zone_lbas + (off >> n->lba_shift);
	struct nvme_command c = {
		.opcode = nvme_cmd_read,
		.cdw10 = (uint32_t)lba,
		.cdw11 = lba >> 32,
		.cdw12 = (len >> n->lba_shift) - 1,
		.data = buf,
		.len = len,
	};

	return nvme_run(n, &c, why);
}

static int send_one(struct nvme_ns *n, enum nvme_zns_send_action what, uint32_t zone, bool all,
		    struct zns_err *why)
{
	struct nvme_zns_mgmt_send_args args = {
		.args_size = sizeof(args),
		.fd = n->fd,
		.nsid = n->nsid,
		.slba = zone * n->zone_lbas,
		.zsa = what,
		.select_all = all,
		.timeout = NVME_DEFAULT_IOCTL_TIMEOUT,
	};

	return nvme_outcome(nvme_zns_mgmt_send(&args), why);
}

static int nvme_manage(struct hw *h, enum hw_action what, uint32_t first, uint32_t nr,
		       struct zns_err *why)
{
	static const enum nvme_zns_send_action action[] = {
		[HW_RESET] = NVME_ZNS_ZSA_RESET,
		[HW_OPEN] = NVME_ZNS_ZSA_OPEN,
		[HW_CLOSE] = NVME_ZNS_ZSA_CLOSE,
		[HW_FINISH] = NVME_ZNS_ZSA_FINISH,
	};
	struct nvme_ns *n = nvme_of(h);
	int ret = 0;

	if (nr == h->dev.geo.nr_zones && nr > 1)
		return send_one(n, action[what], 0, true, why);
	for (uint32_t i = 0; !ret && i < nr; i++)
		ret = send_one(n, action[what], first + i, false, why);
	return ret;
}

static int nvme_flush_ns(struct hw *h, struct zns_err *why)
{
	struct nvme_command c = { .opcode = nvme_cmd_flush };

	return nvme_run(nvme_of(h), &c, why);
}

const struct hw_raw nvme_raw = {
	.report = nvme_report,
	.write = nvme_write_zone,
	.write_durable = nvme_write_fua,
	.append = nvme_append_at,
	.read = nvme_read_zone,
	.manage = nvme_manage,
	.flush = nvme_flush_ns,
};
