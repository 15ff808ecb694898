// SPDX-License-Identifier: LGPL-2.1-or-later
/* A client's connection to znsd. */
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "spawn.h"
#include "zns/client.h"

/* Another client may be starting the broker meanwhile. */
#define LOCK_WAIT_MS 30000
/* A broker that was just leaving takes the connection with it. */
#define CONNECT_TRIES 5

unsigned zns_broker_hello_ms = 20000;

/* @ms 0: for ever. */
static void limit_time(int fd, unsigned ms)
{
	struct timeval tv = { .tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000 };

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
}

static int sock_connect(const struct zns_registered *dev, struct zns_broker *b, struct zns_err *err)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	cleanup_close int fd = -1;
	struct ucred cred;
	char path[4096];
	socklen_t len = sizeof(cred);

	if (zns_broker_path(dev->uuid, "sock", sa.sun_path, sizeof(sa.sun_path)))
		return zns_fail(err, -ENAMETOOLONG, "runtime directory %s: too long for a socket", zns_run_dir());
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return zns_fail_sys(err, -errno, "socket");
	limit_time(fd, zns_broker_hello_ms);	/* connect waits as well, while too many others do */
	while (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0) {
		if (errno == EINTR)
			continue;
		if (errno == ECONNREFUSED || errno == ENOENT)
			return zns_fail(err, -ENOENT, "no broker runs for %s", dev->path);
		if (errno == EAGAIN)
			return zns_fail(err, -ETIMEDOUT, "the broker of %s takes no connection (see %s)", dev->path, sa.sun_path);
		return zns_fail_sys(err, -errno, "cannot connect to %s", sa.sun_path);
	}
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
		return zns_fail_sys(err, -errno, "%s", sa.sun_path);
	if (cred.uid && cred.uid != geteuid())
		return zns_fail(err, -EPERM, "%s belongs to user %u", sa.sun_path, (unsigned)cred.uid);
	b->broker_pid = cred.pid;
	b->fd = zns_take_fd(&fd);
	if (!zns_broker_path(dev->uuid, "alive", path, sizeof(path)))
		b->alive_fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	return 0;
}

/* An empty request: proves that the broker took the connection, has our version and serves this device. */
static int hello(const struct zns_registered *dev, struct zns_broker *b, struct zns_err *err)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ZnsPb__Response *resp = NULL;
	int ret;

	b->limit_ms = zns_broker_hello_ms;
	ret = zns_broker_call(b, &req, &resp, err);
	b->limit_ms = 0;
	if (ret)
		return ret;
	limit_time(b->fd, 0);
	if (!resp->has_device || resp->device.len != ZNS_UUID_LEN ||
	    memcmp(resp->device.data, dev->uuid, ZNS_UUID_LEN))
		ret = zns_fail(err, -EPROTO, "the broker of %s serves another device", dev->path);
	b->encrypted = resp->encryption && resp->encryption->has_key_id && resp->encryption->key_id.len == sizeof(b->key_id);
	if (b->encrypted)
		memcpy(b->key_id, resp->encryption->key_id.data, sizeof(b->key_id));
	zns_pb__response__free_unpacked(resp, NULL);
	return ret;
}

int zns_broker_connect_running(const struct zns_registered *dev, struct zns_broker *b, struct zns_err *err)
{
	int ret;

	b->fd = b->watch_fd = b->alive_fd = -1;
	b->broker_pid = b->limit_ms = 0;
	ret = zns_config_deadline(&b->deadline_s, err);
	if (ret)
		return ret;
	ret = sock_connect(dev, b, err);
	if (ret)
		return ret;
	ret = hello(dev, b, err);
	if (ret)
		zns_broker_close(b);
	if (ret == -EPIPE)
		return zns_fail(err, -ENOENT, "the broker of %s was just leaving", dev->path);
	return ret;
}

static int start_and_connect(const struct zns_registered *dev, struct zns_broker *b, struct zns_err *err)
{
	cleanup_close int lock = -1;
	char path[4096];
	int ret;

	ret = zns_broker_run_dir(err);
	if (ret)
		return ret;
	ret = zns_broker_path(dev->uuid, "lock", path, sizeof(path));
	if (ret)
		return zns_fail_sys(err, ret, "%s", zns_run_dir());
	lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (lock < 0)
		return zns_fail_sys(err, -errno, "%s", path);
	ret = zns_flock_wait(lock, LOCK_WAIT_MS);
	if (ret == -EBUSY)
		return zns_fail(err, -ETIMEDOUT, "another process (PID %d) has been starting a broker for %s for %d s",
				zns_flock_holder(lock), dev->path, LOCK_WAIT_MS / 1000);
	if (ret)
		return zns_fail_sys(err, ret, "%s", path);
	/* Whoever held the lock before us may have started it. */
	ret = zns_broker_connect_running(dev, b, err);
	if (ret != -ENOENT)
		return ret;
	ret = zns_broker_spawn(dev, err);
	if (ret)
		return ret;
	return zns_broker_connect_running(dev, b, err);
}

int zns_broker_connect(const struct zns_registered *dev, struct zns_broker *b, struct zns_err *err)
{
	struct zns_err local = ZNS_ERR_INIT;
	int tries, ret = 0;

	if (!err)
		err = &local;
	for (tries = 0; tries < CONNECT_TRIES; tries++) {
		ret = zns_broker_connect_running(dev, b, err);
		if (ret == -ENOENT)
			ret = start_and_connect(dev, b, err);
		/* -ENOENT of a fresh broker: it left again before we got through. A missing device has -ENODEV. */
		if (ret != -ENOENT)
			break;
	}
	if (!ret)
		memset(err, 0, sizeof(*err));
	return ret;
}

void zns_broker_close(struct zns_broker *b)
{
	if (b->fd >= 0)
		close(b->fd);
	if (b->fd >= 0 && b->alive_fd >= 0)	/* who never connected has set neither */
		close(b->alive_fd);
	b->fd = b->alive_fd = -1;
}

/* One call: what was seen of the broker while it waits. */
struct call {
	const struct zns_broker *b;
	uint64_t beat, silent_ns, start_ns;
	uint32_t silent_ms;
	bool dead;
};

/*
 * Has it shown a sign of life? The time that counts is our own: if both were stopped, as a machine may be, it is not to
 * blame. So it is as many looks as make up the deadline.
 */
static bool shows_nothing(struct call *c)
{
	uint64_t now = zns_mono_ns(), beat;

	if (c->b->alive_fd < 0 || !c->b->deadline_s || pread(c->b->alive_fd, &beat, sizeof(beat), 0) != sizeof(beat))
		return false;
	if (!c->silent_ns || beat != c->beat) {
		c->beat = beat;
		c->silent_ns = now;
		c->silent_ms = 0;
		return false;
	}
	c->silent_ms += ZNS_ALIVE_MS;	/* or less, but then a limit comes first */
	return c->silent_ms >= c->b->deadline_s * 1000 && now - c->silent_ns >= c->b->deadline_s * 1000000000ull;
}

/* It may take its time (admission): as long as the broker lives, and anybody waits for the answer. */
static int wait_ready(void *arg, short events)
{
	struct call *c = arg;
	struct pollfd p[2] = { { .fd = c->b->fd, .events = events }, { .fd = c->b->watch_fd, .events = POLLRDHUP } };

	c->start_ns = zns_mono_ns();
	for (;;) {
		int n = poll(p, 2, (int)(c->b->limit_ms ? zns_min(c->b->limit_ms, (uint32_t)ZNS_ALIVE_MS) : ZNS_ALIVE_MS));

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0)
			return p[0].revents ? 0 : -ECANCELED;
		if (n < 0)
			continue;
		c->dead = shows_nothing(c);
		if (c->dead || (c->b->limit_ms && zns_mono_ns() - c->start_ns >= c->b->limit_ms * 1000000ull))
			return -ETIMEDOUT;
	}
}

int zns_broker_call(struct zns_broker *b, ZnsPb__Request *req, ZnsPb__Response **resp, struct zns_err *err)
{
	cleanup_free uint8_t *out = NULL, *in = NULL;
	struct call c = { .b = b };
	ZnsPb__Response *r;
	uint32_t in_len = 0;
	size_t len;
	int ret;

	*resp = NULL;
	req->version = ZNS_BROKER_VERSION;
	len = zns_pb__request__get_packed_size(req);
	if (len > ZNS_BROKER_REQ_MAX)
		return zns_fail(err, -EMSGSIZE, "a request of %zu bytes is too large for the broker", len);
	out = malloc(len ? len : 1);
	if (!out)
		return zns_fail_sys(err, -ENOMEM, "broker request");
	zns_pb__request__pack(req, out);
	ret = zns_msg_send_wait(b->fd, out, len, wait_ready, &c);
	if (!ret)
		ret = zns_msg_recv_wait(b->fd, &in, &in_len, wait_ready, &c);
	if (ret == -EPIPE)
		return zns_fail(err, ret, "the broker (PID %u) died or closed the connection", b->broker_pid);
	if (ret == -ECANCELED)
		return zns_fail(err, ret, "whoever wanted the answer is gone");
	if (c.dead)
		return zns_fail(err, ret, "the broker (PID %u) has shown no sign of life for %u s: let it go on if it is stopped, or "
				"kill it, and the next command starts another", b->broker_pid, b->deadline_s);
	if (ret == -ETIMEDOUT)
		return zns_fail(err, -ETIMEDOUT, "the broker (PID %u) does not answer; end it, the next command starts another",
				b->broker_pid);
	if (ret)
		return zns_fail_sys(err, ret, "broker (PID %u)", b->broker_pid);
	r = zns_pb__response__unpack(NULL, in_len, in);
	if (!r)
		return zns_fail(err, -EBADMSG, "the broker (PID %u) sent an answer that does not parse", b->broker_pid);
	if (r->code) {
		ret = r->code < 0 ? r->code : -EIO;
		zns_fail(err, ret, "%s", r->error ? r->error : "the broker gives no reason");
		zns_pb__response__free_unpacked(r, NULL);
		return ret;
	}
	*resp = r;
	return 0;
}
