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
#include "zns/writer.h"
#include "zns-broker.pb-c.h"

#define ZNS_BROKER_VERSION 1
#define ZNS_BROKER_MSG_MAX MIB(64)	/* larger frames are refused before anything is allocated */
#define ZNS_BROKER_REQ_MAX MIB(8)	/* likewise, towards znsd */

struct zns_broker {
	int fd;			/* poll for POLLIN|POLLHUP while no call is running: readable = the broker is gone */
	uint32_t broker_pid;
	bool encrypted;		/* the device asks for encrypted checkpoints, with the key of this fingerprint */
	uint8_t key_id[8];
	int alive_fd;		/* where the broker shows that it lives; -1: nowhere */
	uint32_t deadline_s;	/* so long it may show nothing; 0: for ever */
	uint32_t limit_ms;	/* for an answer, also of a broker that lives; 0: none */
	int watch_fd;		/* when its other end goes, a call that waits for its answer ends with -ECANCELED; -1: none */
};

/* Connect to the device's broker, starting one if none runs. @b is caller's storage. */
int zns_broker_connect(const struct zns_registered *dev, struct zns_broker *b, struct zns_err *err);
/* As above, but never starts one: -ENOENT if none runs. For `format` and the like, which must not race one. */
int zns_broker_connect_running(const struct zns_registered *dev, struct zns_broker *b, struct zns_err *err);
void zns_broker_close(struct zns_broker *b);

/*
 * One request, one answer. The version field is filled in. On success *resp is owned by the caller
 * (zns_pb__response__free_unpacked); an answer with code != 0 is turned into that error. -EPIPE: broker died.
 */
int zns_broker_call(struct zns_broker *b, ZnsPb__Request *req, ZnsPb__Response **resp, struct zns_err *err);

/*
 * The one checkpoint of an answer to `ls` whose id @text is or begins: ZNS_ID_MIN hexadecimal digits at least, dashes do
 * not count. -ENOENT: none; -ENOTUNIQ: several, the line names them.
 */
#define ZNS_ID_MIN 4
int zns_find_checkpoint(const ZnsPb__Response *ls, const char *text, const ZnsPb__Checkpoint **out, struct zns_err *err);
/* The same, asked of the broker; a whole id is taken as it is, also of a checkpoint that is not there. */
int zns_broker_resolve_id(struct zns_broker *b, const char *text, uint8_t id[ZNS_UUID_LEN], struct zns_err *err);

/* For a dump's zns_writer_params.zone_get: ask for a zone of @group, naming those that are done. */
int zns_broker_zone_get(struct zns_broker *b, const struct zns_geometry *geo, const struct zns_zone_wish *wish,
			struct zns_zone_slot *out, struct zns_err *err);

#define ZNS_ALIVE_MS 500	/* between two signs of life, and between two looks at them */

/* Framing, shared with znsd. Blocking; 0, -EPIPE at end of stream, -EBADMSG for an impossible length. */
int zns_msg_send(int fd, const uint8_t *body, uint32_t len);
int zns_msg_recv(int fd, uint8_t **body, uint32_t *len);
/* The same on a socket, with @wait before each piece: 0 when @fd is ready for @events, or the error to end with. */
typedef int (*zns_msg_wait)(void *arg, short events);
int zns_msg_send_wait(int fd, const uint8_t *body, uint32_t len, zns_msg_wait wait, void *arg);
int zns_msg_recv_wait(int fd, uint8_t **body, uint32_t *len, zns_msg_wait wait, void *arg);

/*
 * Paths in the runtime directory: "<uuid>.sock", "<uuid>.lock", "<uuid>.writers", "<uuid>.readers" (@suffix:
 * "sock" …). A helper first connects, then takes .writers (dump) or .readers (restore) with LOCK_SH, then sends
 * dump_begin or restore_begin, and drops the lock before it would ever connect again: a new broker waits for
 * .writers before it is ready, and a lock taken by a client that it does not know would make it wait.
 */
int zns_broker_path(const uint8_t uuid[ZNS_UUID_LEN], const char *suffix, char *out, size_t len);

/* Make the runtime directory (0700) if need be and check that nobody else can write to it. */
int zns_broker_run_dir(struct zns_err *err);

/*
 * The exclusive lock on a device's backing path that znsd holds all its life, whatever its runtime directory.
 * Tries for @wait_ms. -EBUSY names the holder. *fd_out is closed to unlock.
 */
int zns_broker_lock_device(const char *dev_path, unsigned wait_ms, int *fd_out, struct zns_err *err);

/* flock(LOCK_EX) with a bounded wait; -EBUSY when it stays taken. */
int zns_flock_wait(int fd, unsigned wait_ms);
/*
 * Hold "UUID.readers" or "UUID.writers" shared, after connecting: no new broker resets what we read, or serves while we
 * write. *fd_out is closed to let go. Waits some seconds for a broker that looks whether anybody is left.
 */
int zns_broker_lock_shared(const uint8_t uuid[ZNS_UUID_LEN], const char *suffix, int *fd_out, struct zns_err *err);
/* PID of some holder of a flock on @fd's file other than ourselves, 0 if none can be found. */
int zns_flock_holder(int fd);

#endif
