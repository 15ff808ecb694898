/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * zns-helper: criu starts it for one dump or restore, and it exits with that (design.md §3).
 * Descriptor 3 is the socket to criu. It prints nothing: every failure is sent to criu in an
 * answer.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "restore/fill.h"
#include "helper.h"
#include "journal.h"
#include "keeper/keep.h"
#include "zns-version.h"
#include "zns/process.h"

#define CRIU_FD 3

/*
 * Makes the helper end when criu exits. The socket alone does not show this: a child of criu may
 * outlive criu and hold the socket open. For example, a child that is stopped for a test of
 * ptrace() when criu is killed stays stopped for ever. The dump would then wait for that child, and
 * block other dumps.
 */
static int follow(struct helper *h, const struct packet *p)
{
	/*
	 * credentials of the process that made the socket; those of a packet may lack, since its
	 * sender may have sent it before the helper enabled SO_PASSCRED
	 */
	struct ucred made;
	socklen_t len = sizeof(made);

	if (h->criu >= 0 || !p->h.nr || getsockopt(h->sk, SOL_SOCKET, SO_PEERCRED, &made, &len) ||
	    made.pid <= 0)
		return 0;
	h->criu = (int)syscall(SYS_pidfd_open, made.pid, 0);
	return h->criu < 0 && errno == ESRCH ? -ESRCH : 0;
}

static void dispatch(struct helper *h, struct packet *p)
{
	const struct zw_begin *b = packet_begin(p);
	struct zns_err err = ZNS_ERR_INIT;
	int ret = 0;

	if (h->dump) {
		dump_packet(h, p);
		return;
	}
	if (h->restore) {
		restore_packet(h, p);
		return;
	}
	if (h->send) {
		send_packet(h, p);
		return;
	}
	if ((p->h.op == ZW_DUMP_BEGIN || p->h.op == ZW_RESTORE_BEGIN) && follow(h, p))
		ret = zns_fail(&err, -ESRCH, "criu has ended");
	else if (p->h.op == ZW_DUMP_BEGIN || p->h.op == ZW_RECEIVE_BEGIN)
		ret = dump_begin(h, p, &err);
	else if (p->h.op == ZW_RESTORE_BEGIN)
		ret = restore_begin(h, p, &err);
	else if (p->h.op == ZW_SEND_BEGIN)
		ret = send_begin(h, p, &err);
	else if (p->h.op == ZW_CHECK)
		ret = check_device(h, p, &err);
	else
		ret = zns_fail(&err, -EPROTO, "zns-helper: request %u before the beginning",
			       p->h.op);
	if (ret && !h->journaled && (p->h.op == ZW_DUMP_BEGIN || p->h.op == ZW_RESTORE_BEGIN))
		journal_refused(h, p->h.op == ZW_DUMP_BEGIN ? "dump" : "restore",
				b ? b->container : "", &err);
	if (ret) {
		reply_error(p->nr_fd ? p->fd[0] : -1, &err);
		zns_session_close(&h->s);
	}
}

static void loop(struct helper *h)
{
	static struct packet p;
	bool gone = false;

	for (;;) {
		struct pollfd pfd[] = { { .fd = h->sk, .events = POLLIN },
					{ .fd = gone ? -1 : h->s.broker.fd, .events = POLLRDHUP },
					{ .fd = h->fills, .events = POLLIN },
					{ .fd = h->criu, .events = POLLIN } };

		if (poll(pfd, ZNS_ARRAY_SIZE(pfd), awake_timeout(zns_mono_ns())) < 0) {
			if (errno == EINTR)
				continue;
			return;
		}
		if (pfd[1].revents) {
			/*
			 * a restore continues: its tasks may still read, and the readers' lock,
			 * which the helper holds, protects its zones
			 */
			gone = true;
			if (h->dump)
				dump_broker_gone(h);
		}
		if (pfd[2].revents)
			fill_ready(h);
		if (pfd[0].revents) {
			if (packet_recv(h->sk, &p) <= 0)
				return;
			dispatch(h, &p);
			packet_close_fds(&p);
		} else if (pfd[3].revents) {
			return;
		}
	}
}

/* Prints the program's purpose for a user who runs it by hand. */
static bool asked(const char *what)
{
	if (!strcmp(what, "--help") || !strcmp(what, "-h"))
		printf("usage: zns-helper\nMoves the data of one dump or restore; criu starts it, on its descriptor %d. It\n"
		       "takes no option but --help (-h) and --version (-V). See znsd(8).\n",
		       CRIU_FD);
	else if (!strcmp(what, "--version") || !strcmp(what, "-V"))
		printf("zns-helper: ZNS-CRIU %s\n", ZNS_VERSION);
	else
		return false;
	return true;
}

int main(int argc, char **argv)
{
	struct helper h = { .sk = CRIU_FD,
			    .criu = -1,
			    .dir = -1,
			    .fills = -1,
			    .charged = ZNS_CGROUP_IO_NONE,
			    .s = ZNS_SESSION_INIT,
			    .broker_lock = PTHREAD_MUTEX_INITIALIZER };
	int on = 1;
	socklen_t len = sizeof(on);

	if (zns_std_fds())
		return 1;
	if (argc == 2 && asked(argv[1]))
		return fflush(stdout) ? 1 : 0;
	if (argc == 2 && !strcmp(argv[1], KEEP_ARGUMENT))
		return keeper();
	if (getsockopt(CRIU_FD, SOL_SOCKET, SO_TYPE, &on, &len) || on != SOCK_SEQPACKET) {
		fprintf(stderr, "%s is started by criu, not by hand\n",
			argc ? argv[0] : "zns-helper");
		return 2;
	}
	on = 1;
	if (setsockopt(CRIU_FD, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)))
		return 1;
	zns_process_raise_limits(); /* every unanswered read holds a descriptor */
	signal(SIGPIPE, SIG_IGN);
	/* a failed write returns an error instead of killing the helper */
	signal(SIGXFSZ, SIG_IGN);
	prctl(PR_SET_DUMPABLE, 0); /* the helper's buffers hold memory of other tasks */
	zns_process_no_network();
	/* Leaves the cgroup so that a container is not charged for our memory and I/O. As long as
	 * there is one thread, this takes no time (hooks.md). */
	if (argc == 2 && !strcmp(argv[1], ZW_LEAVE_CGROUP))
		zns_cgroup_escape();
	beat_start();
	loop(&h);
	if (h.dump)
		dump_end(&h);
	if (h.restore)
		restore_end(&h);
	if (h.send)
		send_end(&h);
	/*
	 * Exit without unlocking or closing anything. Other threads may still write to the device.
	 * To the broker, a free lock and a closed connection mean that the zones can be reset. The
	 * kernel releases both only after the last thread has ended its last write.
	 */
	_exit(0);
}
