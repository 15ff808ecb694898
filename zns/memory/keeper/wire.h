/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef KEEP_WIRE_H
#define KEEP_WIRE_H
/*
 * Packets between pagers and the keeper, on $ZNS_RUN/memory/keeper. A pager sends MK_BEGIN, and
 * then hands over sets: MK_SET, the data in MK_DATA, the descriptors in MK_FDS, then MK_COMMIT. The
 * keeper answers MK_BEGIN, MK_COMMIT and MK_END with MK_ACK. To a successor, the keeper first sends
 * MK_BEGIN and a set, which get no answer; then the successor behaves like any pager.
 */
#include <stdbool.h>
#include "zns/memkeep.h"
#include "zns/util.h"

#define MK_VERSION 1u
#define MK_DIR "memory"
/* these names cannot be those of a context's files, which have other suffixes */
#define MK_SOCKET "keeper"
#define MK_LOCK "keeper.lock"
#define MK_LOG "keeper.messages"
#define MK_TIMEOUT_S 5 /* s; limit for receiving one packet */
#define MK_CHUNK 32768u /* most bytes of data in a packet */
#define MK_CHUNK_FDS 128u

enum mk_op { MK_BEGIN = 1, MK_SET, MK_DATA, MK_FDS, MK_COMMIT, MK_ACK, MK_END };

struct mk_head {
	uint32_t version, op;
	/*
	 * MK_SET, MK_FDS: number of descriptors. MK_BEGIN to a successor: number of pagers that
	 * died. MK_ACK with -EDQUOT: number of contexts of this tenant; with -ENOSPC: of all
	 * tenants.
	 */
	uint32_t nr;
	/*
	 * MK_SET, MK_DATA: bytes. MK_BEGIN from a pager: a number for its tenant (older pagers send
	 * 0).
	 */
	uint32_t len;
	/* MK_ACK: 0 or -errno. MK_BEGIN from a pager: 1 if an earlier keeper had this context. */
	int32_t code;
	char name[ZNS_NAME_MAX + 4]; /* only in MK_BEGIN */
};

struct mk_packet {
	struct mk_head h;
	uint8_t data[MK_CHUNK];
	int fds[MK_CHUNK_FDS];
	uint32_t nr_fds;
};

/* A set that is being received. */
struct mk_set {
	uint8_t *data;
	int *fds;
	uint32_t len, nr; /* as announced in MK_SET */
	uint32_t has_len, has_nr;
};

int mk_send(int sk, const struct mk_head *h, const void *data, const int *fds);
/*
 * Receives a packet, and checks its lengths and numbers. 1: a packet; 0: the other side has closed
 * the connection; or -errno. If there is no packet, @p has no descriptors.
 */
int mk_recv(int sk, struct mk_packet *p);
void mk_close(struct mk_packet *p);

int mk_send_set(int sk, const void *data, size_t len, const int *fds, uint32_t nr);
/*
 * Adds a packet to a set. 1: it was MK_COMMIT, and the set is complete; 0: more packets follow; or
 * -errno. Takes over the packet's descriptors in any case.
 */
int mk_set_add(struct mk_set *s, struct mk_packet *p);
void mk_set_free(struct mk_set *s);

#endif
