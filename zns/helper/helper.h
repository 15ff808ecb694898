/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_HELPER_H
#define ZNS_HELPER_H
/*
 * zns-helper: one process per dump or restore. It owns the device, the buffers and the connection
 * to the broker.
 */
#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>
#include "zns-wire.h"
#include "zns/bucket.h"
#include "zns/cgroup_io.h"
#include "zns/session.h"
#include "zns/util.h"

/*
 * One received packet. The handler owns its descriptors. It sets a descriptor that it keeps to -1,
 * so that the caller does not close it.
 */
struct packet {
	struct zw_hdr h;
	uint8_t payload[ZW_MAX_MSG];
	size_t len; /* length of the payload */
	int fd[ZW_MAX_FDS];
	uint32_t nr_fd;
	pid_t sender; /* PID of the sender in the helper's PID namespace */
};

struct helper {
	int sk; /* the socket to criu */
	int criu; /* a pidfd of the process whose exit ends the dump or restore; -1: none */
	int dir; /* image directory, -1 before begin */
	/*
	 * broker_lock serializes requests: the threads for zones and for progress share the
	 * connection
	 */
	struct zns_session s;
	pthread_mutex_t broker_lock;
	/*
	 * a request has timed out: its late answer must not be taken for the answer to a later
	 * request
	 */
	bool broker_lost;
	struct zns_err broker_err; /* why the broker is lost */
	uint32_t cap_mibps; /* --zns-qos-max; 0: not given */
	uint32_t weight; /* --zns-weight; 0: not given */
	struct zns_cgroup_io charged; /* --zns-cgroup */
	bool charge_later; /* the container's cgroup is entered when the tasks are frozen */
	struct zns_bucket *bucket; /* limits the rate of all data of the dump or restore */
	struct progress *progress;
	bool journaled; /* the journal has a record of how the dump or restore ended */
	uint32_t timeout_s; /* seconds for the whole dump; 0: no limit */
	uint64_t deadline_ns; /* CLOCK_MONOTONIC */
	/*
	 * the dump was ended early (deadline.c): the connection to the broker is shut, and nothing
	 * is committed
	 */
	bool late;
	struct zns_err late_err; /* why it was ended early */
	struct zns_chain *chain; /* the checkpoint and its parents; in a dump the parents only */
	struct dump *dump;
	struct restore *restore;
	struct send *send;
	/* epoll descriptor of the tasks whose areas the helper will fill (fill.c); -1: none yet */
	int fills;
};

/* wire.c */
/* 1: a packet, 0: the peer has closed the socket, -errno */
int packet_recv(int sk, struct packet *p);
void packet_close_fds(struct packet *p);
int packet_take_fd(struct packet *p, uint32_t n);
/* @fd < 0: without a descriptor. The caller keeps both descriptors. */
void reply_send(int reply_sk, const struct zw_reply *r, int fd);
void reply_error(int reply_sk, const struct zns_err *err);
/* The payload as a string. NULL: it is not NUL-terminated. */
const char *packet_text(struct packet *p);
const struct zw_begin *packet_begin(const struct packet *p); /* NULL: the message is invalid */
/* Takes ownership of the descriptors that zw_begin.progress names; -1: none. */
void packet_progress(struct packet *p, const struct zw_begin *b, int *tty, int *json);
/* an array of h.nr elements, NULL if the payload is too short */
const struct zw_iov *packet_iov(const struct packet *p);

struct dump;
/*
 * attach.c: finds the device, connects to the broker, opens the device, takes the life lock.
 * @writer: the dump; NULL for a restore. Capabilities that are not needed any more are dropped.
 */
int helper_attach(struct helper *h, const struct zns_registered *reg, const struct dump *writer,
		  struct zns_err *err);

/* Sets the rate to @mibps, the broker's limit (0: none), or to --zns-qos-max if that is lower. */
void helper_set_rate(struct helper *h, uint32_t mibps);
/* Takes --zns-weight and --zns-qos-max from @b, and makes the bucket that limits the rate. */
int helper_cap(struct helper *h, const struct zw_begin *b, struct zns_err *err);

/*
 * charge.c: --zns-cgroup of a dump or a restore. The helper enters the container's cgroup after its
 * tasks were frozen, since criu freezes a cgroup and waits for all processes in it. It leaves the
 * cgroup at the end, since that may be frozen again.
 */
int charge_begin(struct helper *h, const struct packet *p, bool live, struct zns_err *err);
int charge_container(struct helper *h, struct zns_err *err);
void charge_end(struct helper *h);

void beat_start(void); /* beat.c: from now on the helper tells criu that it is alive */

/*
 * awake.c: keeps idle CPUs out of deep sleep states from awake_begin() to awake_end(), for 10 s at
 * most: the tasks of a restore, criu and the helper wake each other many times. Does nothing if
 * this process may not ask the kernel for that. awake_timeout(): how long the helper's loop may
 * wait, in ms; -1: without limit. After the 10 s it drops the request.
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
void send_end(struct helper *h); /* called when criu has exited; an unfinished round is not kept */

/* restore_session.c */
int restore_begin(struct helper *h, struct packet *p, struct zns_err *err);
void restore_packet(struct helper *h, struct packet *p);
void restore_end(struct helper *h);
/*
 * Answers requests for images of h->chain, also during a dump. @above: number of levels that criu
 * counts above the chain.
 */
int serve_packet(struct helper *h, struct packet *p, uint32_t above, struct zns_err *err);

/*
 * deadline.c: --timeout, SIGTERM and the exit of criu make the dump and all waits for the broker
 * fail. deadline_admitted() gets the result of the dump's beginning: it sets h->dump, or fails with
 * the reason. deadline_asked(): the commit is next, and from now on the exit of criu does not end
 * the dump; fails if something has ended the dump before. deadline_over(): the dump is committed,
 * and nothing ends it any more.
 */
int deadline_start(struct helper *h, uint32_t timeout_s, struct zns_err *err);
int deadline_admitted(struct helper *h, struct dump *d, int ret, struct zns_err *err);
int deadline_asked(const struct helper *h, struct zns_err *err);
void deadline_over(void);

/*
 * bundle.c: returns a memfd with the small images of level 0, or -errno. @complete: mark the bundle
 * as complete if it lists every image that criu may ask for.
 */
struct zns_flat;
int bundle_make(const struct zns_chain *c, const struct zns_flat *flat, bool complete,
		struct zns_err *err);

/* beside.c: writes plugins' files into the image directory, and removes them again. */
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

/*
 * lazy.c: takes the gate of a lazy-pages daemon (ZW_GATE), and answers its reads (ZW_FETCH). @flat:
 * the flat view that has the image, or NULL.
 */
int lazy_gate(struct helper *h, struct packet *p, struct zns_err *err);
int lazy_fetch(struct helper *h, struct packet *p, struct zns_rimage *img, struct zns_flat *flat,
	       struct zns_err *err);

/* check_device.c: `criu check --feature zns`: checks a dump's device, its broker and its zones. */
int check_device(struct helper *h, struct packet *p, struct zns_err *err);

/* container_id.c: the container id in a task's cgroup path (64 hex digits), or -ENOENT. */
int cgroup_container_id(pid_t pid, char *out, size_t len);

/* origin.c: fills in the fields that come from the environment; 0 or -ENOMEM. */
int origin_fill(ZnsPb__Origin *o);
bool origin_ticket(uint8_t id[ZNS_UUID_LEN]); /* the ticket of an earlier admission */
/* Returns a memfd with the last part of criu's log; -1: there is no log. */
int origin_log(void);
/* Files that a runtime wrote into the image directory before the dump. */
#define ORIGIN_FDS "descriptors.json" /* runc: the pipes that it must open again at the restore */
#define ORIGIN_SHAPE "zns-shape.json" /* zns-runc: the container's rights and mounts */
/*
 * Returns such a file in a memfd. -1: the file does not exist, or is left out for the reason in
 * *@why.
 */
int origin_file(int dir, const char *name, const char **why);
/*
 * May the restored container, which zns-runc names in the environment, use the checkpoint? If not:
 * -EPERM.
 */
int origin_check(const ZnsPb__Checkpoint *c, struct zns_err *err);
/* limits the wait for admission if the container is frozen already */
const char *origin_admission(const char *asked);

/*
 * task_size.c: lists the tasks of the tree below @root, @root first. Returns their number. The
 * caller frees *@out.
 */
uint32_t task_tree(pid_t root, pid_t **out);
/*
 * The estimated size in bytes of a dump of that tree. *@least: the bytes that the dump writes in
 * any case, unless the parent or a memory context has them.
 */
uint64_t task_tree_bytes(pid_t pid, uint64_t *least);
/* Memory of a task in bytes. @shared: count only memory that is not private. */
uint64_t task_bytes(pid_t pid, bool shared);
/* The user that a task runs as. */
int task_uid(pid_t pid, uint32_t *uid);

#endif
