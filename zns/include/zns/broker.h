/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_BROKER_H
#define ZNS_BROKER_H
/*
 * Client side of znsd, the one broker of a device (design.md §5). The connection is the lease: whatever a
 * client was granted ends when its connection closes, however the client died. Data never passes here.
 * Not thread-safe: one connection, one thread (or a lock around it).
 */
#include <stdint.h>
#include "zns/config.h"
#include "zns/err.h"
#include "zns-broker.pb-c.h"

#define ZNS_BROKER_VERSION 1
#define ZNS_BROKER_MSG_MAX MIB(64)	/* larger frames are refused before anything is allocated */

struct zns_broker {
	int fd;			/* poll for POLLIN|POLLHUP while no call is running: readable = the broker is gone */
	uint32_t broker_pid;
};

/* Connect to the device's broker, starting one if none runs. @b is caller's storage. */
int zns_broker_connect(const struct zns_registered *dev, struct zns_broker *b, struct zns_err *err);
void zns_broker_close(struct zns_broker *b);

/*
 * One request, one answer. The version field is filled in. On success *resp is owned by the caller
 * (zns_pb__response__free_unpacked); an answer with code != 0 is turned into that error. -EPIPE: broker died.
 */
int zns_broker_call(struct zns_broker *b, ZnsPb__Request *req, ZnsPb__Response **resp, struct zns_err *err);

/* Framing, shared with znsd. Blocking; 0, -EPIPE at end of stream, -EBADMSG for an impossible length. */
int zns_msg_send(int fd, const uint8_t *body, uint32_t len);
int zns_msg_recv(int fd, uint8_t **body, uint32_t *len);

/* Paths in the runtime directory: "<uuid>.sock", "<uuid>.lock", "<uuid>.writers", "<uuid>.readers". */
int zns_broker_path(const uint8_t uuid[ZNS_UUID_LEN], const char *suffix, char *out, size_t len);

#endif
