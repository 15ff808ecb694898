/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_CONTEXT_H
#define ZNS_CONTEXT_H
/*
 * The lock file of a memory context, "UUID.memory-CONTEXT" in the runtime directory. The processes
 * of the context hold a shared flock on it. While any of them does, nobody else touches the
 * context's zones, whether a broker runs or not. The file has a header and then one byte for each
 * zone of the device: 1 if the context owns that zone. Only the broker writes these bytes: before
 * it grants a zone, and after a zone was given back. So a new broker knows the owned zones before
 * it serves anybody. After a crash of the host the file (in /run), or at least the lock, is gone.
 * Functions return 0 or -errno and fill @err.
 */
#include <stdbool.h>
#include "zns/config.h"

#define ZNS_CONTEXT_HEAD 512 /* size of the header in bytes */

struct zns_context {
	uint8_t id[ZNS_UUID_LEN];
	uint8_t device[ZNS_UUID_LEN];
	char container[ZNS_NAME_MAX + 1];
	/* The checkpoint in which a part of the context's memory still is; all zero: none. The
	 * broker and the tools neither move nor remove this checkpoint or its parents. */
	uint8_t origin[ZNS_UUID_LEN];
	bool encrypted; /* the context's memory on zones is encrypted */
};

int zns_context_path(const uint8_t device[ZNS_UUID_LEN], const uint8_t id[ZNS_UUID_LEN], char *out,
		     size_t len);

/* Creates the lock file of @c, without any zone. It is locked before it gets its name. *fd_out
 * holds the lock. */
int zns_context_create(const struct zns_context *c, uint32_t nr_zones, int *fd_out,
		       struct zns_err *err);

/* Reads and checks the file. -EBADMSG: it is not a complete file of this format with @nr_zones
 * zones. @nr_zones 0: any number is accepted. */
int zns_context_read(int fd, uint32_t nr_zones, struct zns_context *out, struct zns_err *err);

/* Opens the lock file of a context; for the broker. -ESTALE: the context has ended. */
int zns_context_open(const uint8_t device[ZNS_UUID_LEN], const uint8_t id[ZNS_UUID_LEN],
		     uint32_t nr_zones, struct zns_context *out, int *fd_out, struct zns_err *err);

/* Calls @fn with the id of each lock file of @device in the runtime directory, locked or not, until
 * it returns nonzero; returns that value. */
int zns_context_each(const uint8_t device[ZNS_UUID_LEN],
		     int (*fn)(void *arg, const uint8_t id[ZNS_UUID_LEN]), void *arg);

/* Does any process hold the lock? @fd comes from zns_context_open(), which does not lock. */
bool zns_context_alive(int fd);

/* Does the context own the zone? 1, 0 or -errno. zns_context_set changes that. */
int zns_context_has(int fd, uint32_t zone);
int zns_context_set(int fd, uint32_t zone, bool has);

/* Marks the device itself as used by a memory context, for brokers that use another runtime
 * directory. The mark lasts as long as *@fd_out is open. */
int zns_context_mark(const char *dev_path, int *fd_out, struct zns_err *err);
/* @dev_fd: a descriptor of the device that has not set a mark itself */
bool zns_context_marked(int dev_fd);

/* Changes the origin; to be called by the context's own process. NULL: no origin any more. The
 * change has taken effect when the call returns. */
int zns_context_set_origin(int fd, const uint8_t origin[ZNS_UUID_LEN]);

#endif
