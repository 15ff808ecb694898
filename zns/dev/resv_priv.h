/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_DEV_RESV_PRIV_H
#define ZNS_DEV_RESV_PRIV_H
/* NVMe's reservation commands, for resv.c. Errors as from nvme_outcome; -EBADE is a reservation
 * conflict. */
#include "zns/reserve.h"

enum {
	RESV_WRITE_EXCLUSIVE = 1,
	RESV_WRITE_REGISTRANTS = 3,
	RESV_WRITE_ALL = 5,
	RESV_ACCESS_ALL = 6
};

struct resv_host {
	uint8_t host[ZNS_HOST_ID_LEN]; /* a short identifier is padded with 8 zero bytes */
	uint64_t key;
	bool holder;
};

struct resv_report {
	uint8_t type; /* type of the reservation; 0: there is no holder */
	uint32_t nr;
	/* one entry for each controller of each registered host; to be freed with free() */
	struct resv_host *hosts;
};

/* Fills in what the drive supports, and how it identifies this host. */
int resv_identify(struct zns_resv *r, const char *machine, struct zns_err *err);
int resv_report_read(const struct zns_resv *r, struct resv_report *out, struct zns_err *err);
int resv_register(const struct zns_resv *r, uint64_t key, struct zns_err *err);
int resv_unregister(const struct zns_resv *r, uint64_t key, struct zns_err *err);
int resv_acquire(const struct zns_resv *r, uint8_t type, uint64_t key, struct zns_err *err);
/* Takes the reservation from hosts registered with the key @other, and removes their registrations.
 * @other 0: from all hosts, for types that all of them hold. */
int resv_preempt(const struct zns_resv *r, uint8_t type, uint64_t key, uint64_t other,
		 struct zns_err *err);
int resv_release(const struct zns_resv *r, uint8_t type, uint64_t key, struct zns_err *err);

#endif
