/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_DEV_RESV_PRIV_H
#define ZNS_DEV_RESV_PRIV_H
/* NVMe's reservation commands, for resv.c. Errors as from nvme_outcome: -EBADE is a conflict. */
#include "zns/reserve.h"

enum {
	RESV_WRITE_EXCLUSIVE = 1,
	RESV_WRITE_REGISTRANTS = 3,
	RESV_WRITE_ALL = 5,
	RESV_ACCESS_ALL = 6
};

struct resv_host {
	uint8_t host[ZNS_HOST_ID_LEN]; /* with short identifiers the last 8 bytes are 0 */
	uint64_t key;
	bool holder;
};

struct resv_report {
	uint8_t type; /* 0: there is no holder */
	uint32_t nr;
	struct resv_host *hosts; /* one for each controller of each registered host; free() it */
};

/* Fills in @r with the drive's abilities and its view of this host. */
int resv_identify(struct zns_resv *r, const char *machine, struct zns_err *err);
int resv_report_read(const struct zns_resv *r, struct resv_report *out, struct zns_err *err);
int resv_register(const struct zns_resv *r, uint64_t key, struct zns_err *err);
int resv_unregister(const struct zns_resv *r, uint64_t key, struct zns_err *err);
int resv_acquire(const struct zns_resv *r, uint8_t type, uint64_t key, struct zns_err *err);
/* Takes the reservation from hosts registered with @other, and removes their registrations. 0:
 * all hosts, for types that all hold. */
int resv_preempt(const struct zns_resv *r, uint8_t type, uint64_t key, uint64_t other,
		 struct zns_err *err);
int resv_release(const struct zns_resv *r, uint8_t type, uint64_t key, struct zns_err *err);

#endif
