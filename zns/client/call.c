/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Sends one request to znsd and receives its answer. A client waits as long as the broker shows
 * that it is alive. */
#include <poll.h>
#include <unistd.h>
#include "zns/client.h"

/* One call, and for how long the broker has shown no sign of life. */
struct call {
	const struct zns_broker *b;
	uint64_t beat, silent_ns, start_ns;
	uint32_t silent_ms;
	bool dead;
};

/*
 * Has the broker shown no sign of life for its whole deadline? While the machine is suspended or
 * stalled, both processes stop, which is not the broker's fault. So the time alone is not enough:
 * the number of checks must also make up the deadline.
 */
static bool shows_nothing(struct call *c)
{
	uint64_t now = zns_mono_ns(), beat;

	if (c->b->alive_fd < 0 || !c->b->deadline_s ||
	    pread(c->b->alive_fd, &beat, sizeof(beat), 0) != sizeof(beat))
		return false;
	if (!c->silent_ns || beat != c->beat) {
		c->beat = beat;
		c->silent_ns = now;
		c->silent_ms = 0;
		return false;
	}
	/* the poll was shorter only if limit_ms is, and then limit_ms ends the call first */
	c->silent_ms += ZNS_ALIVE_MS;
	return c->silent_ms >= c->b->deadline_s * 1000 &&
	       now - c->silent_ns >= c->b->deadline_s * 1000000000ull;
}

/* Waits for the answer, since an admission may take long: until the broker dies or the caller
 * cancels. */
static int wait_ready(void *arg, short events)
{
	struct call *c = arg;
	struct pollfd p[] = { { .fd = c->b->fd, .events = events },
			      { .fd = c->b->watch_fd, .events = POLLRDHUP },
			      { .fd = c->b->watch_pidfd, .events = POLLIN } };

	c->start_ns = zns_mono_ns();
	for (;;) {
		int n = poll(p, ZNS_ARRAY_SIZE(p),
			     (int)(c->b->limit_ms ?
					   zns_min(c->b->limit_ms, (uint32_t)ZNS_ALIVE_MS) :
					   ZNS_ALIVE_MS));

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0)
			return p[0].revents ? 0 : -ECANCELED;
		if (n < 0)
			continue;
		c->dead = shows_nothing(c);
		if (c->dead ||
		    (c->b->limit_ms && zns_mono_ns() - c->start_ns >= c->b->limit_ms * 1000000ull))
			return -ETIMEDOUT;
	}
}

int zns_broker_call(struct zns_broker *b, ZnsPb__Request *req, ZnsPb__Response **resp,
		    struct zns_err *err)
{
	cleanup_free uint8_t *out = NULL, *in = NULL;
	struct call c = { .b = b };
	ZnsPb__Response *r;
	uint32_t in_len = 0;
	size_t len;
	int ret;

	*resp = NULL;
	req->version = ZNS_BROKER_VERSION;
	req->has_follows = req->follows = 1;
	len = zns_pb__request__get_packed_size(req);
	if (len > ZNS_BROKER_REQ_MAX)
		return zns_fail(err, -EMSGSIZE,
				"a request of %zu bytes is too large for the broker", len);
	out = malloc(len ? len : 1);
	if (!out)
		return zns_fail(err, -ENOMEM, "no memory for a request to the broker");
	zns_pb__request__pack(req, out);
	ret = zns_msg_send(b->fd, out, len, wait_ready, &c);
	if (!ret)
		ret = zns_msg_recv_fd(b->fd, &in, &in_len, b->came, wait_ready, &c);
	if (ret == -EPIPE)
		return zns_fail(err, ret, "the broker (PID %u) died or closed the connection",
				b->broker_pid);
	if (ret == -ECANCELED)
		return zns_fail(err, ret, "the program that asked has ended");
	if (c.dead)
		return zns_fail(
			err, ret,
			"the broker (PID %u) has shown no sign of life for %u s: let it go on if it is stopped, or "
			"kill it, and the next command starts another",
			b->broker_pid, b->deadline_s);
	if (ret == -ETIMEDOUT)
		return zns_fail(
			err, -ETIMEDOUT,
			"the broker (PID %u) does not answer; end it, the next command starts another",
			b->broker_pid);
	if (ret)
		return zns_fail_sys(err, ret, "cannot talk to the broker (PID %u)", b->broker_pid);
	r = zns_pb__response__unpack(NULL, in_len, in);
	if (!r)
		return zns_fail(err, -EBADMSG,
				"the broker (PID %u) sent an answer that does not parse",
				b->broker_pid);
	if (r->code) {
		ret = r->code < 0 ? r->code : -EIO;
		zns_fail(err, ret, "%s", r->error ? r->error : "the broker gives no reason");
		zns_pb__response__free_unpacked(r, NULL);
		return ret;
	}
	*resp = r;
	return 0;
}
