/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Attaching to a device: broker, life lock, the device itself. */
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include "helper.h"

#define LOCK_TRIES 400
#define LOCK_PAUSE_US 5000

/* The broker takes the lock alone for a moment when it looks whether anybody is left: try again. */
static int lock_shared(int fd)
{
	for (int tries = 0; flock(fd, LOCK_SH | LOCK_NB) < 0; tries++) {
		if (errno != EWOULDBLOCK || tries == LOCK_TRIES)
			return -errno;
		usleep(LOCK_PAUSE_US);
	}
	return 0;
}

int helper_attach(struct helper *h, const struct zns_registered *reg, bool writer, struct zns_err *err)
{
	char path[300];
	int ret;

	h->reg = *reg;
	ret = zns_broker_connect(reg, &h->broker, err);
	if (ret)
		return ret;
	h->connected = true;
	/* A new broker resets zones only once it has this lock alone: we hold it as long as we can write (or read). */
	ret = zns_broker_path(reg->uuid, writer ? "writers" : "readers", path, sizeof(path));
	if (!ret) {
		h->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		ret = h->lock < 0 ? -errno : lock_shared(h->lock);
	}
	if (ret)
		return zns_fail_sys(err, ret, "cannot lock %s", path);
	return zns_dev_open(reg->path, writer ? 0 : ZNS_DEV_RDONLY, &h->dev, err);
}

void helper_detach(struct helper *h)
{
	zns_dev_close(h->dev);
	h->dev = NULL;
	if (h->lock >= 0)
		close(h->lock);
	h->lock = -1;
	if (h->connected)
		zns_broker_close(&h->broker);
	h->connected = false;
}
