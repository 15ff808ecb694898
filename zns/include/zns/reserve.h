/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_RESERVE_H
#define ZNS_RESERVE_H
/*
 * NVMe reservations: a drive that several hosts can reach (two ports, NVMe over Fabrics) refuses
 * the writes of all hosts but one. The mount record (zns/store.h) only works between programs of
 * ours. A reservation stops every program, also on a host that no longer responds.
 *
 * The type is Write Exclusive: one host writes, with any of its processes, by either node and over
 * any controller; all hosts may read. If the drive only supports the type "Registrants Only", that
 * one is used; it excludes only hosts that have not registered.
 *
 * The drive identifies hosts by their host identifier. For fabrics that is /etc/nvme/hostid, or the
 * one that the connection was made with. A PCIe drive has none until the host sets one; we set one
 * that is derived from the machine id. The reservation key is a hash of the machine id. A
 * reservation with that key belongs to this machine, under whichever host identifier it was made,
 * so after a crash or a reboot the machine continues to use it.
 *
 * Not thread-safe. All calls return 0 or a negative errno with a message in @err.
 */
#include <stdbool.h>
#include <stdint.h>
#include "zns/dev.h"

#define ZNS_HOST_ID_LEN 16

/* One device's reservation as this process uses it. The caller owns it; it holds no resources but
 * the open device. */
struct zns_resv {
	struct zns_dev *dev;
	/* false: reservations are not available, and all calls below succeed without effect */
	bool offered;
	/* why the drive's reservations cannot be used, to be logged; else empty */
	char why[160];
	int fd;
	uint32_t nsid;
	bool extended; /* the drive's host identifiers have 16 bytes; otherwise 8 */
	bool persist; /* if wanted, the reservation survives a power loss of the drive */
	uint8_t types; /* supported types; bit n: type n (1 to 6) */
	uint8_t host[ZNS_HOST_ID_LEN];
	uint64_t own_key; /* key of this machine */
	/* Set by zns_resv_take: */
	bool held;
	bool fresh; /* this host did not hold the reservation before */
	/* key with which this host is registered: own_key, unless other software registered
	 * first */
	uint64_t key;
	uint8_t type;
};

/* The present state that the drive reports. */
struct zns_resv_state {
	bool held, ours;
	uint8_t type; /* type 1 to 6; 0: no reservation is held */
	uint64_t key; /* key of the holder */
};

/* Who might hold the reservation, for messages: the last machine according to the mount record.
 * NULL: not known. */
struct zns_resv_peer {
	const char *machine, *host;
};

/* Finds out what @dev supports. Also returns 0 if it supports no reservations. @machine: this
 * machine's id. */
int zns_resv_open(struct zns_dev *dev, const char *machine, struct zns_resv *r,
		  struct zns_err *err);

int zns_resv_look(const struct zns_resv *r, struct zns_resv_state *out, struct zns_err *err);

/* Acquires the reservation for this host. -EBUSY: another host holds it. With @take_over that host
 * loses its registration, and its commands that are under way are aborted. If this host already
 * holds a reservation, it is kept. */
int zns_resv_take(struct zns_resv *r, bool take_over, const struct zns_resv_peer *peer,
		  struct zns_err *err);

/* Releases the reservation, unless other software on this host made it. Does nothing if it is not
 * held, or not any more. */
int zns_resv_leave(struct zns_resv *r, struct zns_err *err);

uint64_t zns_resv_key(const char *machine);
const char *zns_resv_type_name(uint8_t type); /* "write-exclusive" and so on, or "unknown" */

#endif
