/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_QUIESCE_H
#define ZNS_QUIESCE_H
/*
 * The requests of a dump to the pager of a memory context (zns/mem.h): which pages of a frozen
 * process are on zones, and where? Between zns_quiesce_begin and zns_quiesce_end the pager evicts
 * nothing, but serves faults. If the dump dies, the pager ends this state by itself. It only
 * answers root.
 *
 * Requests are packets over $ZNS_RUN/memory/NAME.seal, each with one answer.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "zns/err.h"

/* the name that earlier releases use, whose pagers may still run */
#define ZNS_QUIESCE_SUFFIX ".seal"
#define ZNS_QUIESCE_PIDS_MAX 8192u /* most processes of a dumped tree; a context has far fewer */

enum zns_quiesce_op {
	/* int32_t pid[nr] follow. If one of them belongs to the pager's context, the pager stops
	 * evicting */
	ZNS_QUIESCE_BEGIN = 1,
	/* asks for the units of the frozen process @pid; the answer has a memfd with an array of
	 * struct zns_quiesce_unit */
	ZNS_QUIESCE_UNITS,
	/* the answer has a descriptor of the context's key (zns/crypt_memory.h), or none if the
	 * context's memory on zones is not encrypted */
	ZNS_QUIESCE_KEY,
	ZNS_QUIESCE_OWNS, /* @pid, @start, @end: does the pager's userfaultfd cover this area? */
};

struct zns_quiesce_ask {
	uint32_t op, nr;
	int32_t pid;
	uint32_t pad;
	uint64_t start, end;
};

struct zns_quiesce_answer {
	int32_t code; /* 0 or -errno; -ENOENT: the process does not belong to this context */
	uint32_t nr; /* number of units */
	uint8_t context[16], device[16]; /* in the answer to ZNS_QUIESCE_BEGIN */
	char msg[256];
};

/* A unit (64 KiB of a process) that has a place on zones. The memfd with these has F_SEAL_WRITE. */
struct zns_quiesce_unit {
	uint64_t addr; /* address of its first page */
	uint64_t off, hash; /* off: offset in the zone; hash: XXH3-64 of the bytes on the device */
	uint32_t zone;
	/* One bit for each page; bit 0 is the first. @mask: the unit on the device has the page; if
	 * the process has it in memory, too, the memory counts. @clean: the process has the page in
	 * memory, equal to the one on the device. */
	uint16_t mask, clean;
	uint8_t nonce[12], tag[16]; /* if encrypted: nonce and tag for decryption */
	uint32_t pad;
};

struct zns_quiesce;

/* Finds the context of these processes and makes its pager stop evicting. *@out is NULL if they
 * belong to no context. -EBUSY: another dump of the context is running. */
int zns_quiesce_begin(const pid_t *pid, uint32_t nr, struct zns_quiesce **out, struct zns_err *err);
const uint8_t *zns_quiesce_context(const struct zns_quiesce *s);
const uint8_t *zns_quiesce_device(const struct zns_quiesce *s);
const char *zns_quiesce_name(const struct zns_quiesce *s);
/* Returns the units of a process, checked and in order of their addresses; the caller frees *out.
 * -ENOENT: the process does not belong to the context. */
int zns_quiesce_units(struct zns_quiesce *s, pid_t pid, struct zns_quiesce_unit **out, size_t *nr,
		      struct zns_err *err);
/* Returns the context's key. The caller owns *@fd; -1: the context's memory on zones is not
 * encrypted. */
int zns_quiesce_key(struct zns_quiesce *s, int *fd, struct zns_err *err);
/* Does the userfaultfd of this area belong to the pager? For an empty area: does the process belong
 * to the context? 0: yes; -ENOENT: no. */
int zns_quiesce_owns(struct zns_quiesce *s, pid_t pid, uint64_t start, uint64_t end,
		     struct zns_err *err);
void zns_quiesce_end(struct zns_quiesce *s); /* @s may be NULL */

/* Is a list of units from a pager plausible: in order, without overlaps, in range? */
bool zns_quiesce_sane(const struct zns_quiesce_unit *u, size_t nr);

#endif
