/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_SESSION_H
#define ZNS_SESSION_H
/*
 * A program's use of one device: the connection to its broker, the locks that a new broker waits
 * for, and the open device. All leases end with the connection. Not thread-safe; zns_session_ask
 * is, if @ask is. A child after fork must not use it.
 */
#include "zns/chain.h"
#include "zns/client.h"
#include "zns/config.h"
#include "zns/dev.h"
#include "zns/hot.h"
#include "zns-handle.pb-c.h"

struct zns_zone_slot;

enum zns_session_use {
	/* a lock for reading: a new broker does not reset zones that the process reads */
	ZNS_READS = 1,
	ZNS_WRITES = 2, /* no new broker serves while it writes */
};

struct zns_session {
	struct zns_registered reg;
	struct zns_broker broker;
	int readers, writers; /* descriptors of the locks; -1: not held */
	struct zns_dev *dev; /* NULL: not open */
	/* of a restore: read through memory that restores share, if the broker gives some */
	bool shares;
	/* the rate that a restore is to have at least, MiB/s, and "reject" if it is not to begin
	 * with less; 0, NULL: none */
	uint32_t qos_mibps;
	const char *admission;
	/* the second session of one restore: the broker counts the two as one restore */
	bool half;
	struct zns_hot *hot; /* memory shared with other restores, once leased; NULL: none */
	/* How requests are sent. NULL: by zns_broker_call on @broker. */
	int (*ask)(void *arg, ZnsPb__Request *req, ZnsPb__Response **resp, struct zns_err *err);
	void *ask_arg;
};

#define ZNS_SESSION_INIT                                                             \
	{                                                                            \
		.broker = { .fd = -1, .alive_fd = -1 }, .readers = -1, .writers = -1 \
	}

/* Connects to the broker of @reg, and starts one if none runs; then takes the locks for @use
 * (zns_session_use, or-ed). The order matters: a starting broker waits for the locks of clients
 * that are not connected to it. Keeps @s->ask. On an error @s is closed. */
int zns_session_connect(struct zns_session *s, const struct zns_registered *reg, unsigned use,
			struct zns_err *err);
/* The same, and open the device: for writing if @use has ZNS_WRITES. */
int zns_session_open(struct zns_session *s, const struct zns_registered *reg, unsigned use,
		     struct zns_err *err);
/* Twice is fine, and after ZNS_SESSION_INIT. */
void zns_session_close(struct zns_session *s);

/* Sends one request and receives its answer, like zns_broker_call. */
int zns_session_ask(struct zns_session *s, ZnsPb__Request *req, ZnsPb__Response **resp,
		    struct zns_err *err);
/* Like zns_session_ask, for callers that need no answer but success or failure. */
int zns_session_tell(struct zns_session *s, ZnsPb__Request *req, struct zns_err *err);

/* Takes a restore lease on @id until the connection ends. The caller owns the answer; its first
 * record is that of @id, with @chain followed by its parents. -ENOENT: no such checkpoint; -ESTALE:
 * removed. */
int zns_session_lease(struct zns_session *s, const uint8_t id[ZNS_UUID_LEN], bool chain,
		      ZnsPb__Response **out, struct zns_err *err);
/* Like zns_session_lease, with a weight (criu-zns(8)); 0: the weight in the record. */
int zns_session_lease_by(struct zns_session *s, const uint8_t id[ZNS_UUID_LEN], bool chain,
			 uint32_t weight, ZnsPb__Response **out, struct zns_err *err);

/*
 * Read the chain that @answer has the records of (zns_session_lease, or a dump's admission). @h:
 * the handle that named it, which must be of it, since anybody may have written it; NULL: it was
 * named by its id. @p->dev and @p->hot are filled in.
 */
int zns_session_chain(struct zns_session *s, const ZnsPb__Response *answer, const ZnsPb__Handle *h,
		      const struct zns_reader_params *p, struct zns_chain **out,
		      struct zns_err *err);

/* Makes a slot for the writer from a zone that the broker granted; -EPROTO: the device has no such
 * zone. */
int zns_session_slot(struct zns_dev *dev, const ZnsPb__ZoneGrant *g, struct zns_zone_slot *out,
		     struct zns_err *err);

#endif
