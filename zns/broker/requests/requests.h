/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef BROKER_REQUESTS_H
#define BROKER_REQUESTS_H
/*
 * The upper storey of znsd: connections, requests, answers, and the process around them. A handler
 * reads a request, lets the policy decide, and puts the answer together.
 */
#include "../policy/policy.h"
#include "zns/broker.h"
#include "zns/reserve.h"

#define ZNSD_CONNS_MAX 4096
#define ZNSD_IDLE_MS 10000

/* An incoming request; see intake.c. */
struct intake {
	size_t room; /* bytes reserved for it; 0: none needed, or none free yet */
	bool dump; /* takes room from the part for dumps */
	bool served; /* the request waits for admission and keeps its room */
	uint64_t since_ns; /* when the wait for the rest of the request began; 0: not waiting */
};

/* A dump_begin that waits for admission. Its connection serves no other request meanwhile. */
struct waiter {
	struct waiter *next;
	struct conn *conn;
	ZnsPb__Request *req;
	/* waits for any zone, not for groups of its own: such dumps have a separate queue */
	bool share;
	char why[ZNS_ERR_MAX]; /* the last try's reason */
	uint64_t deadline; /* zns_mono_ns */
	uint32_t seconds;
};

struct server {
	struct zns_resv resv; /* the drive's reservation, if it has any */
	struct conn *conns;
	uint32_t nr_conns;
	struct waiter *waiters;
	size_t intake_used[2]; /* bytes reserved for requests: [0] others, [1] dumps */
	size_t out_bytes; /* bytes of all answers not sent yet */
	int lock_fd, dev_lock_fd, listen_fd;
	char sock_path[108];
	uint64_t idle_ns; /* 0: never leave */
	uint64_t idle_since;
	pid_t gc_pid; /* PID of the `znsctl gc` that sweeping.c started; 0: none runs */
	/* when it began; when the broker last checked whether one is due */
	uint64_t gc_ns, gc_look_ns;
};

struct reply {
	ZnsPb__Response r;
	struct zns_err err;
	bool later; /* the request waits: no answer now */
	bool hangup; /* close the connection after the answer */
	int fd; /* a descriptor that is sent with the reply, owned by the broker; -1: none */
	void **mem; /* memory to free after the reply is packed */
	size_t nr_mem, max_mem;
};

/* One request for its handler. */
struct call {
	struct conn *conn;
	ZnsPb__Request *q;
	const char *name; /* name of the request */
	struct lease *l; /* the connection's lease, of the kind that the request needs */
};

/* reply.c */
void reply_init(struct reply *rep);
void *reply_alloc(struct reply *rep, size_t len);
void reply_keep(struct reply *rep, void *p); /* @p is freed with the reply */
char *reply_printf(struct reply *rep, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void reply_free(struct reply *rep);
/* the grant of @zone as it is now */
ZnsPb__ZoneGrant *reply_zone(const struct znsd *d, struct reply *rep, uint32_t zone);
/* adds the checkpoints of @chain, and takes its memory */
void reply_chain(struct reply *rep, struct chain *chain);

/* conn.c: one connection */
struct conn *conn_new(struct znsd *d, int fd); /* NULL: refused, and closed */
void conn_free(struct conn *c);
void conn_answer(struct znsd *d, struct conn *c, struct reply *rep, int code);
void conn_send(struct znsd *d, struct conn *c);
void conn_read(struct conn *c);
struct holder conn_holder(struct conn *c);
bool conn_ours(const struct conn *c); /* the peer is of the broker's own user */
bool conn_left(const struct conn *c); /* true: the peer closed it during its request */
/* remember to apply the retention of @container when the connection ends */
void conn_committed(struct conn *c, const char *container);
void conn_set_waiter(struct conn *c, struct waiter *w);
void conn_complain(const struct conn *c, const char *what); /* logs @what, at a limited rate */

/* server.c */
int server_listen(struct znsd *d, struct zns_err *err);
int server_loop(struct znsd *d);

/* sweeping.c: `znsctl gc` by the broker. True: it has begun now. */
bool sweeping_start(struct znsd *d);
void sweeping_end(struct znsd *d); /* the broker ends: `znsctl gc` would start a new broker */
int sweeping_step(struct znsd *d); /* now and then; milliseconds until the next look */

/* intake.c: reserves room for a request of @len bytes. False: there is no room yet, so do not read
 * it. */
bool intake_room(struct znsd *d, struct intake *in, uint32_t len, bool dump);
void intake_end(struct znsd *d, struct intake *in);

/* dispatch.c: returns the code of the answer; details in rep->err */
int dispatch_check(struct zns_err *err); /* every handler is of a request */
/* Requests of a package: before the broker starts. */
struct request_kind {
	const char *name; /* the member of zns_pb.request */
	/* finds x->l, the lease that the request needs; NULL: it needs none */
	int (*find)(const struct znsd *d, struct call *x, struct zns_err *err);
	int (*serve)(struct znsd *d, const struct call *x, struct reply *rep);
};
void dispatch_register(const struct request_kind *kinds, size_t nr);
int dispatch(struct znsd *d, struct conn *c, ZnsPb__Request *q, struct reply *rep);

/* waiters.c */
void waiter_add(struct znsd *d, const struct call *x, const struct dump_ask *a,
		const struct zns_err *why);
uint32_t waiters_before(const struct znsd *d, bool share); /* how many wait in that queue */
void waiter_end(struct znsd *d, struct waiter *w); /* frees its request as well */
void waiter_drop(struct znsd *d, const struct conn *c);

/* beginning.c */
/* tries to admit them in order; returns milliseconds until a deadline, -1: none */
int waiters_run(struct znsd *d);

/* host.c: one machine at a time */
/* -EBUSY: another machine has reserved the device */
int host_claim(struct znsd *d, struct zns_err *err);
void host_release(struct znsd *d);
void host_unreserve(struct znsd *d); /* call last, before the device is closed */
/* finds which host has reserved the device */
void host_look(struct znsd *d, struct zns_resv_state *now);

/* alive.c */
int alive_start(const struct znsd *d, struct zns_err *err);

/* startup.c */
int server_start(struct znsd *d, const char *spec, struct zns_err *err);
void server_stop(struct znsd *d);

#endif
