/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef KEEP_WIRE_H
#define KEEP_WIRE_H
/*
 * Packets between pagers and the keeper, on $ZNS_RUN/memory/keeper. A pager says MK_BEGIN, and
 * then hands over sets: MK_SET, the data in MK_DATA, the descriptors in MK_FDS, MK_COMMIT. BEGIN,
 * COMMIT and END are answered with MK_ACK. A successor gets MK_BEGIN and a set from the keeper,
 * which nobody answers, and then is a pager like the first.
 */
#include <stdbool.h>
#include "zns/memkeep.h"
#include "zns/util.h"

#define MK_VERSION 1u
#define MK_DIR "memory"
/* no context has a file without a suffix, or with these */
#define MK_SOCKET "keeper"
#define MK_LOCK "keeper.lock"
#define MK_LOG "keeper.messages"
#define MK_TIMEOUT_S 5 /* for one packet */
#define MK_CHUNK 32768u /* bytes of data in a packet */
#define MK_CHUNK_FDS 128u

enum mk_op { MK_BEGIN = 1, MK_SET, MK_DATA, MK_FDS, MK_COMMIT, MK_ACK, MK_END };

struct mk_head {
	uint32_t version, op;
	/* MK_SET, MK_FDS: descriptors; MK_BEGIN to a successor: deaths; MK_ACK of -EDQUOT and
	 * -ENOSPC: contexts that its tenant has, or that all have */
	uint32_t nr;
	/* MK_SET, MK_DATA: bytes; MK_BEGIN of a pager: its tenant, as a number (older ones: 0) */
	uint32_t len;
	int32_t code; /* MK_ACK: 0 or -errno; MK_BEGIN of a pager: 1: it was kept before */
	char name[ZNS_NAME_MAX + 4]; /* MK_BEGIN */
};

struct mk_packet {
	struct mk_head h;
	uint8_t data[MK_CHUNK];
	int fds[MK_CHUNK_FDS];
	uint32_t nr_fds;
};

/* Half a set, as its packets come. */
struct mk_set {
	uint8_t *data;
	int *fds;
	uint32_t len, nr; /* announced */
	uint32_t has_len, has_nr;
};

int mk_send(int sk, const struct mk_head *h, const void *data, const int *fds);
/* 1, 0: the other side is gone, or -errno; then it has no descriptors. What it says of itself is
 * true: lengths and numbers are checked. */
int mk_recv(int sk, struct mk_packet *p);
void mk_close(struct mk_packet *p);

int mk_send_set(int sk, const void *data, size_t len, const int *fds, uint32_t nr);
/* One more packet of a set. 1: it was MK_COMMIT, and the set is whole; 0: more to come; -errno.
 * Takes the packet's descriptors in any case. */
int mk_set_add(struct mk_set *s, struct mk_packet *p);
void mk_set_free(struct mk_set *s);

#endif
