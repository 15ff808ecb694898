/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_HELPER_KEEP_H
#define ZNS_HELPER_KEEP_H
/*
 * Trackers between two dumps (Documentation/inside/live.md, "Incremental dumps"). A keeper is a process of
 * this program that holds the descriptors of one checkpoint's trackers, and does nothing with them.
 * The helper of a dump hands them to it (keep_hand.c), that of the next one takes them
 * (keep_take.c).
 *
 * Packets on a SOCK_SEQPACKET socket. A keeper gets KEEP_SET and so many KEEP_TASK from the helper
 * that started it, on descriptor 3, and answers KEEP_READY. Then it listens. It greets whoever
 * connects with the same packets; one at a time. When the connection ends, all is as before, unless
 * one of the packets below came.
 */
#include <stdbool.h>
#include "zns/track.h"
#include "zns/util.h"

#define KEEP_ARGUMENT "--keep" /* argument with which zns-helper becomes a keeper */
#define KEEP_FD 3
#define KEEP_VERSION 1u
#define KEEP_TIMEOUT_S 2 /* seconds for sending or receiving one packet */
#define KEEP_TASKS_MAX 65536u

enum keep_op {
	KEEP_SET = 1,
	KEEP_TASK, /* descriptors: enum zns_track_fd, and a memfd with struct keep_pages */
	KEEP_READY,
	KEEP_BUSY, /* another process has the trackers */
	/* to the keeper */
	/* pages were protected anew for a dump that is not committed: the keeper must not return to
	 * its old state */
	KEEP_CHANGED,
	KEEP_TAKEN, /* another keeper has the trackers: exit */
	KEEP_DROP, /* the trackers are not needed any more: end the protection, and exit */
};

#define KEEP_FDS (ZNS_TRACK_FDS + 1)
#define KEEP_PAGES ZNS_TRACK_FDS

struct keep_packet {
	uint32_t version, op;
	uint32_t nr; /* number of tasks */
	uint32_t pad;
	uint64_t limit_s;
	uint8_t id[ZNS_UUID_LEN]; /* id of the checkpoint */
	/* not sent */
	int fd[KEEP_FDS];
	uint32_t nr_fd;
};

/* Which pages of a task the checkpoint has, and which areas were dumped: struct zns_span[nr] and
 * [nr_areas] follow. */
struct keep_pages {
	uint64_t nr, nr_areas;
	char pagemap[64]; /* name of the image with their entries */
};

/* keep_wire.c */
int keep_send(int sk, struct keep_packet *p);
/* Returns 1: a packet; 0: the peer has closed the socket; or -errno. The caller owns the
 * descriptors. */
int keep_recv(int sk, struct keep_packet *p);
void keep_close(struct keep_packet *p);
/* Reads the memfd of a KEEP_TASK. -EPROTO: impossible lengths, or lists that are out of order. */
int keep_read_pages(int fd, char pagemap[64], struct zns_spans *pages, struct zns_spans *areas);
void keep_timeouts(int sk);
/* The directory of the sockets, which is made if it is missing. A descriptor, or -errno. */
int keep_dir(struct zns_err *err);
/* Addresses the socket of a checkpoint; the directory's descriptor must stay open. */
struct sockaddr_un;
void keep_address(int dir, const char *name, struct sockaddr_un *a);
void keep_name(const uint8_t id[ZNS_UUID_LEN], char out[64]);

/* keeper.c: the program. Its exit code. */
int keeper(void);

#endif
