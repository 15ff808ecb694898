/* SPDX-License-Identifier: GPL-2.0-only */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cr_options.h"
#include "log.h"
#include "servicefd.h"
#include "zns-alone.h"
#include "zns-link.h"
#include "zns-opts.h"

#undef LOG_PREFIX
#define LOG_PREFIX "zns: "

#define DEADLINE_S 10 /* s; used until the helper sends the administrator's limit */
#define LOOK_MS 500
/*
 * s; the helper itself ends a dump that is late. After this time more it must hang or be stopped,
 * and is killed.
 */
#define GRACE_S 3

static struct {
	pid_t pid;
	int pidfd;
	timer_t timer;
	unsigned int limit_s; /* s; limit of the whole dump; 0: none */
	volatile sig_atomic_t killed;
} helper = { .pidfd = -1 };

/* Memory that all processes of criu share. */
static volatile struct {
	/* s; how long the helper was silent when the guard killed it; 0: the guard did not */
	unsigned int silent_s;
	unsigned int told; /* one of the processes has printed that already */
} * end;

/* Looks in $ZNS_LIBEXEC, otherwise beside criu's executable and in ../libexec/zns-criu. */
int zns_program_path(const char *name, char *out, size_t len)
{
	static const char *const at[] = { "%s/%s", "%s/../libexec/zns-criu/%s" };
	const char *env = secure_getenv("ZNS_LIBEXEC");
	char dir[PATH_MAX];
	ssize_t n;
	unsigned int i;

	if (env) {
		return snprintf(out, len, "%s/%s", env, name) < (int)len ? access(out, X_OK) : -1;
	}
	n = readlink("/proc/self/exe", dir, sizeof(dir) - 1);
	if (n <= 0)
		return -1;
	dir[n] = '\0';
	*strrchr(dir, '/') = '\0';
	for (i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
		if (snprintf(out, len, at[i], dir, name) < (int)len && !access(out, X_OK))
			return 0;
	}
	return -1;
}

static void on_limit(int signo)
{
	int saved = errno;

	if (helper.pidfd >= 0)
		syscall(SYS_pidfd_send_signal, helper.pidfd, SIGKILL, NULL, 0);
	helper.killed = 1;
	errno = saved;
}

int zns_link_hold(void)
{
	if (helper.pidfd < 0)
		helper.pidfd = syscall(SYS_pidfd_open, helper.pid, 0);
	return helper.pidfd < 0 ? -1 : 0;
}

int zns_link_stop(void)
{
	return helper.pidfd < 0 ? -1 :
				  syscall(SYS_pidfd_send_signal, helper.pidfd, SIGTERM, NULL, 0);
}

/*
 * Uses a signal whose handler restarts system calls: those that criu's own alarm interrupts would
 * fail at any place.
 */
int zns_link_limit(unsigned int s)
{
	struct sigaction sa = { .sa_handler = on_limit, .sa_flags = SA_RESTART };
	struct sigevent ev = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGVTALRM };
	struct itimerspec in = { .it_value = { .tv_sec = s + GRACE_S } };

	if (zns_link_hold() || sigaction(SIGVTALRM, &sa, NULL) ||
	    timer_create(CLOCK_MONOTONIC, &ev, &helper.timer)) {
		pr_perror("Can't limit the time of zns-helper");
		zns_link_close();
		return -1;
	}
	helper.limit_s = s;
	return timer_settime(helper.timer, 0, &in, NULL);
}

/* Runs in the grandchild, and executes the helper. */
static void helper_exec(const char *path, int sk, int beat)
{
	/* runc starts `criu swrk`, and puts it into the container's cgroups before a restore. */
	bool leaves = opts.swrk_restore && strcmp(zns_opts.cgroup, "container");
	char *const argv[] = { "zns-helper", leaves ? ZW_LEAVE_CGROUP : NULL, NULL };
	const int fd[] = { sk, [ZW_BEAT_FD - ZNS_ALONE_FD] = beat };

	if (!zns_alone(fd, ARRAY_SIZE(fd), false) && !chdir("/"))
		execv(path, argv);
	_exit(1);
}

/*
 * Runs beside the helper, and kills it when it is silent for too long. Then criu's processes, which
 * wait for the helper on sockets and pipes, get an error, and the tasks continue. Only time in
 * which the guard itself runs is counted: if the whole machine was stopped, the helper is not at
 * fault.
 */
static void guard(int beat, int pidfd)
{
	enum { AT_BEAT = ZNS_ALONE_FD, AT_HELPER };
	struct pollfd p = { .fd = AT_BEAT, .events = POLLIN };
	unsigned int limit = DEADLINE_S, silent = 0;
	uint32_t said;

	prctl(PR_SET_NAME, "zns-guard");
	if (zns_alone((int[]){ beat, pidfd }, 2, true) || chdir("/"))
		_exit(1);
	for (;;) {
		int ret = poll(&p, 1, LOOK_MS);

		if (ret > 0) {
			if (read(AT_BEAT, &said, sizeof(said)) != sizeof(said))
				_exit(0); /* the helper has exited */
			limit = said;
			silent = 0;
		} else if (!ret && limit && (silent += LOOK_MS) >= limit * 1000) {
			end->silent_s = limit;
			syscall(SYS_pidfd_send_signal, AT_HELPER, SIGKILL, NULL, 0);
			_exit(0);
		}
	}
}

/* Runs in the child: starts the helper and its guard. Returns the child's exit code. */
static int start_both(const char *path, int sk, int beat[2], int pid_pipe)
{
	pid_t pid = fork();
	int pidfd;

	if (pid == 0)
		helper_exec(path, sk, beat[1]);
	if (pid < 0)
		return 1;
	/* the helper is our child, so its PID cannot have been reused */
	pidfd = syscall(SYS_pidfd_open, pid, 0);
	if (pidfd >= 0 && !fork()) {
		close(beat[1]);
		guard(beat[0], pidfd);
	}
	return write(pid_pipe, &pid, sizeof(pid)) != sizeof(pid);
}

/*
 * Forks twice, so that the helper is no child of criu: in a restore criu takes the exit of any
 * child for the death of a task (hooks.md, "No threads, many processes").
 */
int zns_link_start(void)
{
	char path[PATH_MAX];
	int sk[2], p[2], beat[2], status;
	pid_t pid;

	if (zns_program_path("zns-helper", path, sizeof(path))) {
		pr_err("zns-helper is not beside this criu nor in ../libexec/zns-criu; install it or set ZNS_LIBEXEC\n");
		return -1;
	}
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sk)) {
		pr_perror("Can't make a socket for zns-helper");
		return -1;
	}
	if (pipe2(p, O_CLOEXEC)) {
		pr_perror("Can't make a pipe for zns-helper's PID");
		close(sk[0]);
		close(sk[1]);
		return -1;
	}
	if (!end) {
		void *mem = mmap(NULL, sizeof(*end), PROT_READ | PROT_WRITE,
				 MAP_SHARED | MAP_ANONYMOUS, -1, 0);

		end = mem == MAP_FAILED ? NULL : mem;
	}
	if (!end || pipe2(beat, O_CLOEXEC)) {
		pr_perror("Can't watch zns-helper");
		close(sk[0]);
		close(sk[1]);
		close(p[0]);
		close(p[1]);
		return -1;
	}
	pid = fork();
	if (pid == 0)
		_exit(start_both(path, sk[1], beat, p[1]));
	close(sk[1]);
	close(p[1]);
	close(beat[0]);
	close(beat[1]);
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) ||
	    WEXITSTATUS(status) ||
	    read(p[0], &helper.pid, sizeof(helper.pid)) != sizeof(helper.pid)) {
		pr_perror("Can't start zns-helper");
		close(p[0]);
		close(sk[0]);
		return -1;
	}
	close(p[0]);
	return install_service_fd(ZNS_SK_OFF, sk[0]) < 0 ? -1 : 0;
}

void zns_link_unlimit(void)
{
	if (helper.limit_s)
		timer_delete(helper.timer);
	helper.limit_s = 0;
}

void zns_link_close(void)
{
	close_service_fd(ZNS_SK_OFF);
	zns_link_unlimit();
	if (helper.pidfd >= 0)
		close(helper.pidfd);
	helper.pidfd = -1;
}

int zns_send(struct zns_msg *m)
{
	union {
		char buf[CMSG_SPACE(sizeof(int) * ZW_MAX_FDS)];
		struct cmsghdr align;
	} u = {};
	struct iovec iov[2] = { { &m->h, sizeof(m->h) }, { (void *)m->payload, m->len } };
	struct msghdr mh = { .msg_iov = iov, .msg_iovlen = m->len ? 2 : 1 };
	int sk = get_service_fd(ZNS_SK_OFF);

	if (m->nr_fd) {
		struct cmsghdr *c;

		mh.msg_control = u.buf;
		mh.msg_controllen = CMSG_SPACE(sizeof(int) * m->nr_fd);
		c = CMSG_FIRSTHDR(&mh);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * m->nr_fd);
		memcpy(CMSG_DATA(c), m->fd, sizeof(int) * m->nr_fd);
	}
	while (sendmsg(sk, &mh, MSG_NOSIGNAL) < 0) {
		if (errno == EINTR)
			continue;
		/* the helper has missed a message, so it must not commit what later messages say */
		shutdown(sk, SHUT_RDWR);
		return -EPIPE;
	}
	return 0;
}

const char *zns_helper_gone(void)
{
	static char text[128];

	if (helper.killed) {
		snprintf(text, sizeof(text),
			 "zns-helper did not answer within --timeout %u s and was killed",
			 helper.limit_s);
	} else if (end && end->silent_s) {
		snprintf(text, sizeof(text),
			 "zns-helper showed no sign of life for %u s and was killed",
			 end->silent_s);
		end->told = 1;
	} else
		return "zns-helper died";
	return text;
}

void zns_link_tell(void)
{
	if (end && end->silent_s && !end->told)
		zns_pr_err("%s; start the command again\n", zns_helper_gone());
}

int zns_answer_socket(int sk[2])
{
	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sk) ? -errno : 0;
}

int zns_recv_reply(int sk, struct zw_reply *r, int *fd)
{
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} u;
	struct iovec iov = { r, sizeof(*r) };
	struct msghdr mh = { .msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = u.buf,
			     .msg_controllen = sizeof(u.buf) };
	struct cmsghdr *c;
	ssize_t n;

	do {
		n = recvmsg(sk, &mh, MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	c = n > 0 ? CMSG_FIRSTHDR(&mh) : NULL;
	if (fd)
		*fd = -1;
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
		int got;

		memcpy(&got, CMSG_DATA(c), sizeof(got));
		if (fd)
			*fd = got;
		else
			close(got);
	}
	if (n != sizeof(*r)) {
		memset(r, 0, sizeof(*r));
		snprintf(r->msg, sizeof(r->msg), "%s; start the command again", zns_helper_gone());
		r->code = -EPIPE;
	}
	r->msg[sizeof(r->msg) - 1] = '\0';
	return r->code;
}

int zns_ask_begin(struct zns_msg *m, struct zw_reply *r)
{
	int sk[2], ret, i;

	memset(r, 0, sizeof(*r));
	ret = zns_answer_socket(sk);
	if (ret) {
		snprintf(r->msg, sizeof(r->msg), "no socket for an answer: %s", strerror(-ret));
		r->code = ret;
		return -1;
	}
	for (i = m->nr_fd; i > 0; i--)
		m->fd[i] = m->fd[i - 1];
	m->fd[0] = sk[1];
	m->nr_fd++;
	/*
	 * if the send failed, our copy of the other end is closed, so the read returns an error at
	 * once
	 */
	zns_send(m);
	close(sk[1]);
	return sk[0];
}

int zns_ask(struct zns_msg *m, struct zw_reply *r, int *fd)
{
	int ret, sk = zns_ask_begin(m, r);

	if (fd)
		*fd = -1;
	if (sk < 0)
		return r->code;
	ret = zns_recv_reply(sk, r, fd);
	close(sk);
	return ret;
}

/*
 * Compares the text up to a semicolon: what follows is advice, which depends on the place that
 * prints the error.
 */
bool zns_err_is_new(const char *format, ...)
{
	static char last[sizeof(((struct zw_reply *)0)->msg)];
	char text[sizeof(last)];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	text[strcspn(text, ";\n")] = '\0';
	if (!strcmp(text, last))
		return false;
	strcpy(last, text);
	return true;
}
