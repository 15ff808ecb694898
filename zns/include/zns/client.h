/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_CLIENT_H
#define ZNS_CLIENT_H
/*
 * A client's connection to znsd, the one broker of a device (design.md §5). The connection is the
 * lease: everything a client was granted ends when its connection closes, even if the client was
 * killed. Image data never passes through it. Not thread-safe: one connection, one thread (or a
 * lock around it).
 */
#include "zns/broker.h"

struct zns_broker {
	/* if it becomes readable (POLLIN, POLLHUP) while no call runs, the broker has ended */
	int fd;
	uint32_t broker_pid;
	/* the device requires encrypted checkpoints, with the key of this fingerprint */
	bool encrypted;
	uint8_t key_id[8];
	int alive_fd; /* shared memory in which the broker shows that it is alive; -1: none */
	/* seconds without a sign of life after which a call gives up; 0: never */
	uint32_t deadline_s;
	/* limit for an answer even if the broker shows that it is alive, milliseconds; 0: no
	 * limit */
	uint32_t limit_ms;
	/* If the peer of watch_fd closes it, or the process of watch_pidfd ends, a waiting call
	 * returns -ECANCELED. -1: not watched. The caller owns both descriptors. */
	int watch_fd, watch_pidfd;
	/* where to store a descriptor that comes with an answer; NULL: none is expected */
	int *came;
};

/* Connects to the device's broker and starts one if none runs. The caller provides @b. */
int zns_broker_connect(const struct zns_registered *dev, struct zns_broker *b, struct zns_err *err);
/* Like zns_broker_connect, but never starts a broker: -ENOENT if none runs. For commands such as
 * `format`, which must not race with one. */
int zns_broker_connect_running(const struct zns_registered *dev, struct zns_broker *b,
			       struct zns_err *err);
void zns_broker_close(struct zns_broker *b);

/*
 * Sends one request and receives its answer. The version field is filled in. On success the caller
 * owns *resp (zns_pb__response__free_unpacked). An answer with code != 0 is returned as that error.
 * -EPIPE: the broker has ended.
 */
int zns_broker_call(struct zns_broker *b, ZnsPb__Request *req, ZnsPb__Response **resp,
		    struct zns_err *err);

/* Finds the checkpoint in an answer to `ls` whose id begins with @text: at least ZNS_ID_MIN
 * hexadecimal digits, dashes are ignored. -ENOENT: there is none; -ENOTUNIQ: there are several, and
 * the message lists them. */
#define ZNS_ID_MIN 4
int zns_find_checkpoint(const ZnsPb__Response *ls, const char *text, const ZnsPb__Checkpoint **out,
			struct zns_err *err);
/* Like zns_find_checkpoint, but sends the `ls` itself. A complete id is returned as it is, even if
 * no such checkpoint exists. */
int zns_broker_resolve_id(struct zns_broker *b, const char *text, uint8_t id[ZNS_UUID_LEN],
			  struct zns_err *err);

/*
 * Like zns_resolve_device(). But if several devices are registered and neither @spec nor ZNS_DEV
 * nor a default names one, it chooses among the devices that answer the one with the most free
 * space.
 */
int zns_device_for_dump(const char *spec, struct zns_registered *out, struct zns_err *err);

#endif
