/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_HELPER_H
#define ZNS_HELPER_H
/* zns-helper: one process per dump or restore. Owns device, buffers and broker connection. */
#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>
#include "zns-wire.h"
#include "zns/bucket.h"
#include "zns/cgroup_io.h"
#include "zns/session.h"
#include "zns/util.h"

/* One received packet. The handler owns its descriptors, and sets those that it takes to -1. */
struct packet {
	struct zw_hdr h;
	uint8_t payload[ZW_MAX_MSG];
	size_t len; /* length of the payload */
	int fd[ZW_MAX_FDS];
	uint32_t nr_fd;
	pid_t sender; /* PID as seen from here */
};

struct helper {
	int sk; /* the socket to criu */
	int criu; /* a pidfd of the process whose exit ends the dump or restore; -1: none */
	int dir; /* image directory, -1 before begin */
	/* one request at a time: threads for zones and progress share the connection */
	struct zns_session s;
	pthread_mutex_t broker_lock;
	/*
	 * a request has timed out: its late answer must not be taken for the answer to another one
	 */
	bool broker_lost;
	struct zns_err broker_err; /* the reason */
	uint32_t cap_mibps; /* --zns-qos-max; 0: not given */
	uint32_t weight; /* --zns-weight; 0: not given */
	struct zns_cgroup_io charged; /* --zns-cgroup */
	bool charge_later; /* the container's cgroup is entered when the tasks are frozen */
	struct zns_bucket *bucket; /* limits the rate of all data of the dump or restore */
	struct progress *progress;
	bool journaled; /* the journal has a record of how it ended */
	uint32_t timeout_s; /* seconds for the whole dump; 0: no limit */
	uint64_t deadline_ns; /* CLOCK_MONOTONIC */
	/* the dump was ended early: the broker's connection is shut, and nothing is committed */
	bool late;
	struct zns_err late_err; /* the reason */
	struct zns_chain *chain; /* the checkpoint and its parents; in a dump the parents only */
	struct dump *dump;
	struct restore *restore;
	struct send *send;
	int fills; /* epoll of the tasks whose areas are to be filled (fill.c); -1: none yet */
};

/* wire.c */
/* 1: a packet, 0: the peer has closed the socket, -errno */
int packet_recv(int sk, struct packet *p);
void packet_close_fds(struct packet *p);
int packet_take_fd(struct packet *p, uint32_t n);
/* @fd < 0: without a descriptor. The caller keeps both descriptors. */
void reply_send(int reply_sk, const struct zw_reply *r, int fd);
void reply_error(int reply_sk, const struct zns_err *err);
/* the payload as a NUL-terminated string, NULL if it is not one */
const char *packet_text(struct packet *p);
const struct zw_begin *packet_begin(const struct packet *p); /* NULL: an impossible message */
/* Takes ownership of the descriptors that zw_begin.progress names; -1: none. */
void packet_progress(struct packet *p, const struct zw_begin *b, int *tty, int *json);
/* an array of h.nr elements, NULL if the payload is too short */
const struct zw_iov *packet_iov(const struct packet *p);

struct dump;
/* attach.c: finds the device, connects to the broker, opens the device, takes the life lock.
 * @writer: the dump, if it is one. Rights that it does not need are given up. */
int helper_attach(struct helper *h, const struct zns_registered *reg, const struct dump *writer,
		  struct zns_err *err);

/* Sets the rate to the broker's limit (0: none), or to our own cap if that is less. */
void helper_set_rate(struct helper *h, uint32_t mibps);
/* Takes --zns-weight and --zns-qos-max from @b, and makes a bucket for it. */
int helper_cap(struct helper *h, const struct zw_begin *b, struct zns_err *err);

/*
 * charge.c: --zns-cgroup of a dump or a restore. The helper enters the container's cgroup after its
 * tasks were frozen, since criu freezes a cgroup and waits for all processes in it. It leaves the
 * cgroup at the end, since that may be frozen again.
 */
int charge_begin(struct helper *h, const struct packet *p, bool live, struct zns_err *err);
int charge_container(struct helper *h, struct zns_err *err);
void charge_end(struct helper *h);

void beat_start(void); /* beat.c: from now on the helper tells criu that it lives */

/*
 * awake.c: from awake_begin() to awake_end(), for 10 s at most, idle CPUs do not sleep: the tasks of
 * a restore, criu and the helper wake each other many times. Does nothing if this process may not
 * ask the kernel for that. awake_timeout(): how long the helper's loop may wait, in ms; -1: for
 * ever. After the 10 s it lets the CPUs sleep.
 */
void awake_begin(uint64_t now_ns); /* CLOCK_MONOTONIC */
int awake_timeout(uint64_t now_ns);
void awake_end(void);

/* dump_session.c, images.c */
int dump_begin(struct helper *h, struct packet *p, struct zns_err *err);
void dump_packet(struct helper *h, struct packet *p);
void dump_broker_gone(struct helper *h);
void dump_end(struct helper *h); /* called when criu has exited; an uncommitted dump is dropped */

/* send.c: a dump to a page server */
int send_begin(struct helper *h, struct packet *p, struct zns_err *err);
void send_packet(struct helper *h, struct packet *p);
void send_end(struct helper *h); /* criu has ended; a round that it did not finish does not count */

/* restore_session.c */
int restore_begin(struct helper *h, struct packet *p, struct zns_err *err);
void restore_packet(struct helper *h, struct packet *p);
void restore_end(struct helper *h);
/* Serves requests for images of h->chain, also in a dump. @above: levels that are not in it. */
int serve_packet(struct helper *h, struct packet *p, uint32_t above, struct zns_err *err);

/*
 * deadline.c: --timeout, SIGTERM, and criu's end. Then the dump and all waits for the broker fail.
 * admitted() takes the result of the beginning: it sets h->dump, or fails with the reason. asked():
 * the commit is next, and criu's end does not end the dump any more; fails if something has ended it
 * before. over(): it is committed, and nothing ends it any more.
 */
int deadline_start(struct helper *h, uint32_t timeout_s, struct zns_err *err);
int deadline_admitted(struct helper *h, struct dump *d, int ret, struct zns_err *err);
int deadline_asked(const struct helper *h, struct zns_err *err);
void deadline_over(void);

/* bundle.c: a memfd with the small images of level 0, or -errno. @complete: it names all. */
struct zns_flat;
int bundle_make(const struct zns_chain *c, const struct zns_flat *flat, bool complete,
		struct zns_err *err);

/* beside.c: puts plugins' files into the image directory, and removes them again. */
struct zns_reader;
int beside_put_back(int dir, const ZnsPb__Manifest *m, struct zns_reader *r, struct zns_err *err);
void beside_take_away(int dir);

/*
 * first.c: the pages touched first. begin: what the lazy-pages daemon fetches is noted. fetch: @len
 * bytes at @off of an image. serve: ZW_FIRST.
 */
struct zns_rimage;
struct zns_flat;
void first_begin(void);
void first_fetch(const struct zns_rimage *img, uint64_t off, uint64_t len);
int first_serve(struct helper *h, struct packet *p, const struct zns_flat *flat,
		const ZnsPb__FirstPages *recorded, struct zns_err *err);

/* lazy.c: the gate of a lazy-pages daemon (ZW_GATE), and its reads (ZW_FETCH). @flat: not NULL: the
 * image in the flat view. */
int lazy_gate(struct helper *h, struct packet *p, struct zns_err *err);
int lazy_fetch(struct helper *h, struct packet *p, struct zns_rimage *img, struct zns_flat *flat,
	       struct zns_err *err);

/* check_device.c: `criu check --feature zns`: checks a dump's device, its broker, its zones. */
int check_device(struct helper *h, struct packet *p, struct zns_err *err);

/* container_id.c: the container id in a task's cgroup path (64 hex digits), or -ENOENT. */
int cgroup_container_id(pid_t pid, char *out, size_t len);

/* origin.c: fills in the fields that come from the environment; 0 or -ENOMEM. */
int origin_fill(ZnsPb__Origin *o);
bool origin_ticket(uint8_t id[ZNS_UUID_LEN]); /* the ticket of an earlier admission */
/* The end of criu's present log, in a memfd; -1: there is no log. */
int origin_log(void);
/* Files that a runtime wrote into the image directory before the dump. */
#define ORIGIN_FDS "descriptors.json" /* runc: the pipes that it must open again */
#define ORIGIN_SHAPE "zns-shape.json" /* zns-runc: the container's rights and mounts */
/* Such a file in a memfd; -1: there is none, or it is left out, and *@why says so. */
int origin_file(int dir, const char *name, const char **why);
/* May the restored container (zns-runc names it) have the checkpoint? -EPERM. */
int origin_check(const ZnsPb__Checkpoint *c, struct zns_err *err);
const char *origin_admission(const char *asked); /* shortens the wait of a frozen container */

/*
 * task_size.c: lists the tasks of the tree below @root, @root first. Returns their number. The
 * caller frees *@out.
 */
uint32_t task_tree(pid_t root, pid_t **out);
/* The estimated size in bytes of a dump of that tree. *@least: what it writes at least, unless a
 * parent or a memory context has it. */
uint64_t task_tree_bytes(pid_t pid, uint64_t *least);
/* memory of a task in bytes; @shared: only what is not private */
uint64_t task_bytes(pid_t pid, bool shared);
/* the user that a task runs as */
int task_uid(pid_t pid, uint32_t *uid);

#endif
