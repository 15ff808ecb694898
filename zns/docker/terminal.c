/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The terminal of a resumed container. The engine needs the master end of a terminal during create,
 * but the container's own terminal exists only when it is restored. So the engine gets the master
 * of another terminal, and a relay process copies between the two until one of them closes.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <termios.h>
#include "hold.h"
#include "zns/packet.h"
#include "zns/process.h"

#define PATH_LEN 256 /* bytes; longest name that runc sends with a terminal */

/* One direction of the copy. If its buffer is full, the other direction continues. */
struct way {
	int from, to;
	char buf[4096];
	size_t at, end;
};

int terminal_make(struct hold *h, struct zns_err *err)
{
	struct termios t;

	h->master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (h->master >= 0 && !grantpt(h->master) && !unlockpt(h->master))
		h->slave = ioctl(h->master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (h->slave < 0 || tcgetattr(h->slave, &t))
		return zns_fail_sys(err, -errno, "cannot make a terminal");
	cfmakeraw(&t); /* raw: the container's own terminal processes all characters */
	return tcsetattr(h->slave, TCSANOW, &t) ?
		       zns_fail_sys(err, -errno, "cannot set up a terminal") :
		       0;
}

int terminal_give(const struct hold *h, struct zns_err *err)
{
	cleanup_close int sk = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	char name[] = "/dev/ptmx";
	int ret;

	if (strlen(h->c->console) >= sizeof(a.sun_path))
		return zns_fail(err, -ENAMETOOLONG, "%s: the path is too long", h->c->console);
	strcpy(a.sun_path, h->c->console);
	ret = sk < 0 || connect(sk, (struct sockaddr *)&a, sizeof(a)) ? -errno : 0;
	if (!ret)
		ret = zns_packet_send(sk, &(struct iovec){ name, sizeof(name) }, 1, &h->master, 1);
	return ret ? zns_fail_sys(err, ret, "cannot send the terminal to %s", h->c->console) : 0;
}

/*
 * Receives the master of the container's terminal from runc. -1: the restore ended without sending
 * it.
 */
static int receive(int listener, int restore)
{
	struct pollfd p[] = { { listener, POLLIN, 0 }, { restore, POLLIN, 0 } };
	char name[PATH_LEN];
	struct iovec iov = { name, sizeof(name) };
	uint32_t nr = 0;
	int sk, fd = -1;

	while (poll(p, 2, -1) < 0 && errno == EINTR)
		;
	if (!p[0].revents)
		return -1;
	sk = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (sk >= 0 && (zns_packet_recv(sk, &iov, 1, &fd, 1, &nr) <= 0 || !nr))
		fd = -1;
	if (sk >= 0)
		close(sk);
	close(listener);
	return fd;
}

/* Reads or writes once. False: one of the two ends was closed. */
static bool move(struct way *w)
{
	ssize_t n = w->end ? write(w->to, w->buf + w->at, w->end - w->at) :
			     read(w->from, w->buf, sizeof(w->buf));

	if (n <= 0)
		return n < 0 && (errno == EAGAIN || errno == EINTR);
	if (!w->end)
		w->end = (size_t)n;
	else
		w->at += (size_t)n;
	if (w->at == w->end)
		w->at = w->end = 0;
	return true;
}

static void copy_size(int from, int to)
{
	struct winsize size;

	if (!ioctl(from, TIOCGWINSZ, &size) && size.ws_row)
		ioctl(to, TIOCSWINSZ, &size);
}

static void copy(int tty, int real, int resized)
{
	struct way in = { tty, real, { 0 }, 0, 0 }, out = { real, tty, { 0 }, 0, 0 };
	struct way *const ways[] = { &in, &out };
	struct signalfd_siginfo info;
	bool has_said = false;

	fcntl(tty, F_SETFL, O_RDWR | O_NONBLOCK);
	fcntl(real, F_SETFL, O_RDWR | O_NONBLOCK);
	for (;;) {
		struct pollfd p[3] = { [2] = { resized, POLLIN, 0 } };

		for (int i = 0; i < 2; i++)
			p[i] = ways[i]->end ? (struct pollfd){ ways[i]->to, POLLOUT, 0 } :
					      (struct pollfd){ ways[i]->from, POLLIN, 0 };
		if (poll(p, 3, -1) < 0 && errno != EINTR)
			return;
		/*
		 * The container has closed its terminal and reads no more: drop the input.
		 * Otherwise poll() would report the hangup again and again.
		 */
		if (in.end && p[0].revents & POLLHUP && !(p[0].revents & POLLOUT))
			in.at = in.end = 0;
		for (int i = 0; i < 2; i++)
			if (p[i].revents && !move(ways[i]))
				return;
		if (p[2].revents && read(resized, &info, sizeof(info)) < 0)
			return;
		/*
		 * The restored terminal has the size that it had at the dump: set the present size
		 * before the container's first output. Later the container may set another one.
		 */
		if (p[2].revents || (out.end && !has_said))
			copy_size(tty, real);
		has_said |= out.end > 0;
	}
}

bool terminal_relay(const struct hold *h)
{
	int fd[] = { h->slave, h->console, h->restore };
	sigset_t winch;
	pid_t pid = fork();
	int real;

	if (pid)
		return pid > 0;
	call_null_stdio();
	zns_process_signals();
	/*
	 * Keep only these three descriptors: any other one would stay open as long as the container
	 * runs.
	 */
	for (int i = 0; i < 3; i++)
		if ((fd[i] = fcntl(fd[i], F_DUPFD_CLOEXEC, 100)) < 0)
			_exit(1);
	for (int i = 3; i < 100; i++)
		close(i);
	for (int i = 0; i < 3; i++)
		fd[i] = dup2(fd[i], 3 + i);
	zns_close_from(6);
	sigemptyset(&winch);
	sigaddset(&winch, SIGWINCH);
	sigprocmask(SIG_BLOCK, &winch, NULL);
	prctl(PR_SET_NAME, "zns-terminal");
	setsid();
	/* makes the kernel send SIGWINCH when the engine changes the size */
	ioctl(fd[0], TIOCSCTTY, 0);
	real = receive(fd[1], fd[2]);
	if (real >= 0)
		copy(fd[0], real, signalfd(-1, &winch, SFD_CLOEXEC | SFD_NONBLOCK));
	_exit(0);
}
