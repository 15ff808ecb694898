/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_BROKER_H
#define ZNS_BROKER_H
/*
 * What znsd, the one broker of a device (design.md §5), and its clients agree on: how messages are
 * framed, and which paths and locks the runtime directory has. No state; safe from any thread. The
 * client's side is zns/client.h.
 */
#include <stdint.h>
#include "zns/config.h"
#include "zns/err.h"
#include "zns-broker.pb-c.h"

#define ZNS_BROKER_VERSION 1
#define ZNS_BROKER_MSG_MAX MIB(64) /* larger frames are refused before anything is allocated */
#define ZNS_BROKER_REQ_MAX MIB(8) /* likewise, towards znsd */

#define ZNS_ALIVE_MS 500 /* between two signs of life, and between two looks at them */

/*
 * Framing, shared with znsd. 0, -EPIPE at end of stream, -EBADMSG for an impossible length. @wait
 * is called before each piece on a socket: 0 when @fd is ready for @events, or the error to end
 * with. NULL: it blocks.
 */
typedef int (*zns_msg_wait)(void *arg, short events);
int zns_msg_send(int fd, const uint8_t *body, uint32_t len, zns_msg_wait wait, void *arg);
int zns_msg_recv(int fd, uint8_t **body, uint32_t *len, zns_msg_wait wait, void *arg);
/* Receives on a socket: *came (-1, or a descriptor that is closed first) becomes the descriptor
 * that came with the message. */
int zns_msg_recv_fd(int fd, uint8_t **body, uint32_t *len, int *came, zns_msg_wait wait, void *arg);

/*
 * Paths in the runtime directory: "<uuid>.sock", "<uuid>.lock", "<uuid>.writers", "<uuid>.readers"
 * (@suffix: "sock" …). A helper first connects, then takes .writers (dump) or .readers (restore)
 * with LOCK_SH, then sends dump_begin or restore_begin, and drops the lock before it would ever
 * connect again: a new broker waits for .writers before it is ready, and a lock taken by a client
 * that it does not know would make it wait.
 */
int zns_broker_path(const uint8_t uuid[ZNS_UUID_LEN], const char *suffix, char *out, size_t len);

/* Note that `znsctl gc` has begun on the device, and when it last did, by zns_mono_ns(); 0: not
 * since the machine was started, as far as is known. */
void zns_swept_note(const uint8_t device[ZNS_UUID_LEN]);
uint64_t zns_swept_last(const uint8_t device[ZNS_UUID_LEN]);

/* Creates the runtime directory (0700) if it does not exist, and checks that no other user can
 * write to it. */
int zns_broker_run_dir(struct zns_err *err);

/*
 * The exclusive lock on a device's backing path that znsd holds all its life, whatever its runtime
 * directory. Tries for @wait_ms. -EBUSY names the holder. *fd_out is closed to unlock.
 */
int zns_broker_lock_device(const char *dev_path, unsigned wait_ms, int *fd_out,
			   struct zns_err *err);

/* flock(LOCK_EX) with a bounded wait; -EBUSY if it stays locked. */
int zns_flock_wait(int fd, unsigned wait_ms);
/*
 * Hold "UUID.readers" or "UUID.writers" shared, after connecting: no new broker resets what we
 * read, or serves while we write. *fd_out is closed to let go. Waits some seconds for a broker that
 * looks whether anybody is left.
 */
int zns_broker_lock_shared(const uint8_t uuid[ZNS_UUID_LEN], const char *suffix, int *fd_out,
			   struct zns_err *err);
/* PID of some holder of a flock on @fd's file other than ourselves, 0 if none can be found. */
int zns_flock_holder(int fd);

#endif
