/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Reads from sysfs what it tells about a device, and claims the device. */
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>

#include "hw_priv.h"
#include "zns/safeopen.h"

#define CLAIM_TRIES 20

static int link_end(const char *path, char *out, size_t len)
{
	char target[PATH_MAX];
	const char *base;
	ssize_t n = zns_read_link(AT_FDCWD, path, target, sizeof(target));

	if (n < 0)
		return (int)n;
	base = strrchr(target, '/');
	base = base ? base + 1 : target;
	if (strlen(base) >= len)
		return -ENAMETOOLONG;
	memcpy(out, base, strlen(base) + 1);
	return 0;
}

int hw_kernel_name(dev_t dev, bool block, char *name, size_t len, char *class, size_t class_len)
{
	char path[128];
	int n = snprintf(path, sizeof(path), "/sys/dev/%s/%u:%u", block ? "block" : "char",
			 major(dev), minor(dev));
	int ret = link_end(path, name, len);

	if (ret)
		return ret;
	snprintf(path + n, sizeof(path) - n, "/subsystem");
	return link_end(path, class, class_len);
}

int hw_queue_text(const char *name, const char *attr, char *out, size_t len)
{
	cleanup_close int fd = -1;
	char path[PATH_MAX];
	ssize_t n;

	if (snprintf(path, sizeof(path), "/sys/block/%s/queue/%s", name, attr) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	n = read(fd, out, len - 1);
	if (n < 0)
		return -errno;
	out[n] = '\0';
	out[strcspn(out, "\n")] = '\0';
	return 0;
}

int hw_queue_number(const char *name, const char *attr, uint64_t *out)
{
	char text[32], *end;
	int ret = hw_queue_text(name, attr, text, sizeof(text));
	uint64_t v;

	if (ret)
		return ret;
	errno = 0;
	v = strtoull(text, &end, 10);
	if (errno || end == text || *end)
		return -EINVAL;
	*out = v;
	return 0;
}

/*
 * File systems, device mapper, brokers and the like open a block device exclusively. Another
 * process may be making the same test at this moment, so the device only counts as claimed if the
 * test fails for some time. It is opened for reading, because closing a descriptor for writing
 * would cause a udev event.
 */
int hw_claim(struct hw *h, const char *node, const char *shown, unsigned flags, struct zns_err *err)
{
	const struct timespec pause = { .tv_nsec = 5 * 1000 * 1000 };

	h->claim_fd = -1;
	if (flags & (ZNS_DEV_RDONLY | ZNS_DEV_SERVED))
		return 0;
	for (int i = 0; i < CLAIM_TRIES; i++) {
		int fd = open(node, O_RDONLY | O_EXCL | O_NONBLOCK | O_CLOEXEC);

		if (fd >= 0 && flags & ZNS_DEV_CLAIM)
			h->claim_fd = fd;
		else if (fd >= 0)
			close(fd);
		if (fd >= 0 || errno != EBUSY)
			/* any other error will be reported when the device is really opened */
			return 0;
		nanosleep(&pause, NULL);
	}
	return zns_fail(
		err, -EBUSY,
		"%s is in use: mounted, part of another device (see lsblk), or served by a broker that has another runtime directory; release it first",
		shown);
}

void hw_unclaim(struct hw *h)
{
	if (h->claim_fd >= 0)
		close(h->claim_fd);
	h->claim_fd = -1;
}
