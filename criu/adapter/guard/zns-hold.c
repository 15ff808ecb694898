/* SPDX-License-Identifier: GPL-2.0-only */
/* Makes a restore wait until its container is started. See include/zns-hold.h. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "log.h"
#include "namespaces.h"
#include "net.h"
#include "util.h"
#include "uts_ns.h"
#include "zns-hold.h"

#undef LOG_PREFIX
#define LOG_PREFIX "zns: "

/* Connects to the socket at @path, which may be longer than the address of a socket allows. */
static int dial(const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC), sk, ret;

	if (fd < 0)
		return -1;
	snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d", fd);
	sk = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	ret = sk < 0 ? -1 : connect(sk, (struct sockaddr *)&a, sizeof(a));
	close_safe(&fd);
	if (ret)
		close_safe(&sk);
	return sk;
}

/* Is the process in another namespace of this kind than we are? */
static bool own_ns(pid_t pid, const char *name)
{
	char path[64];
	struct stat a, b;

	snprintf(path, sizeof(path), "/proc/%d/ns/%s", pid, name);
	if (stat(path, &a))
		return false;
	snprintf(path, sizeof(path), "/proc/self/ns/%s", name);
	return !stat(path, &b) && (a.st_ino != b.st_ino || a.st_dev != b.st_dev);
}

static int raise_loopback(void)
{
	struct ifreq r = { .ifr_name = "lo" };
	int sk = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), ret;

	ret = sk < 0 ? -1 : ioctl(sk, SIOCGIFFLAGS, &r);
	if (!ret && !(r.ifr_flags & IFF_UP)) {
		r.ifr_flags |= IFF_UP;
		ret = ioctl(sk, SIOCSIFFLAGS, &r);
	}
	if (ret)
		pr_perror("Can't bring the loopback device up");
	close_safe(&sk);
	return ret;
}

/*
 * Prepares what a runtime's own `start` relies on: the engine has made a new network namespace, and
 * the images have the host name of the dump.
 */
static int prepare(pid_t init, const char *host)
{
	int back, ret = 0;

	if (own_ns(init, "net")) {
		if (switch_ns(init, &net_ns_desc, &back))
			return -1;
		ret = raise_loopback();
		if (restore_ns(back, &net_ns_desc))
			ret = -1;
	}
	if (!ret && *host && own_ns(init, "uts")) {
		if (switch_ns(init, &uts_ns_desc, &back))
			return -1;
		ret = sethostname(host, strlen(host));
		if (ret)
			pr_perror("Can't set the host name");
		if (restore_ns(back, &uts_ns_desc))
			ret = -1;
	}
	return ret;
}

int zns_hold(pid_t init)
{
	const char *path = secure_getenv("ZNS_HOLD");
	char buf[1 + HOST_NAME_MAX + 1];
	ssize_t n;
	int sk;

	if (!path)
		return 0;
	sk = dial(path);
	if (sk < 0) {
		pr_perror("Can't tell the runtime that the restore waits: %s", path);
		return -1;
	}
	n = snprintf(buf, sizeof(buf), "h%d", init);
	if (send(sk, buf, (size_t)n, MSG_NOSIGNAL) != n) {
		pr_perror("Can't tell the runtime that the restore waits");
		close_safe(&sk);
		return -1;
	}
	pr_info("The restore waits for the start of its container\n");
	do
		n = recv(sk, buf, sizeof(buf) - 1, 0);
	while (n < 0 && errno == EINTR);
	close_safe(&sk);
	if (n < 1 || buf[0] != 'g') {
		pr_err("The container was not started, so the restore is given up\n");
		return -1;
	}
	buf[n] = '\0';
	return prepare(init, buf + 1);
}
