/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_QUIESCE_H
#define ZNS_QUIESCE_H
/*
 * What a dump asks the pager of a memory context (zns/mem.h): which of a frozen process's pages are
 * on zones, and where. Between zns_quiesce_begin and zns_quiesce_end the pager evicts nothing, and
 * serves faults. If the dump dies, the pager ends this by itself. It answers root alone.
 *
 * Packets over $ZNS_RUN/memory/NAME.seal, one answer for each request.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "zns/err.h"

#define ZNS_QUIESCE_SUFFIX ".seal" /* as in earlier releases, whose pagers may still run */
#define ZNS_QUIESCE_PIDS_MAX 8192u /* most processes of a tree; a context has far fewer */

enum zns_quiesce_op {
	/* int32_t pid[nr] follow: asks whether one of them is the pager's, and begins */
	ZNS_QUIESCE_BEGIN = 1,
	/* the units of @pid, which is frozen; answered with a memfd of struct zns_quiesce_unit */
	ZNS_QUIESCE_UNITS,
	/* answered with a descriptor of the context's key (zns/crypt_memory.h), or without one if
	 * its memory on zones is not encrypted */
	ZNS_QUIESCE_KEY,
	ZNS_QUIESCE_OWNS, /* @pid, @start, @end: does your userfaultfd have this area? */
};

struct zns_quiesce_ask {
	uint32_t op, nr;
	int32_t pid;
	uint32_t pad;
	uint64_t start, end;
};

struct zns_quiesce_answer {
	int32_t code; /* 0 or -errno; -ENOENT: the process belongs to another context */
	uint32_t nr; /* of units */
	uint8_t context[16], device[16]; /* to ZNS_QUIESCE_BEGIN */
	char msg[256];
};

/* 64 KiB of a process that have a place. The memfd has F_SEAL_WRITE. */
struct zns_quiesce_unit {
	uint64_t addr; /* address of its first page */
	uint64_t off, hash; /* off: offset in the zone; hash: XXH3-64 of the bytes on the device */
	uint32_t zone;
	/* pages, the first one is bit 0. @mask: are there, unless the process has the page in
	 * memory. @clean: has it in memory, and it is the same */
	uint16_t mask, clean;
	uint8_t nonce[12], tag[16]; /* if encrypted: nonce and tag for decryption */
	uint32_t pad;
};

struct zns_quiesce;

/* Finds the context of these processes, and begins. *@out is NULL if they belong to no context.
 * -EBUSY: another dump of the context is running. */
int zns_quiesce_begin(const pid_t *pid, uint32_t nr, struct zns_quiesce **out, struct zns_err *err);
const uint8_t *zns_quiesce_context(const struct zns_quiesce *s);
const uint8_t *zns_quiesce_device(const struct zns_quiesce *s);
const char *zns_quiesce_name(const struct zns_quiesce *s);
/* In order of addresses, checked, to be freed. -ENOENT: the process is not of the context. */
int zns_quiesce_units(struct zns_quiesce *s, pid_t pid, struct zns_quiesce_unit **out, size_t *nr,
		      struct zns_err *err);
/* *@fd is the caller's; -1: what the context has on zones is in clear. */
int zns_quiesce_key(struct zns_quiesce *s, int *fd, struct zns_err *err);
/* Does the userfaultfd of this area belong to the pager? For an empty area: does the process belong
 * to the context? 0: yes; -ENOENT: no. */
int zns_quiesce_owns(struct zns_quiesce *s, pid_t pid, uint64_t start, uint64_t end,
		     struct zns_err *err);
void zns_quiesce_end(struct zns_quiesce *s); /* NULL is fine */

/* Is a list that a pager sent possible: in order, without overlaps, in range? */
bool zns_quiesce_sane(const struct zns_quiesce_unit *u, size_t nr);

#endif
