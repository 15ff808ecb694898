/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_HELPER_KEEP_H
#define ZNS_HELPER_KEEP_H
/*
 * Keeping trackers between two dumps (Documentation/inside/live.md, "Incremental dumps"). A keeper
 * is a process of this program that holds the descriptors of one checkpoint's trackers, and does
 * nothing with them. The helper of a dump hands them to the keeper (keep_hand.c). The helper of the
 * next dump takes them (keep_take.c).
 *
 * Helpers and keepers exchange packets on a SOCK_SEQPACKET socket. The helper that starts a keeper
 * sends KEEP_SET and one KEEP_TASK for each task on descriptor 3, and the keeper answers
 * KEEP_READY. Then the keeper listens, and serves one client at a time: it sends the same KEEP_SET
 * and KEEP_TASK packets to whoever connects. If the client disconnects without sending one of the
 * packets below, the keeper keeps the trackers for the next client.
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
	KEEP_BUSY, /* another client is connected at the moment */
	/* to the keeper */
	/*
	 * pages were protected anew for a dump that is not committed yet: if the client disconnects
	 * now, the keeper must end the tracking
	 */
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
	/* these fields are not sent */
	int fd[KEEP_FDS];
	uint32_t nr_fd;
};

/*
 * Which pages of a task the checkpoint has, and which areas were dumped. struct zns_span[nr] and
 * struct zns_span[nr_areas] follow.
 */
struct keep_pages {
	uint64_t nr, nr_areas;
	char pagemap[64]; /* name of the pagemap image with the entries of these pages */
};

/* keep_wire.c */
int keep_send(int sk, struct keep_packet *p);
/* Returns 1: a packet; 0: the peer has closed the socket; or -errno. The caller owns the
 * descriptors. */
int keep_recv(int sk, struct keep_packet *p);
void keep_close(struct keep_packet *p);
/*
 * Reads the memfd of a KEEP_TASK. -EPROTO: its lengths are impossible, or its lists are not sorted.
 */
int keep_read_pages(int fd, char pagemap[64], struct zns_spans *pages, struct zns_spans *areas);
void keep_timeouts(int sk);
/*
 * Opens the directory of the sockets, and makes it if it is missing. Returns a descriptor, or
 * -errno.
 */
int keep_dir(struct zns_err *err);
/* Addresses the socket of a checkpoint; the directory's descriptor must stay open. */
struct sockaddr_un;
void keep_address(int dir, const char *name, struct sockaddr_un *a);
void keep_name(const uint8_t id[ZNS_UUID_LEN], char out[64]);

/* keeper.c: runs the keeper; returns its exit code. */
int keeper(void);

#endif
