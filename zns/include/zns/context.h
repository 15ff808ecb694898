/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_CONTEXT_H
#define ZNS_CONTEXT_H
/*
 * The lock file of a memory context, "UUID.memory-CONTEXT" in the runtime directory. Its holders
 * keep a shared flock on it; while there is any, the context's zones are not touched by anybody
 * else, whether a broker runs or not. Behind a head stands a byte for each zone of the device: 1,
 * if the context has it. Only the broker writes these: before it grants a zone, and after a zone
 * has been given back. So a new broker knows them before it serves anybody. A crash of the host
 * takes the file with it (/run), or at least the lock. Functions return 0 or -errno and fill @err.
 */
#include <stdbool.h>
#include "zns/config.h"

#define ZNS_CONTEXT_HEAD 512 /* bytes before the zones */

struct zns_context {
	uint8_t id[ZNS_UUID_LEN];
	uint8_t device[ZNS_UUID_LEN];
	char container[ZNS_NAME_MAX + 1];
	/* The checkpoint in which a part of the context's memory still is; all zero: none. Broker
	 * and tools neither move nor remove it or its parents. */
	uint8_t origin[ZNS_UUID_LEN];
	bool encrypted; /* its memory on zones is encrypted */
};

int zns_context_path(const uint8_t device[ZNS_UUID_LEN], const uint8_t id[ZNS_UUID_LEN], char *out,
		     size_t len);

/* A new file for @c with no zone in it, locked before it has its name. *fd_out holds the lock. */
int zns_context_create(const struct zns_context *c, uint32_t nr_zones, int *fd_out,
		       struct zns_err *err);

/* Reads the file; it is refused (-EBADMSG) unless it is a whole file of this format with @nr_zones.
 * 0: any number of zones. */
int zns_context_read(int fd, uint32_t nr_zones, struct zns_context *out, struct zns_err *err);

/* Opens the file of a context, for the broker. -ESTALE: the context has ended. */
int zns_context_open(const uint8_t device[ZNS_UUID_LEN], const uint8_t id[ZNS_UUID_LEN],
		     uint32_t nr_zones, struct zns_context *out, int *fd_out, struct zns_err *err);

/* Calls @fn with the id of each lock file that @device has here, whether anybody holds it or not,
 * until it returns nonzero; returns that. */
int zns_context_each(const uint8_t device[ZNS_UUID_LEN],
		     int (*fn)(void *arg, const uint8_t id[ZNS_UUID_LEN]), void *arg);

/* Does any process hold the lock? @fd: from zns_context_open(), which does not lock. */
bool zns_context_alive(int fd);

/* Has the context the zone? Negative: -errno. */
int zns_context_has(int fd, uint32_t zone);
int zns_context_set(int fd, uint32_t zone, bool has);

/* Sets a mark on the device itself, for brokers with another runtime directory: it lasts as long as
 * *@fd_out is open. */
int zns_context_mark(const char *dev_path, int *fd_out, struct zns_err *err);
bool zns_context_marked(int dev_fd); /* @dev_fd: open, without a mark */

/* To be called by the context's own process. NULL: no origin. Takes effect before it returns. */
int zns_context_set_origin(int fd, const uint8_t origin[ZNS_UUID_LEN]);

#endif
