/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* NVMe's reservation commands, with libnvme. They work through the block device's node and through
 * the passthrough node. */
#include <endian.h>
#include <libnvme.h>
#include <stdlib.h>
#include <string.h>

#include "nvme_priv.h"
#include "resv_priv.h"

#define STATUS_MASK 0x7ff
#define REPORT_MIN 4096u
#define REPORT_MAX 65536u
#define TYPES 0x7e /* bits 1 to 6 of RESCAP stand for types 1 to 6 */
#define HOST_SEED 0x7a6e732d686f7374 /* "zns-host": seed of the hash */

static bool refused(int ret)
{
	return ret < 0 && (errno == EACCES || errno == EPERM);
}

/* Tells a PCIe drive the identifier of this host, which it does not know otherwise. The identifier
 * is the same after each boot. */
static int introduce(struct zns_resv *r, const char *machine, struct zns_err *why)
{
	uint64_t half[2] = { zns_hash_seeded(machine, strlen(machine), HOST_SEED),
			     zns_hash_seeded(machine, strlen(machine), HOST_SEED + 1) };

	half[0] |= 1; /* an identifier must not be 0 */
	memcpy(r->host, half, r->extended ? 16 : 8);
	return nvme_outcome(nvme_set_features_host_id(r->fd, r->extended, false, r->host), why);
}

static bool nameless(const struct zns_resv *r)
{
	static const uint8_t none[ZNS_HOST_ID_LEN];

	return !memcmp(r->host, none, sizeof(none));
}

static int identify_host(struct zns_resv *r, const char *machine)
{
	struct zns_err why = ZNS_ERR_INIT;
	int ret;

	memset(r->host, 0, sizeof(r->host));
	ret = nvme_outcome(nvme_get_features_host_id(r->fd, NVME_GET_FEATURES_SEL_CURRENT,
						     r->extended, r->extended ? 16 : 8, r->host),
			   &why);
	if (!ret && nameless(r))
		ret = introduce(r, machine, &why);
	if (ret)
		snprintf(r->why, sizeof(r->why),
			 "the drive has no identifier for this host, and takes none: %s", why.msg);
	return ret;
}

static int report_once(const struct zns_resv *r, void *buf, uint32_t len)
{
	struct nvme_resv_report_args args = {
		.args_size = sizeof(args),
		.fd = r->fd,
		.nsid = r->nsid,
		.eds = r->extended,
		.len = len,
		.report = buf,
		.timeout = NVME_DEFAULT_IOCTL_TIMEOUT,
	};

	memset(buf, 0, len);
	return nvme_resv_report(&args);
}

int resv_identify(struct zns_resv *r, const char *machine, struct zns_err *err)
{
	size_t len = zns_max(sizeof(struct nvme_id_ns), sizeof(struct nvme_id_ctrl));
	cleanup_free void *buf =
		aligned_alloc(HW_PAGE, zns_align_up(zns_max(len, (size_t)REPORT_MIN), HW_PAGE));
	struct nvme_id_ctrl *ctrl = buf;
	struct nvme_id_ns *ns = buf;
	struct zns_err why = ZNS_ERR_INIT;
	int ret;

	if (!buf)
		return zns_fail(err, -ENOMEM, "out of memory");
	if (nvme_get_nsid(r->fd, &r->nsid))
		return 0; /* @r's device is not an NVMe namespace, so it has no reservations */
	ret = nvme_identify_ctrl(r->fd, ctrl);
	if (refused(ret))
		/* without permission for this command we cannot make a reservation either, so only
		 * the mount record protects the store */
		return 0;
	if (nvme_outcome(ret, &why))
		return zns_fail(err, -EIO, "%s does not identify itself: %s", r->dev->path,
				why.msg);
	if (!(le16toh(ctrl->oncs) & NVME_CTRL_ONCS_RESERVATIONS))
		return 0;
	r->extended = le32toh(ctrl->ctratt) & NVME_CTRL_CTRATT_128_ID;
	if (nvme_outcome(nvme_identify_ns(r->fd, r->nsid, ns), &why))
		return zns_fail(err, -EIO, "%s does not identify itself: %s", r->dev->path,
				why.msg);
	r->types = ns->rescap & TYPES;
	r->persist = ns->rescap & NVME_NS_RESCAP_PTPL;
	if (!(r->types & (1 << RESV_WRITE_EXCLUSIVE | 1 << RESV_WRITE_REGISTRANTS)))
		return 0;
	ret = report_once(r, buf, REPORT_MIN);
	if (ret > 0 && (ret & STATUS_MASK) == NVME_SC_HOSTID_FORMAT) {
		r->extended = !r->extended; /* the drive expects the other of the two lengths */
		ret = report_once(r, buf, REPORT_MIN);
	}
	if (refused(ret))
		return 0;
	if (nvme_outcome(ret, &why)) {
		snprintf(r->why, sizeof(r->why), "the drive does not report them: %s", why.msg);
		return 0;
	}
	r->offered = !identify_host(r, machine);
	return 0;
}

/* Parses a report. Both formats have a header and then records of equal length. */
static void parse(const struct zns_resv *r, const uint8_t *buf, uint32_t nr, struct resv_host *out)
{
	for (uint32_t i = 0; i < nr; i++) {
		struct resv_host *h = &out[i];

		memset(h, 0, sizeof(*h));
		if (r->extended) {
			const struct nvme_registered_ctrl_ext *c =
				(const void *)(buf + 64 + (size_t)i * sizeof(*c));

			memcpy(h->host, c->hostid, sizeof(c->hostid));
			h->key = le64toh(c->rkey);
			h->holder = c->rcsts & 1;
		} else {
			const struct nvme_registered_ctrl *c =
				(const void *)(buf + 24 + (size_t)i * sizeof(*c));

			memcpy(h->host, &c->hostid, sizeof(c->hostid));
			h->key = le64toh(c->rkey);
			h->holder = c->rcsts & 1;
		}
	}
}

int resv_report_read(const struct zns_resv *r, struct resv_report *out, struct zns_err *err)
{
	size_t head = r->extended ? 64 : 24;
	size_t each = r->extended ? sizeof(struct nvme_registered_ctrl_ext) :
				    sizeof(struct nvme_registered_ctrl);
	struct zns_err why = ZNS_ERR_INIT;

	*out = (struct resv_report){ 0 };
	for (uint32_t len = REPORT_MIN;; len = REPORT_MAX) {
		cleanup_free uint8_t *buf = aligned_alloc(HW_PAGE, len);
		const struct nvme_resv_status *s = (void *)buf;
		uint32_t nr;

		if (!buf)
			return zns_fail(err, -ENOMEM, "out of memory");
		if (nvme_outcome(report_once(r, buf, len), &why))
			return zns_fail(err, -EIO, "%s does not report its reservations: %s",
					r->dev->path, why.msg);
		nr = s->regctl[0] | s->regctl[1] << 8;
		if (head + nr * each > len && len < REPORT_MAX)
			continue;
		if (head + nr * each > len)
			return zns_fail(err, -E2BIG, "%s: %u hosts are registered: too many",
					r->dev->path, nr);
		out->hosts = calloc(nr + 1, sizeof(*out->hosts));
		if (!out->hosts)
			return zns_fail(err, -ENOMEM, "out of memory");
		parse(r, buf, nr, out->hosts);
		out->type = s->rtype;
		out->nr = nr;
		return 0;
	}
}

static int enroll(const struct zns_resv *r, enum nvme_resv_rrega what, uint64_t old, uint64_t new,
		  struct zns_err *err)
{
	struct nvme_resv_register_args args = {
		.args_size = sizeof(args),
		.fd = r->fd,
		.nsid = r->nsid,
		.rrega = what,
		.cptpl = r->persist && what == NVME_RESERVATION_RREGA_REGISTER_KEY ?
				 NVME_RESERVATION_CPTPL_PERSIST :
				 NVME_RESERVATION_CPTPL_NO_CHANGE,
		.crkey = old,
		.nrkey = new,
		.timeout = NVME_DEFAULT_IOCTL_TIMEOUT,
	};

	return nvme_outcome(nvme_resv_register(&args), err);
}

int resv_register(const struct zns_resv *r, uint64_t key, struct zns_err *err)
{
	return enroll(r, NVME_RESERVATION_RREGA_REGISTER_KEY, 0, key, err);
}

int resv_unregister(const struct zns_resv *r, uint64_t key, struct zns_err *err)
{
	return enroll(r, NVME_RESERVATION_RREGA_UNREGISTER_KEY, key, 0, err);
}

static int acquire(const struct zns_resv *r, enum nvme_resv_racqa what, uint8_t type, uint64_t key,
		   uint64_t other, struct zns_err *err)
{
	struct nvme_resv_acquire_args args = {
		.args_size = sizeof(args),
		.fd = r->fd,
		.nsid = r->nsid,
		.rtype = type,
		.racqa = what,
		.crkey = key,
		.nrkey = other, /* the key to preempt, which libnvme calls nrkey */
		.timeout = NVME_DEFAULT_IOCTL_TIMEOUT,
	};

	return nvme_outcome(nvme_resv_acquire(&args), err);
}

int resv_acquire(const struct zns_resv *r, uint8_t type, uint64_t key, struct zns_err *err)
{
	return acquire(r, NVME_RESERVATION_RACQA_ACQUIRE, type, key, 0, err);
}

/* Preempts another host. Also asks the drive to abort that host's running commands, which not every
 * drive can do. */
int resv_preempt(const struct zns_resv *r, uint8_t type, uint64_t key, uint64_t other,
		 struct zns_err *err)
{
	int ret = acquire(r, NVME_RESERVATION_RACQA_PREEMPT_AND_ABORT, type, key, other, err);

	return ret && ret != -EBADE ?
		       acquire(r, NVME_RESERVATION_RACQA_PREEMPT, type, key, other, err) :
		       ret;
}

int resv_release(const struct zns_resv *r, uint8_t type, uint64_t key, struct zns_err *err)
{
	struct nvme_resv_release_args args = {
		.args_size = sizeof(args),
		.fd = r->fd,
		.nsid = r->nsid,
		.rtype = type,
		.rrela = NVME_RESERVATION_RRELA_RELEASE,
		.crkey = key,
		.timeout = NVME_DEFAULT_IOCTL_TIMEOUT,
	};

	return nvme_outcome(nvme_resv_release(&args), err);
}
