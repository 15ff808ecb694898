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
/* largest message; a larger one is refused before memory is allocated for it */
#define ZNS_BROKER_MSG_MAX MIB(64)
/* largest request to znsd; a larger one is refused before memory is allocated for it */
#define ZNS_BROKER_REQ_MAX MIB(8)

/* milliseconds between two signs of life, and between two checks for them */
#define ZNS_ALIVE_MS 500

/*
 * Sends and receives messages of this protocol. Return 0, -EPIPE at the end of the stream, or
 * -EBADMSG for an impossible length. On a socket, @wait is called before each partial transfer: it
 * returns 0 when @fd is ready for @events, or the error with which the call shall end. NULL: the
 * transfer blocks.
 */
typedef int (*zns_msg_wait)(void *arg, short events);
int zns_msg_send(int fd, const uint8_t *body, uint32_t len, zns_msg_wait wait, void *arg);
int zns_msg_recv(int fd, uint8_t **body, uint32_t *len, zns_msg_wait wait, void *arg);
/* Receives a message from a socket. If a descriptor comes with the message, it is stored in *came,
 * whose previous descriptor (unless -1) is closed first. */
int zns_msg_recv_fd(int fd, uint8_t **body, uint32_t *len, int *came, zns_msg_wait wait, void *arg);

/*
 * Paths in the runtime directory: "<uuid>.sock", "<uuid>.lock", "<uuid>.writers", "<uuid>.readers"
 * (@suffix: "sock" …). A helper first connects, then takes .writers (dump) or .readers (restore)
 * with LOCK_SH, then sends dump_begin or restore_begin. It releases the lock before it connects
 * again, because a new broker waits for the locks of clients that are not connected to it.
 */
int zns_broker_path(const uint8_t uuid[ZNS_UUID_LEN], const char *suffix, char *out, size_t len);

/* zns_swept_note records that `znsctl gc` has begun on the device. zns_swept_last returns when that
 * was, by zns_mono_ns(); 0: no run since boot is known. */
void zns_swept_note(const uint8_t device[ZNS_UUID_LEN]);
uint64_t zns_swept_last(const uint8_t device[ZNS_UUID_LEN]);

/* Creates the runtime directory (0700) if it does not exist, and checks that no other user can
 * write to it. */
int zns_broker_run_dir(struct zns_err *err);

/*
 * Takes the exclusive lock on the device's backing path, which znsd holds as long as it runs,
 * whichever runtime directory it uses. Retries for @wait_ms. -EBUSY: the message names the holder.
 * Close *fd_out to unlock.
 */
int zns_broker_lock_device(const char *dev_path, unsigned wait_ms, int *fd_out,
			   struct zns_err *err);

/* flock(LOCK_EX) that gives up after @wait_ms; -EBUSY: the file is still locked. */
int zns_flock_wait(int fd, unsigned wait_ms);
/*
 * Takes "UUID.readers" or "UUID.writers" shared; to be called after connecting. While a client
 * holds .readers, no new broker resets zones, which the client might be reading; while one holds
 * .writers, no new broker serves requests. Close *fd_out to release the lock. Waits some seconds if
 * a broker holds the lock for a moment to find out whether it has holders.
 */
int zns_broker_lock_shared(const uint8_t uuid[ZNS_UUID_LEN], const char *suffix, int *fd_out,
			   struct zns_err *err);
/* PID of a process other than this one that holds a flock on @fd's file; 0: none was found. */
int zns_flock_holder(int fd);

#endif
