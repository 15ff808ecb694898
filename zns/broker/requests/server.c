/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The poll loop. It never blocks on a peer. Each connection has buffers of its own. While a peer
 * does not read its answer, its further requests are not read.
 */
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include "conn.h"

#define PEER_MS 10000 /* time limit for a peer to complete its request, or to read its answer */
#define OUT_MAX MIB(64) /* bytes of unread answers above which query requests wait */
#define ACCEPT_RETRY_MS 100 /* pause when no descriptor is left for a new connection */

static void conn_request(struct znsd *d, struct conn *c, const uint8_t *body, uint32_t len)
{
	ZnsPb__Request *req;
	struct reply rep;
	int ret;

	reply_init(&rep);
	req = zns_pb__request__unpack(NULL, len, body);
	if (!req) {
		conn_complain(c, "it sent a request that does not parse");
		rep.hangup = true;
		conn_answer(d, c, &rep, zns_fail(&rep.err, -EBADMSG, "the request does not parse"));
		return;
	}
	c->follows = req->follows;
	ret = dispatch(d, c, req, &rep);
	if (rep.later) {
		reply_free(&rep); /* a waiter has taken over the request */
		return;
	}
	conn_answer(d, c, &rep, ret);
	zns_pb__request__free_unpacked(req, NULL);
}

/* May this request be served? While too many answers are unread, queries wait; dumps and restores
 * do not. */
static bool may_ask(const struct znsd *d, const struct conn *c)
{
	return d->server->out_bytes < OUT_MAX || lease_last(d, c);
}

/* Serves the complete requests in the buffer; returns true if there was one. */
static bool conn_serve(struct znsd *d, struct conn *c)
{
	size_t at = 0;

	if (c->intake.served && !c->waiter)
		intake_end(d, &c->intake);
	while (!c->dead && !c->hangup && !c->waiter && !c->out.len && c->in.len - at >= CONN_HEAD &&
	       !d->quit && may_ask(d, c)) {
		uint32_t len = conn_frame_len(c, at);

		if (len > ZNS_BROKER_REQ_MAX) {
			struct reply rep;

			reply_init(&rep);
			rep.hangup = true;
			conn_complain(c, "it sent a frame that is too large");
			conn_answer(d, c, &rep,
				    zns_fail(&rep.err, -EBADMSG,
					     "a request of %u bytes is too large", len));
			break;
		}
		if (c->in.len - at - CONN_HEAD < len)
			break;
		conn_request(d, c, c->in.p + at + CONN_HEAD, len);
		at += CONN_HEAD + len;
		c->intake.since_ns = 0;
		if (c->waiter)
			c->intake.served = true;
		else
			intake_end(d, &c->intake);
	}
	if (at) {
		memmove(c->in.p, c->in.p + at, c->in.len - at);
		c->in.len -= at;
	}
	if (!c->in.len) {
		free(c->in.p);
		memset(&c->in, 0, sizeof(c->in));
	}
	return at > 0;
}

/*
 * Shall more of a request be read now? The time limit of a request begins when its first byte was
 * received. For a dump it only counts while there is memory for the request, so that a commit does
 * not fail because of others.
 */
static bool conn_wants(struct znsd *d, struct conn *c, uint64_t now)
{
	bool wants = !c->waiter && !c->out.len && !d->quit, runs = wants;

	if (wants && c->in.len >= CONN_HEAD) {
		uint32_t len = conn_frame_len(c, 0);
		bool dump = lease_of(d, c);

		/* A complete request is waiting until queries are served again. */
		runs = wants = c->in.len - CONN_HEAD < len;
		if (wants && !intake_room(d, &c->intake, len, dump)) {
			wants = false;
			runs = !dump;
		}
	}
	if (!runs || !c->in.len)
		c->intake.since_ns = 0;
	else if (!c->intake.since_ns)
		c->intake.since_ns = now;
	return wants;
}

/* Closes connections that have exceeded the time for a request or an answer. Returns milliseconds
 * until the next one may, -1: none. */
static int conns_late(struct znsd *d)
{
	uint64_t now = zns_mono_ns(), limit = PEER_MS * 1000000ull, next = UINT64_MAX;
	struct conn *c;

	for (c = d->server->conns; c; c = c->next) {
		uint64_t since = c->out.len ? c->moved_ns : c->intake.since_ns;

		if (c->dead || !since)
			continue;
		if (now < since + limit) {
			next = zns_min(next, since + limit);
		} else if (c->out.len) {
			conn_complain(c, "it does not take the answer to its question");
			c->dead = true;
		} else {
			struct reply rep;

			reply_init(&rep);
			rep.hangup = true;
			conn_complain(c, "the rest of its request does not come");
			conn_answer(d, c, &rep,
				    zns_fail(&rep.err, -ETIMEDOUT,
					     "the rest of the request did not come in %d s",
					     PEER_MS / 1000));
		}
	}
	return next == UINT64_MAX ? -1 : (int)((next - now) / 1000000) + 1;
}

static void conn_close(struct znsd *d, struct conn *c);

/* To be called when the maximum of connections is reached: closes the one that has been silent for
 * the longest time, among those that have no lease and wait for nothing. */
static bool conn_displace(struct znsd *d)
{
	struct conn **p, **found = NULL, *c;

	for (p = &d->server->conns; (c = *p); p = &c->next)
		if (!c->waiter && !c->out.len &&
		    zns_mono_ns() - c->moved_ns >= PEER_MS * 1000000ull &&
		    (!found || c->moved_ns < (*found)->moved_ns) && !lease_last(d, c))
			found = p;
	if (!found)
		return false;
	c = *found;
	*found = c->next;
	conn_close(d, c);
	return true;
}

static void conn_close(struct znsd *d, struct conn *c)
{
	waiter_drop(d, c);
	intake_end(d, &c->intake);
	d->server->out_bytes -= c->out.len;
	leases_of_conn_lost(d, c, &c->pidfd);
	resize_end(d, c);
	if (c->committed)
		retention_apply(d, c->committed);
	conn_free(c);
	if (!--d->server->nr_conns)
		d->server->idle_since = zns_mono_ns();
}

static void conns_sweep(struct znsd *d)
{
	struct conn **p = &d->server->conns, *c;

	while ((c = *p)) {
		if (!c->dead) {
			p = &c->next;
			continue;
		}
		*p = c->next;
		conn_close(d, c);
		/* Closing may have answered a waiter and found its connection dead, so start
		 * again. */
		p = &d->server->conns;
	}
}

/* Accepts a connection. false: no descriptor is available. The connection then stays in the queue,
 * and poll would report it again and again. */
static bool accept_one(struct znsd *d)
{
	int fd = accept4(d->server->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct conn *c, **p;

	if (fd < 0)
		return errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != ENOBUFS;
	c = conn_new(d, fd);
	if (c && d->server->nr_conns >= ZNSD_CONNS_MAX && !conn_displace(d)) {
		conn_refuse(c);
		c = NULL;
	}
	if (!c)
		return true;
	/* Append, so that the first connection is the first to get memory for a large request. */
	for (p = &d->server->conns; *p; p = &(*p)->next)
		;
	*p = c;
	d->server->nr_conns++;
	return true;
}

int server_listen(struct znsd *d, struct zns_err *err)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd;

	strcpy(sa.sun_path, d->server->sock_path);
	unlink(sa.sun_path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return zns_fail_sys(err, -errno, "cannot make a socket");
	d->server->listen_fd = fd;
	if (bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 || chmod(sa.sun_path, 0600) < 0 ||
	    listen(fd, 128) < 0)
		return zns_fail_sys(err, -errno, "cannot listen on %s", sa.sun_path);
	return 0;
}

static bool may_leave(struct znsd *d, uint64_t now)
{
	if (!d->server->idle_ns || d->server->conns || d->leases ||
	    now - d->server->idle_since < d->server->idle_ns || reclaim_pending(d))
		return false;
	if (!sweeping_start(d))
		return true;
	/* a running `znsctl gc` is a client of its own, so the broker is not idle */
	d->server->idle_since = now;
	return false;
}

static int least(int a, int b)
{
	return a < 0 ? b : b < 0 ? a : zns_min(a, b);
}

static bool answers_pending(const struct znsd *d)
{
	struct conn *c;

	for (c = d->server->conns; c; c = c->next)
		if (c->out.len)
			return true;
	return false;
}

static int time_out(struct znsd *d)
{
	struct conn *c;
	uint64_t now;
	int ms;

	/* The catalogue in memory may be newer than the one on the device, so nothing is granted,
	 * reset or overwritten any more. */
	if (d->lost)
		return 10;
	/* The order matters: leases that end make room for waiting dumps; garbage is reset after
	 * both. */
	ms = leases_reap(d);
	if (d->freed)
		waiters_run(d);
	ms = least(ms, reclaim_step(d));
	ms = least(ms, waiters_run(d));
	ms = least(ms, conns_late(d));
	ms = least(ms, history_step(d, false));
	ms = least(ms, hot_idle(d));
	ms = least(ms, sweeping_step(d));
	now = zns_mono_ns();
	/* An answer to a waiter may have found its connection dead. Do not wait then: conns_sweep()
	 * has to close that connection first. */
	for (c = d->server->conns; c; c = c->next)
		if (c->dead)
			return 0;
	if (d->server->idle_ns && !d->server->conns)
		ms = least(ms, now - d->server->idle_since >= d->server->idle_ns ?
				       100 :
				       (int)((d->server->idle_since + d->server->idle_ns - now) /
					     1000000) +
					       1);
	return ms;
}

int server_loop(struct znsd *d)
{
	struct pollfd *fds = znsd_alloc((ZNSD_CONNS_MAX + 3) * sizeof(*fds));
	struct conn **who = znsd_alloc((ZNSD_CONNS_MAX + 3) * sizeof(*who)), *c;
	uint64_t quit_by = 0, accept_at = 0, now;
	sigset_t set;
	int sig_fd, ms, n, i;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	sig_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	d->server->idle_since = d->server->gc_look_ns = zns_mono_ns();

	for (;;) {
		conns_sweep(d);
		/* Memory and device differ now. The broker ends, and the next one reads the device
		 * again. */
		if (zns_store_foreign(d->store) && !d->quit) {
			znsd_say(LOG_ERR, NULL, "somebody else writes the catalogue of %s: leaving",
				 d->reg.path);
			d->quit = true;
		}
		ms = time_out(d);
		/* Serve input that arrived while a request waited for admission, since poll does
		 * not report it again. */
		for (c = d->server->conns; c; c = c->next)
			if (conn_serve(d, c))
				ms = 0;
		if (d->quit) {
			/* The answer to `quit` should still be sent, but no peer may delay the
			 * end. */
			if (!quit_by)
				quit_by = zns_mono_ns() + 1000000000ull;
			if (!answers_pending(d) || zns_mono_ns() >= quit_by)
				break;
			ms = 10;
		}
		if (may_leave(d, zns_mono_ns()))
			break;
		now = zns_mono_ns();
		if (accept_at > now)
			ms = least(ms, ACCEPT_RETRY_MS);
		n = 0;
		fds[n++] = (struct pollfd){ .fd = accept_at > now ? -1 : d->server->listen_fd,
					    .events = POLLIN };
		fds[n++] = (struct pollfd){ .fd = sig_fd, .events = POLLIN };
		fds[n++] = (struct pollfd){ .fd = finisher_fd(d), .events = POLLIN };
		for (c = d->server->conns; c; c = c->next) {
			who[n] = c;
			fds[n++] = (struct pollfd){ .fd = c->fd,
						    .events = c->out.len            ? POLLOUT :
							      conn_wants(d, c, now) ? POLLIN :
										      0 };
		}
		if (poll(fds, n, ms) <= 0)
			continue;
		if (fds[1].revents) {
			znsd_log("asked to leave");
			d->quit = true;
		}
		for (i = 3; i < n; i++) {
			c = who[i];
			if (fds[i].revents & POLLOUT)
				conn_send(d, c);
			if (fds[i].revents & POLLIN)
				conn_read(c);
			else if (fds[i].revents & (POLLHUP | POLLERR | POLLNVAL))
				c->dead = true;
			conn_serve(d, c);
		}
		if (fds[2].revents)
			finisher_reap(d);
		/* After the other connections, because `who` has no entry for a new one. */
		if (fds[0].revents && !accept_one(d))
			accept_at = zns_mono_ns() + ACCEPT_RETRY_MS * 1000000ull;
	}
	/* Leases end with the broker, but none of their zones is reset now: the next broker first
	 * waits for the writers' lock. */
	while ((c = d->server->conns)) {
		d->server->conns = c->next;
		waiter_drop(d, c);
		conn_free(c);
	}
	if (!d->lost && !zns_store_foreign(d->store)) {
		footers_step(d, true);
		ahead_end(d);
	}
	leases_forget(d);
	free(fds);
	free(who);
	close(sig_fd);
	return 0;
}
