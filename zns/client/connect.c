/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A client's connection to znsd. */
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "spawn.h"
#include "zns/client.h"

/* how long to wait for another client that is starting the broker */
#define LOCK_WAIT_MS 30000
/* a broker that is ending may close the connection; then connect to the next one */
#define CONNECT_TRIES 5

/* Sets the time limit of transfers on a socket. @ms 0: none. */
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
		return zns_fail(err, -ENAMETOOLONG, "runtime directory %s: too long for a socket",
				zns_run_dir());
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return zns_fail_sys(err, -errno, "cannot make a socket");
	/* connect(2) blocks as well if many clients connect at once */
	limit_time(fd, zns_hello_limit_ms());
	while (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0) {
		if (errno == EINTR)
			continue;
		if (errno == ECONNREFUSED || errno == ENOENT)
			return zns_fail(err, -ENOENT, "no broker runs for %s", dev->path);
		if (errno == EAGAIN)
			return zns_fail(err, -ETIMEDOUT,
					"the broker of %s takes no connection (see %s)", dev->path,
					sa.sun_path);
		return zns_fail_sys(err, -errno, "cannot connect to %s", sa.sun_path);
	}
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
		return zns_fail_sys(err, -errno, "cannot find out who serves %s", sa.sun_path);
	if (cred.uid && cred.uid != geteuid())
		return zns_fail(err, -EPERM, "%s belongs to user %u", sa.sun_path,
				(unsigned)cred.uid);
	b->broker_pid = cred.pid;
	b->fd = zns_take_fd(&fd);
	if (!zns_broker_path(dev->uuid, "alive", path, sizeof(path)))
		b->alive_fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	return 0;
}

/* Sends an empty request, which proves that the broker accepts us, has our version and serves
 * this device. */
static int hello(const struct zns_registered *dev, struct zns_broker *b, struct zns_err *err)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ZnsPb__Response *resp = NULL;
	int ret;

	b->limit_ms = zns_hello_limit_ms();
	ret = zns_broker_call(b, &req, &resp, err);
	b->limit_ms = 0;
	if (ret)
		return ret;
	limit_time(b->fd, 0);
	if (!resp->has_device || resp->device.len != ZNS_UUID_LEN ||
	    memcmp(resp->device.data, dev->uuid, ZNS_UUID_LEN))
		ret = zns_fail(err, -EPROTO, "the broker of %s serves another device", dev->path);
	b->encrypted = resp->encryption && resp->encryption->has_key_id &&
		       resp->encryption->key_id.len == sizeof(b->key_id);
	if (b->encrypted)
		memcpy(b->key_id, resp->encryption->key_id.data, sizeof(b->key_id));
	zns_pb__response__free_unpacked(resp, NULL);
	return ret;
}

int zns_broker_connect_running(const struct zns_registered *dev, struct zns_broker *b,
			       struct zns_err *err)
{
	int ret;

	b->fd = b->watch_fd = b->watch_pidfd = b->alive_fd = -1;
	b->broker_pid = b->limit_ms = 0;
	b->came = NULL;
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

static int start_and_connect(const struct zns_registered *dev, struct zns_broker *b,
			     struct zns_err *err)
{
	cleanup_close int lock = -1;
	char path[4096];
	int ret;

	ret = zns_broker_run_dir(err);
	if (ret)
		return ret;
	ret = zns_broker_path(dev->uuid, "lock", path, sizeof(path));
	if (ret)
		return zns_fail_sys(err, ret, "cannot name a lock file in %s", zns_run_dir());
	lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (lock < 0)
		return zns_fail_sys(err, -errno, "cannot open %s", path);
	ret = zns_flock_wait(lock, LOCK_WAIT_MS);
	if (ret == -EBUSY)
		return zns_fail(
			err, -ETIMEDOUT,
			"another process (PID %d) has been starting a broker for %s for %d s",
			zns_flock_holder(lock), dev->path, LOCK_WAIT_MS / 1000);
	if (ret)
		return zns_fail_sys(err, ret, "cannot lock %s", path);
	/* the previous holder of the lock may have started the broker */
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
		/* -ENOENT: the broker that was just started has ended before we connected, so try
		 * again. (A missing device gives -ENODEV.) */
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
	if (b->fd >= 0 && b->alive_fd >= 0) /* after a failure to connect, alive_fd was not set */
		close(b->alive_fd);
	b->fd = b->alive_fd = -1;
}
