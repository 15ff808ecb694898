/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_SESSION_H
#define ZNS_SESSION_H
/*
 * A program's use of one device: the connection to its broker, the locks that a new broker waits
 * for, and the open device. All leases end with the connection. Not thread-safe; only
 * zns_session_ask is, if @ask is. A child process must not use it after a fork.
 */
#include "zns/chain.h"
#include "zns/client.h"
#include "zns/config.h"
#include "zns/dev.h"
#include "zns/hot.h"
#include "zns-handle.pb-c.h"

struct zns_zone_slot;

enum zns_session_use {
	/* take the lock of readers: no new broker resets zones meanwhile */
	ZNS_READS = 1,
	ZNS_WRITES = 2, /* take the lock of writers: no new broker serves requests meanwhile */
};

struct zns_session {
	struct zns_registered reg;
	struct zns_broker broker;
	int readers, writers; /* descriptors of the locks; -1: not held */
	struct zns_dev *dev; /* the open device; NULL: not open */
	/* for a restore: read through the cache that restores share, if the broker provides one */
	bool shares;
	/* the minimum rate that a restore asks for, MiB/s, and "reject" if it shall fail rather
	 * than begin with less; 0, NULL: none */
	uint32_t qos_mibps;
	const char *admission;
	/* the second session of one restore: the broker counts both as one restore */
	bool half;
	/* the cache shared with other restores, once the lease is taken; NULL: none */
	struct zns_hot *hot;
	/* How requests are sent. NULL: with zns_broker_call on @broker. */
	int (*ask)(void *arg, ZnsPb__Request *req, ZnsPb__Response **resp, struct zns_err *err);
	void *ask_arg;
};

#define ZNS_SESSION_INIT                                                             \
	{                                                                            \
		.broker = { .fd = -1, .alive_fd = -1 }, .readers = -1, .writers = -1 \
	}

/* Connects to the broker of @reg, and starts one if none runs; then takes the locks for @use
 * (values of zns_session_use, or-ed). The order matters: a starting broker waits for the locks of
 * clients that are not connected to it. @s->ask is kept. On an error @s is closed. */
int zns_session_connect(struct zns_session *s, const struct zns_registered *reg, unsigned use,
			struct zns_err *err);
/* Like zns_session_connect, and also opens the device: for writing if @use has ZNS_WRITES. */
int zns_session_open(struct zns_session *s, const struct zns_registered *reg, unsigned use,
		     struct zns_err *err);
/* May be called twice, and directly after ZNS_SESSION_INIT. */
void zns_session_close(struct zns_session *s);

/* Sends one request and receives its answer, like zns_broker_call. */
int zns_session_ask(struct zns_session *s, ZnsPb__Request *req, ZnsPb__Response **resp,
		    struct zns_err *err);
/* Like zns_session_ask, for callers that only need to know whether it succeeded. */
int zns_session_tell(struct zns_session *s, ZnsPb__Request *req, struct zns_err *err);

/* Takes a restore lease on @id until the connection ends. The caller owns the answer. Its first
 * record is that of @id; with @chain, the records of its parents follow. -ENOENT: no such
 * checkpoint; -ESTALE: it was removed. */
int zns_session_lease(struct zns_session *s, const uint8_t id[ZNS_UUID_LEN], bool chain,
		      ZnsPb__Response **out, struct zns_err *err);
/* Like zns_session_lease, with a weight (criu-zns(8)); 0: the weight in the record. */
int zns_session_lease_by(struct zns_session *s, const uint8_t id[ZNS_UUID_LEN], bool chain,
			 uint32_t weight, ZnsPb__Response **out, struct zns_err *err);

/*
 * Opens the chain whose records are in @answer (of zns_session_lease, or of a dump's admission) for
 * reading. @h: the handle that named the checkpoint; it is checked, since anybody may have written
 * it. NULL: the checkpoint was named by its id. @p->dev and @p->hot are filled in.
 */
int zns_session_chain(struct zns_session *s, const ZnsPb__Response *answer, const ZnsPb__Handle *h,
		      const struct zns_reader_params *p, struct zns_chain **out,
		      struct zns_err *err);

/* Makes a slot for the writer from a zone that the broker granted. -EPROTO: the device has no such
 * zone. */
int zns_session_slot(struct zns_dev *dev, const ZnsPb__ZoneGrant *g, struct zns_zone_slot *out,
		     struct zns_err *err);

#endif
