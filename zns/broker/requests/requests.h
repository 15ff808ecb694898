/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef BROKER_REQUESTS_H
#define BROKER_REQUESTS_H
/*
 * The top layer of znsd: connections, requests, answers, and the process around them. A handler
 * reads a request, lets the policy decide, and composes the answer.
 */
#include "../policy/policy.h"
#include "zns/broker.h"
#include "zns/reserve.h"

#define ZNSD_CONNS_MAX 4096
#define ZNSD_IDLE_MS 10000

/* A request that is being received; see intake.c. */
struct intake {
	/* bytes that are reserved for it; 0: none are needed, or none are available yet */
	size_t room;
	bool dump; /* the bytes come from the part for dumps */
	/* the request was served but waits for admission, so it keeps its reserved bytes */
	bool served;
	uint64_t since_ns; /* since when the rest of the request is awaited; 0: it is not */
};

/* A dump_begin that waits for admission. No other request of its connection is served meanwhile. */
struct waiter {
	struct waiter *next;
	struct conn *conn;
	ZnsPb__Request *req;
	/* the dump waits for any zone, not for groups of its own: such dumps have a separate
	 * queue */
	bool share;
	char why[ZNS_ERR_MAX]; /* why the last attempt failed */
	uint64_t deadline; /* deadline of the wait, by zns_mono_ns */
	uint32_t seconds;
};

struct server {
	struct zns_resv resv; /* the drive's reservation, if it supports reservations */
	struct conn *conns;
	uint32_t nr_conns;
	struct waiter *waiters;
	size_t intake_used[2]; /* bytes reserved for requests: [0] of others, [1] of dumps */
	size_t out_bytes; /* bytes of all answers that are not sent yet */
	int lock_fd, dev_lock_fd, listen_fd;
	char sock_path[108];
	uint64_t idle_ns; /* exit after so long without clients; 0: never */
	uint64_t idle_since;
	pid_t gc_pid; /* PID of the `znsctl gc` that sweeping.c has started; 0: none runs */
	/* when it was started; when the broker last checked whether a run is due */
	uint64_t gc_ns, gc_look_ns;
};

struct reply {
	ZnsPb__Response r;
	struct zns_err err;
	bool later; /* the request waits for admission, so no answer is sent now */
	bool hangup; /* close the connection after the answer */
	int fd; /* a descriptor to be sent with the reply, owned by the broker; -1: none */
	void **mem; /* memory to be freed after the reply was packed */
	size_t nr_mem, max_mem;
};

/* One request, as passed to its handler. */
struct call {
	struct conn *conn;
	ZnsPb__Request *q;
	const char *name; /* name of the request */
	struct lease *l; /* the connection's lease, of the kind that the request needs */
};

/* ---- reply.c ---- */
void reply_init(struct reply *rep);
void *reply_alloc(struct reply *rep, size_t len);
void reply_keep(struct reply *rep, void *p); /* @p will be freed with the reply */
char *reply_printf(struct reply *rep, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void reply_free(struct reply *rep);
/* the grant of @zone in its present state */
ZnsPb__ZoneGrant *reply_zone(const struct znsd *d, struct reply *rep, uint32_t zone);
/* adds the checkpoints of @chain; takes ownership of its memory */
void reply_chain(struct reply *rep, struct chain *chain);

/* conn.c: one connection */
struct conn *conn_new(struct znsd *d, int fd); /* NULL: the connection was refused and closed */
void conn_free(struct conn *c);
void conn_answer(struct znsd *d, struct conn *c, struct reply *rep, int code);
void conn_send(struct znsd *d, struct conn *c);
void conn_read(struct conn *c);
struct holder conn_holder(struct conn *c);
bool conn_ours(const struct conn *c); /* does the peer run as the broker's own user? */
bool conn_left(const struct conn *c); /* has the peer closed the connection during its request? */
/* makes the retention rule of @container apply when the connection ends */
void conn_committed(struct conn *c, const char *container);
void conn_set_waiter(struct conn *c, struct waiter *w);
void conn_complain(const struct conn *c, const char *what); /* logs @what, at a limited rate */

/* ---- server.c ---- */
int server_listen(struct znsd *d, struct zns_err *err);
int server_loop(struct znsd *d);

/* sweeping.c: lets the broker run `znsctl gc`. True: it was started now. */
bool sweeping_start(struct znsd *d);
/* to be called when the broker ends: stops `znsctl gc`, which would start a new broker */
void sweeping_end(struct znsd *d);
/* checks from time to time whether a run is due; returns milliseconds until the next check */
int sweeping_step(struct znsd *d);

/* intake.c: reserves memory for a request of @len bytes. False: there is none yet, so the request
 * must not be read. */
bool intake_room(struct znsd *d, struct intake *in, uint32_t len, bool dump);
void intake_end(struct znsd *d, struct intake *in);

/* dispatch.c: returns the code of the answer; details are in rep->err */
/* checks that every handler belongs to a member of the request message */
int dispatch_check(struct zns_err *err);
/* Requests of a package; to be registered before the broker starts. */
struct request_kind {
	const char *name; /* the member of zns_pb.request */
	/* finds the lease that the request needs (x->l); NULL: it needs none */
	int (*find)(const struct znsd *d, struct call *x, struct zns_err *err);
	int (*serve)(struct znsd *d, const struct call *x, struct reply *rep);
};
void dispatch_register(const struct request_kind *kinds, size_t nr);
int dispatch(struct znsd *d, struct conn *c, ZnsPb__Request *q, struct reply *rep);

/* ---- waiters.c ---- */
void waiter_add(struct znsd *d, const struct call *x, const struct dump_ask *a,
		const struct zns_err *why);
uint32_t waiters_before(const struct znsd *d, bool share); /* how many dumps wait in that queue */
void waiter_end(struct znsd *d, struct waiter *w); /* frees the request too */
void waiter_drop(struct znsd *d, const struct conn *c);

/* ---- beginning.c ---- */
/* tries to admit the waiting dumps in order; returns milliseconds until the next deadline, -1:
 * none */
int waiters_run(struct znsd *d);

/* host.c: makes sure that only one machine uses the store */
/* -EBUSY: another machine has reserved the device */
int host_claim(struct znsd *d, struct zns_err *err);
void host_release(struct znsd *d);
void host_unreserve(struct znsd *d); /* to be called last, before the device is closed */
/* finds out which host has reserved the device */
void host_look(struct znsd *d, struct zns_resv_state *now);

/* ---- alive.c ---- */
int alive_start(const struct znsd *d, struct zns_err *err);

/* ---- startup.c ---- */
int server_start(struct znsd *d, const char *spec, struct zns_err *err);
void server_stop(struct znsd *d);

#endif
