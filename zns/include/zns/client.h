/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_CLIENT_H
#define ZNS_CLIENT_H
/*
 * A client's connection to znsd, the one broker of a device (design.md §5). The connection is the
 * lease: whatever a client was granted ends when its connection closes, however the client died.
 * Data never passes here. Not thread-safe: one connection, one thread (or a lock around it).
 */
#include "zns/broker.h"

struct zns_broker {
	int fd; /* if it is readable (POLLIN, POLLHUP) while no call runs, the broker is gone */
	uint32_t broker_pid;
	/* the device asks for encrypted checkpoints, with the key of this fingerprint */
	bool encrypted;
	uint8_t key_id[8];
	int alive_fd; /* where the broker shows that it lives; -1: nowhere */
	uint32_t deadline_s; /* how long it may show no sign of life; 0: for ever */
	/* how long an answer may take, also of a broker that lives; 0: for ever */
	uint32_t limit_ms;
	/* when its other end is closed, or this process has ended, a call that waits ends with
	 * -ECANCELED; -1: none. The caller's */
	int watch_fd, watch_pidfd;
	int *came; /* gets the descriptor that comes with an answer; NULL: none is expected */
};

/* Connect to the device's broker, starting one if none runs. @b is caller's storage. */
int zns_broker_connect(const struct zns_registered *dev, struct zns_broker *b, struct zns_err *err);
/* As above, but never starts one: -ENOENT if none runs. For `format` and the like, which must not
 * race one. */
int zns_broker_connect_running(const struct zns_registered *dev, struct zns_broker *b,
			       struct zns_err *err);
void zns_broker_close(struct zns_broker *b);

/*
 * One request, one answer. The version field is filled in. On success *resp is owned by the caller
 * (zns_pb__response__free_unpacked); an answer with code != 0 is turned into that error. -EPIPE:
 * broker died.
 */
int zns_broker_call(struct zns_broker *b, ZnsPb__Request *req, ZnsPb__Response **resp,
		    struct zns_err *err);

/*
 * The one checkpoint of an answer to `ls` whose id @text is or begins: ZNS_ID_MIN hexadecimal
 * digits at least, dashes do not count. -ENOENT: none; -ENOTUNIQ: several, the line names them.
 */
#define ZNS_ID_MIN 4
int zns_find_checkpoint(const ZnsPb__Response *ls, const char *text, const ZnsPb__Checkpoint **out,
			struct zns_err *err);
/* The same, asked of the broker; a whole id is taken as it is, also of a checkpoint that is not
 * there. */
int zns_broker_resolve_id(struct zns_broker *b, const char *text, uint8_t id[ZNS_UUID_LEN],
			  struct zns_err *err);

/*
 * device.c: as zns_resolve_device(). But if several devices are registered and neither @spec nor
 * ZNS_DEV nor a default says which, it is the one with most free space of those that can be asked.
 */
int zns_device_for_dump(const char *spec, struct zns_registered *out, struct zns_err *err);

#endif
