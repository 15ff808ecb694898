/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * zns-memkeep, the keeper of memory contexts (zns/memkeep.h). It opens no device, has no connection
 * to a broker, and does not access the memory of processes. It keeps its capabilities, since the
 * pagers that it starts need them.
 */
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include "keeper.h"
#include "zns/broker.h"
#include "zns/daemon.h"
#include "zns/packet.h"
#include "zns/process.h"
#include "zns-version.h"

#define GUEST_NS 5000000000ull /* ns; a new connection must send MK_BEGIN within this time */

static volatile sig_atomic_t told_to_end;

void keeper_log(const char *fmt, ...)
{
	char when[32];
	time_t now = time(NULL);
	struct tm tm;
	va_list ap;

	strftime(when, sizeof(when), "%F %T", localtime_r(&now, &tm));
	fprintf(stderr, "%s zns-memkeep[%d]: ", when, (int)getpid());
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

static void on_term(int sig)
{
	told_to_end = 1;
}

/*
 * Protects this process from swapping and from the OOM killer, and moves it where its cgroup is
 * neither frozen nor killed.
 */
static void settle(void)
{
	struct sigaction sa = { .sa_handler = on_term };
	int fd;

	zns_process_shed();
	signal(SIGPIPE, SIG_IGN);
	sigaction(SIGTERM, &sa, NULL);
	prctl(PR_SET_DUMPABLE, 0);
	zns_cgroup_escape();
	mlockall(MCL_CURRENT | MCL_FUTURE);
	fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	if (fd >= 0) {
		/*
		 * if this is not permitted, the keeper may be killed: pagers then start another one
		 */
		if (write(fd, "-1000", 5) < 0)
			errno = 0;
		close(fd);
	}
}

/*
 * The caller holds the lock for starting a keeper, so if the socket exists, it belongs to a dead
 * one.
 */
static int begin_to_listen(struct zns_err *err)
{
	cleanup_close int dir = zns_run_subdir(MK_DIR, err), sk = -1;
	struct sockaddr_un a;

	if (dir < 0)
		return dir;
	sk = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (sk < 0)
		return zns_fail_sys(err, -errno, "cannot make a socket");
	zns_run_address(dir, MK_SOCKET, &a);
	if (!connect(sk, (struct sockaddr *)&a, sizeof(a)))
		return zns_fail(err, -EBUSY, "a keeper of memory contexts runs already in %s",
				zns_run_dir());
	close(sk);
	sk = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	unlinkat(dir, MK_SOCKET, 0);
	if (sk < 0 || bind(sk, (struct sockaddr *)&a, sizeof(a)) || listen(sk, 64))
		return zns_fail_sys(err, -errno, "cannot listen on %s/" MK_DIR "/" MK_SOCKET,
				    zns_run_dir());
	return zns_take_fd(&sk);
}

static void greet(int listening)
{
	int sk = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
	struct ucred c;
	socklen_t len = sizeof(c);

	if (sk < 0)
		return;
	zns_packet_timeouts(sk, MK_TIMEOUT_S);
	if (getsockopt(sk, SOL_SOCKET, SO_PEERCRED, &c, &len) < 0 ||
	    (c.uid && c.uid != geteuid())) {
		keeper_log("user %u is not served", (unsigned)c.uid);
		close(sk);
	} else if (context_new(sk, c.pid)) {
		keeper_log("no room for PID %d", (int)c.pid);
	}
}

/*
 * Frees contexts whose pager has exited without handing over anything, and connections that did not
 * send MK_BEGIN in time.
 */
static void tidy(void)
{
	uint64_t now = zns_mono_ns();

	for (uint32_t i = nr_contexts; i-- > 0;) {
		const struct context *c = &contexts[i];
		bool late = !*c->name && now - c->since_ns >= GUEST_NS;

		if (!c->holds && (c->sk < 0 || late))
			context_forget(i);
	}
}

static int until_next(uint64_t idle_since)
{
	uint64_t now = zns_mono_ns(), next = now + 3600000000000ull;

	for (uint32_t i = 0; i < nr_contexts; i++) {
		const struct context *c = &contexts[i];

		if (c->start_ns)
			next = zns_min(next, c->start_ns);
		if (!*c->name)
			next = zns_min(next, c->since_ns + GUEST_NS);
	}
	if (!nr_contexts)
		next = zns_min(next, idle_since + LEAVE_MS * 1000000ull);
	return next > now ? (int)((next - now) / 1000000) + 1 : 0;
}

static void serve(struct pollfd *p, uint32_t n)
{
	/* nothing is freed in this loop, so the indices stay valid */
	for (uint32_t i = 0; i < n; i++) {
		struct context *c = &contexts[i];

		if (p[2 * i].revents && c->sk == p[2 * i].fd)
			context_said(c);
		if (p[2 * i + 1].revents && c->pidfd == p[2 * i + 1].fd)
			context_died(c);
	}
	for (uint32_t i = 0; i < nr_contexts; i++)
		if (contexts[i].start_ns && contexts[i].start_ns <= zns_mono_ns())
			successor_start(&contexts[i]);
}

static int loop(int listening)
{
	struct pollfd *p = calloc(2 * (CONTEXTS_MAX + GUESTS_MAX) + 1, sizeof(*p));
	uint64_t idle_since = zns_mono_ns();

	if (!p)
		return 1;
	while (!told_to_end) {
		uint32_t n = nr_contexts;

		if (n)
			idle_since = zns_mono_ns();
		else if (zns_mono_ns() - idle_since >= LEAVE_MS * 1000000ull)
			break;
		for (uint32_t i = 0; i < n; i++) {
			p[2 * i] = (struct pollfd){ .fd = contexts[i].sk, .events = POLLIN };
			p[2 * i + 1] = (struct pollfd){ .fd = contexts[i].pidfd, .events = POLLIN };
		}
		p[2 * n] = (struct pollfd){ .fd = listening, .events = POLLIN };
		if (poll(p, 2 * n + 1, until_next(idle_since)) < 0)
			continue;
		serve(p, n);
		if (p[2 * n].revents)
			greet(listening);
		successors_reap();
		tidy();
	}
	free(p);
	return 0;
}

static int words(const char *word)
{
	bool help = !strcmp(word, "--help") || !strcmp(word, "-h");

	if (!strcmp(word, "--version") || !strcmp(word, "-V"))
		return printf("zns-memkeep: ZNS-CRIU %s\n", ZNS_VERSION) < 0;
	fprintf(help ? stdout : stderr,
		"usage: zns-memkeep\n"
		"Keeps the descriptors of memory contexts, and starts the next pager when one\n"
		"dies. Pagers start it. See znsctl(8).\n");
	return help ? 0 : 2;
}

int main(int argc, char **argv)
{
	struct zns_err err = ZNS_ERR_INIT;
	char run[PATH_MAX];
	int listening, ready = fcntl(ZNS_READY_FD, F_GETFD) < 0 ? -1 : ZNS_READY_FD;

	if (zns_std_fds())
		return 1;
	if (argc > 1)
		return words(argv[1]);
	settle();
	listening = zns_broker_run_dir(&err);
	/*
	 * chdir("/"), so that no directory is kept busy; all names are absolute, also for
	 * successors
	 */
	if (!listening &&
	    (!realpath(zns_run_dir(), run) || setenv("ZNS_RUN", run, 1) || chdir("/") < 0))
		listening = zns_fail_sys(&err, -errno, "cannot change to runtime directory %s",
					 zns_run_dir());
	if (!listening)
		listening = begin_to_listen(&err);
	zns_daemon_ready(ready, &err);
	if (listening < 0) {
		keeper_log("%s", err.msg);
		return 1;
	}
	return loop(listening);
}
