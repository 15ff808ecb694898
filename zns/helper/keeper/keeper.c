/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The keeper holds the descriptors of trackers, which know what pages were written since the last
 * dump, until the next dump takes them (keep.h). It has no device, no connection to a broker, no
 * memory of a task, and no capabilities. If it is killed, the descriptors are closed, the kernel
 * ends the write protection, and the next dump is a full one.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include "keep.h"
#include "zns/process.h"

static struct {
	struct keep_packet set, *task;
	uint32_t nr; /* how many of its tasks still run */
	int dir, listen;
	char name[64];
	dev_t dev; /* device of the socket's file, to recognize the file that this keeper made */
	ino_t ino;
	uint64_t end_ns; /* CLOCK_MONOTONIC */
	int client; /* -1: none */
	bool changed; /* the client has protected pages anew (KEEP_CHANGED) */
} k = { .dir = -1, .listen = -1, .client = -1 };

static int receive(void)
{
	if (keep_recv(KEEP_FD, &k.set) != 1 || k.set.op != KEEP_SET || !k.set.nr ||
	    k.set.nr > KEEP_TASKS_MAX)
		return -EPROTO;
	/* a long timeout here: the helper sends the first packet only at the end of the dump */
	keep_timeouts(KEEP_FD);
	k.task = calloc(k.set.nr, sizeof(*k.task));
	if (!k.task)
		return -ENOMEM;
	for (; k.nr < k.set.nr; k.nr++)
		if (keep_recv(KEEP_FD, &k.task[k.nr]) != 1 || k.task[k.nr].op != KEEP_TASK)
			return -EPROTO;
	return 0;
}

static int begin_to_listen(void)
{
	struct sockaddr_un a;
	struct stat st;

	k.dir = keep_dir(NULL);
	k.listen = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (k.dir < 0 || k.listen < 0)
		return -EIO;
	keep_name(k.set.id, k.name);
	keep_address(k.dir, k.name, &a);
	if (bind(k.listen, (struct sockaddr *)&a, sizeof(a)) || listen(k.listen, 16) ||
	    fstatat(k.dir, k.name, &st, AT_SYMLINK_NOFOLLOW))
		return -errno;
	k.dev = st.st_dev;
	k.ino = st.st_ino;
	return 0;
}

/* Removes the socket's name, unless it belongs to the keeper of another checkpoint by now. */
static void unlink_name(void)
{
	struct stat st;

	if (k.ino && !fstatat(k.dir, k.name, &st, AT_SYMLINK_NOFOLLOW) && st.st_dev == k.dev &&
	    st.st_ino == k.ino)
		unlinkat(k.dir, k.name, 0);
}

/* Ends the protection in steps that are short enough that the tasks do not notice. */
static void end_tracking(void)
{
	const struct zns_track_kernel kernel = { .tracker = ZNS_TRACKER_UFFD };
	struct zns_track *t;

	unlink_name(); /* accept no more clients */
	for (uint32_t n = 0; n < k.nr; n++)
		if (!zns_track_adopt(0, &kernel, k.task[n].fd, &t, NULL))
			zns_track_free(t);
}

static bool from_root(int sk)
{
	struct ucred c;
	socklen_t len = sizeof(c);

	return !getsockopt(sk, SOL_SOCKET, SO_PEERCRED, &c, &len) && c.uid == geteuid();
}

static void greet(void)
{
	struct keep_packet busy = { .op = KEEP_BUSY };
	int ret, sk = accept4(k.listen, NULL, NULL, SOCK_CLOEXEC);

	if (sk < 0)
		return;
	keep_timeouts(sk);
	if (!from_root(sk) || k.client >= 0) {
		keep_send(sk, &busy);
		close(sk);
		return;
	}
	k.set.nr = k.nr;
	ret = keep_send(sk, &k.set);
	for (uint32_t n = 0; n < k.nr && !ret; n++)
		ret = keep_send(sk, &k.task[n]);
	if (ret)
		close(sk);
	else
		k.client = sk;
	k.changed = false;
}

/* Reads a packet from the client. Returns true if the trackers are not needed any more. */
static bool client_said(void)
{
	struct keep_packet p;
	int ret = keep_recv(k.client, &p);

	keep_close(&p);
	if (ret == 1 && p.op == KEEP_CHANGED) {
		k.changed = true;
		return false;
	}
	if (ret == 1 && p.op == KEEP_TAKEN)
		return true;
	/*
	 * The client has protected pages anew for a dump that was not committed. So it is unknown
	 * which pages are unchanged since this keeper's checkpoint.
	 */
	if (ret == 1 || k.changed) {
		end_tracking();
		return true; /* the exit of this process answers KEEP_DROP */
	}
	close(k.client);
	k.client = -1;
	return false;
}

static void forget(uint32_t n)
{
	keep_close(&k.task[n]);
	k.task[n] = k.task[--k.nr];
}

/* Waits until the last task has ended, or the time is up. */
static void watch(struct pollfd *p)
{
	while (k.nr) {
		uint64_t now = zns_mono_ns();
		int left = now < k.end_ns ? (int)zns_min((k.end_ns - now) / 1000000 + 1, 3600000u) :
					    0;

		p[0] = (struct pollfd){ .fd = k.listen, .events = POLLIN };
		p[1] = (struct pollfd){ .fd = k.client, .events = POLLIN };
		for (uint32_t n = 0; n < k.nr; n++)
			p[2 + n] = (struct pollfd){ .fd = k.task[n].fd[ZNS_TRACK_PIDFD],
						    .events = POLLIN };
		/* while a client has the trackers, the keeper stays although the time is up */
		if (k.client < 0 && !left) {
			end_tracking();
			return;
		}
		if (poll(p, 2 + k.nr, k.client < 0 ? left : -1) < 0)
			continue;
		if (p[1].revents && client_said())
			return;
		for (uint32_t n = k.nr; n-- > 0;)
			if (p[2 + n].revents)
				forget(n);
		if (p[0].revents)
			greet();
	}
}

static void begin(void)
{
	int fd;

	zns_process_shed();
	signal(SIGPIPE, SIG_IGN);
	prctl(PR_SET_DUMPABLE, 0);
	prctl(PR_SET_NAME, "zns-keeper");
	zns_cgroup_escape();
	zns_process_no_network();
	fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	if (fd >= 0) {
		if (write(fd, "-1000", 5) < 0)
			/*
			 * ignore failure: then the kernel may kill this process when memory is
			 * short, and the next dump is a full one
			 */
			errno = 0;
		close(fd);
	}
	zns_process_keep_caps(NULL, 0, NULL);
}

int keeper(void)
{
	struct keep_packet ready = { .op = KEEP_READY };
	struct pollfd *p;

	begin();
	if (receive())
		return 1;
	p = calloc(k.nr + 2, sizeof(*p));
	if (!p || begin_to_listen() || keep_send(KEEP_FD, &ready)) {
		unlink_name();
		return 1;
	}
	close(KEEP_FD);
	k.end_ns = zns_mono_ns() + zns_min(k.set.limit_s, UINT64_MAX / 2000000000) * 1000000000;
	watch(p);
	unlink_name();
	return 0;
}
