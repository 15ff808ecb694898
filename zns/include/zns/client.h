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
	/* the device requires encrypted checkpoints, with the key of this fingerprint */
	bool encrypted;
	uint8_t key_id[8];
	int alive_fd; /* shared memory in which the broker shows that it lives; -1: none */
	uint32_t deadline_s; /* how long it may show no sign of life; 0: for ever */
	/* limit for an answer, even if the broker shows that it lives; 0: no limit */
	uint32_t limit_ms;
	/* if the other end of watch_fd is closed, or the process of watch_pidfd ends, a waiting
	 * call returns -ECANCELED; -1: not watched. The caller owns both */
	int watch_fd, watch_pidfd;
	int *came; /* where to put a descriptor that comes with an answer; NULL: none is expected */
};

/* Connect to the device's broker, starting one if none runs. @b is caller's storage. */
int zns_broker_connect(const struct zns_registered *dev, struct zns_broker *b, struct zns_err *err);
/* Like zns_broker_connect, but never starts a broker: -ENOENT if none runs. For commands such as
 * `format`, which must not race with one. */
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

/* Finds in an answer to `ls` the one checkpoint whose id is @text or begins with it: at least
 * ZNS_ID_MIN hexadecimal digits, dashes are ignored. -ENOENT: there is none; -ENOTUNIQ: there are
 * several, and the text lists them. */
#define ZNS_ID_MIN 4
int zns_find_checkpoint(const ZnsPb__Response *ls, const char *text, const ZnsPb__Checkpoint **out,
			struct zns_err *err);
/* Like zns_find_id, but asks the broker; a complete id is accepted as it is, even if no such
 * checkpoint exists. */
int zns_broker_resolve_id(struct zns_broker *b, const char *text, uint8_t id[ZNS_UUID_LEN],
			  struct zns_err *err);

/*
 * device.c: like zns_resolve_device(). But if several devices are registered and neither @spec nor
 * ZNS_DEV nor a default names one, it chooses the one with most free space among those that answer.
 */
int zns_device_for_dump(const char *spec, struct zns_registered *out, struct zns_err *err);

#endif
