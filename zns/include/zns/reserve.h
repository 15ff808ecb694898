/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_RESERVE_H
#define ZNS_RESERVE_H
/*
 * NVMe reservations: a drive that several hosts can reach (two ports, NVMe over Fabrics) refuses
 * the writes of all but one of them. The mount record (zns/store.h) is a word between programs of
 * ours; this holds for every program, and for a host that has stopped listening.
 *
 * The type is Write Exclusive: one host writes, whichever of its processes, by either node and over
 * any controller; all hosts read. With Registrants Only, which is taken where a drive has nothing
 * else, any host that registers may write, so there it keeps out those who do not.
 *
 * The drive tells hosts apart by their host identifier. For fabrics that is /etc/nvme/hostid, or
 * what the connection was made with. A PCIe drive has none until it is told one; it is told one
 * that is made of the machine id. The key is a hash of the machine id: a reservation with that key
 * is this machine's own, whatever host identifier it was made under. So it goes on by itself after
 * a crash or a reboot.
 *
 * Not thread-safe. All calls return 0 or a negative errno with a message in @err.
 */
#include <stdbool.h>
#include <stdint.h>
#include "zns/dev.h"

#define ZNS_HOST_ID_LEN 16

/* One device's reservation as this process uses it. Belongs to the caller, holds no resources but
 * the open device. */
struct zns_resv {
	struct zns_dev *dev;
	/* false: reservations are not available, and every call below succeeds without effect */
	bool offered;
	/* why the drive's reservations cannot be used, for a log; else empty */
	char why[160];
	int fd;
	uint32_t nsid;
	bool extended; /* host identifiers have 16 bytes, else 8 */
	bool persist; /* the reservation survives a power loss of the drive, if wanted */
	uint8_t types; /* bit n: type n (1 to 6) */
	uint8_t host[ZNS_HOST_ID_LEN];
	uint64_t own_key; /* key of this machine */
	/* From zns_resv_take on: */
	bool held;
	bool fresh; /* this host did not hold it before */
	/* what this host is registered with: own_key, unless other software came first */
	uint64_t key;
	uint8_t type;
};

/* The present state, as the drive reports it. */
struct zns_resv_state {
	bool held, ours;
	uint8_t type; /* 1 to 6; 0: no reservation is held */
	uint64_t key; /* the holder's */
};

/* A hint who the holder might be, for messages: the last machine according to the mount record.
 * NULL: not known. */
struct zns_resv_peer {
	const char *machine, *host;
};

/* Asks what @dev supports; returns 0 also if it supports no reservations. @machine: this machine's
 * id. */
int zns_resv_open(struct zns_dev *dev, const char *machine, struct zns_resv *r,
		  struct zns_err *err);

int zns_resv_look(const struct zns_resv *r, struct zns_resv_state *out, struct zns_err *err);

/* Acquires the reservation for this host. -EBUSY: another host holds it. With @take_over that host
 * loses its registration, and its commands under way are aborted. An existing reservation of this
 * host stays. */
int zns_resv_take(struct zns_resv *r, bool take_over, const struct zns_resv_peer *peer,
		  struct zns_err *err);

/* Releases the reservation, unless other software on this host made it. Does nothing if it is not
 * held (any more). */
int zns_resv_leave(struct zns_resv *r, struct zns_err *err);

uint64_t zns_resv_key(const char *machine);
const char *zns_resv_type_name(uint8_t type); /* "write-exclusive", …; "unknown" */

#endif
