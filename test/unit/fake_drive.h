/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef FAKE_DRIVE_H
#define FAKE_DRIVE_H
/*
 * A drive with NVMe reservations, as libnvme shows it. The calls of libnvme that the reservation
 * code makes are defined here, so the test's program uses them in place of the library's. A
 * descriptor stands for a host: hosts 100 to 103, each with a host identifier. Conflicts follow the
 * NVMe Base Specification, "Reservations".
 */
#include <endian.h>
#include <errno.h>
#include <libnvme.h>
#include <stdbool.h>
#include <string.h>

#define FD0 100
#define NR_HOSTS 4
#define CONFLICT NVME_SC_RESERVATION_CONFLICT

struct fake_reg {
	uint8_t host[16];
	uint64_t key;
};

static struct fake_drive {
	bool reservations, extended, no_abort, deny, no_host_id;
	uint8_t rescap;
	uint8_t host[NR_HOSTS][16];
	struct fake_reg reg[200];
	unsigned nr;
	int holder; /* index of the holder in reg; -1: none */
	uint8_t type;
	unsigned persisted, aborted;
	void (*before_acquire)(void);
} drive;

static int fake_find(int fd)
{
	for (unsigned i = 0; i < drive.nr; i++)
		if (!memcmp(drive.reg[i].host, drive.host[fd - FD0], 16))
			return i;
	return -1;
}

static void fake_drop(unsigned i)
{
	if (drive.holder == (int)i) {
		drive.holder = -1;
		drive.type = 0;
	} else if (drive.holder > (int)i) {
		drive.holder--;
	}
	memmove(&drive.reg[i], &drive.reg[i + 1], (--drive.nr - i) * sizeof(*drive.reg));
}

static void fake_reset(void)
{
	memset(&drive, 0, sizeof(drive));
	drive.reservations = drive.extended = true;
	drive.rescap = NVME_NS_RESCAP_WE | NVME_NS_RESCAP_WERO | NVME_NS_RESCAP_EA;
	drive.holder = -1;
	for (unsigned i = 0; i < NR_HOSTS; i++)
		memset(drive.host[i], i + 1, 16);
}

int nvme_get_nsid(int fd, __u32 *nsid)
{
	*nsid = 7;
	return 0;
}

int nvme_identify(struct nvme_identify_args *args)
{
	struct nvme_id_ctrl *c = args->data;
	struct nvme_id_ns *n = args->data;

	if (drive.deny) {
		errno = EACCES;
		return -1;
	}
	memset(args->data, 0, 4096);
	if (args->cns == NVME_IDENTIFY_CNS_CTRL) {
		c->oncs = htole16(drive.reservations ? NVME_CTRL_ONCS_RESERVATIONS : 0);
		c->ctratt = htole32(drive.extended ? NVME_CTRL_CTRATT_128_ID : 0);
	} else {
		n->rescap = drive.rescap;
	}
	return 0;
}

int nvme_get_features_host_id(int fd, enum nvme_get_features_sel sel, bool exhid, __u32 len,
			      __u8 *hostid)
{
	if (exhid != drive.extended)
		return NVME_SC_HOSTID_FORMAT;
	memcpy(hostid, drive.host[fd - FD0], len);
	return 0;
}

int nvme_set_features_host_id(int fd, bool exhid, bool save, __u8 *hostid)
{
	if (drive.no_host_id)
		return NVME_SC_INVALID_FIELD;
	memset(drive.host[fd - FD0], 0, 16);
	memcpy(drive.host[fd - FD0], hostid, exhid ? 16 : 8);
	return 0;
}

int nvme_resv_report(struct nvme_resv_report_args *a)
{
	uint8_t *buf = (void *)a->report;
	size_t head = a->eds ? 64 : 24, each = a->eds ? 64 : 24;

	if (a->eds != drive.extended)
		return NVME_SC_HOSTID_FORMAT;
	a->report->rtype = drive.type;
	a->report->regctl[0] = drive.nr;
	a->report->regctl[1] = drive.nr >> 8;
	for (unsigned i = 0; i < drive.nr && head + (i + 1) * each <= a->len; i++) {
		uint8_t *at = buf + head + i * each;
		bool all = drive.type >= NVME_RESERVATION_RTYPE_WEAR;
		uint64_t key = htole64(drive.reg[i].key);

		at[0] = at[1] = 0xff; /* no fixed controller */
		at[2] = (int)i == drive.holder || (all && drive.type);
		memcpy(at + (a->eds ? 8 : 16), &key, 8);
		memcpy(at + (a->eds ? 16 : 8), drive.reg[i].host, a->eds ? 16 : 8);
	}
	return 0;
}

int nvme_resv_register(struct nvme_resv_register_args *a)
{
	int me = fake_find(a->fd);

	if (a->rrega == NVME_RESERVATION_RREGA_UNREGISTER_KEY) {
		if (me < 0 || drive.reg[me].key != a->crkey)
			return CONFLICT;
		fake_drop(me);
		return 0;
	}
	if (me >= 0)
		return drive.reg[me].key == a->nrkey ? 0 : CONFLICT;
	memcpy(drive.reg[drive.nr].host, drive.host[a->fd - FD0], 16);
	drive.reg[drive.nr++].key = a->nrkey;
	drive.persisted += a->cptpl == NVME_RESERVATION_CPTPL_PERSIST;
	return 0;
}

static int fake_preempt(int fd, uint64_t other, uint8_t type)
{
	bool all = drive.type >= NVME_RESERVATION_RTYPE_WEAR;

	if (drive.holder < 0 || (all ? other != 0 : drive.reg[drive.holder].key != other))
		return NVME_SC_INVALID_FIELD;
	for (unsigned i = drive.nr; i-- > 0;)
		if ((all || drive.reg[i].key == other) && (int)i != fake_find(fd))
			fake_drop(i);
	drive.holder = fake_find(fd);
	drive.type = type;
	return 0;
}

int nvme_resv_acquire(struct nvme_resv_acquire_args *a)
{
	int me;

	if (drive.before_acquire)
		drive.before_acquire();
	me = fake_find(a->fd);
	if (me < 0 || drive.reg[me].key != a->crkey)
		return CONFLICT;
	if (a->racqa == NVME_RESERVATION_RACQA_PREEMPT_AND_ABORT && drive.no_abort)
		return NVME_SC_INVALID_FIELD;
	if (a->racqa != NVME_RESERVATION_RACQA_ACQUIRE) {
		drive.aborted += a->racqa == NVME_RESERVATION_RACQA_PREEMPT_AND_ABORT;
		return fake_preempt(a->fd, a->nrkey, a->rtype);
	}
	if (drive.holder >= 0 && drive.holder != me)
		return CONFLICT;
	drive.holder = me;
	drive.type = a->rtype;
	return 0;
}

int nvme_resv_release(struct nvme_resv_release_args *a)
{
	int me = fake_find(a->fd);

	if (me < 0 || drive.reg[me].key != a->crkey)
		return CONFLICT;
	if (drive.holder != me)
		return 0;
	if (drive.type != a->rtype)
		return CONFLICT;
	drive.holder = -1;
	drive.type = 0;
	return 0;
}

#endif
