/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Starts the next pager of a context, and sends it the set that the keeper has. */
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "keeper.h"
#include "zns/packet.h"
#include "zns/process.h"

#define AGAIN_NS 1000000000ull /* ns until the next try after an error of the keeper itself */

#define EXE_FD (ZNS_MEMKEEP_FD + 1)

/* Executes the file @exe, or the installed program if @exe is -1. */
static void __attribute__((noreturn)) child(const char *prog, int exe, const char *name, int sk)
{
	char *argv[] = { (char *)"zns-mem", (char *)ZNS_MEMKEEP_TAKE, (char *)name, NULL };
	int high = exe < 0 ? -1 : fcntl(exe, F_DUPFD, 16);

	setsid();
	sk = fcntl(sk, F_DUPFD, 16);
	if (sk < 0 || dup2(sk, ZNS_MEMKEEP_FD) < 0)
		_exit(126);
	if (high >= 0 && dup3(high, EXE_FD, O_CLOEXEC) >= 0) {
		zns_close_from(EXE_FD + 1);
		zns_process_shed();
		syscall(SYS_execveat, EXE_FD, "", argv, environ, AT_EMPTY_PATH);
	} else {
		zns_close_from(ZNS_MEMKEEP_FD + 1);
		zns_process_shed();
		execv(prog, argv);
	}
	_exit(127);
}

/*
 * Returns the program to start: first the installed pager, which may be newer; after a failure, the
 * program that has served the context before.
 */
static int program_of(const struct context *c)
{
	return c->failures % 2 ? -1 : c->exe;
}

static int give(struct context *c, int sk)
{
	struct mk_head h = { .op = MK_BEGIN, .nr = c->deaths };
	int ret;

	snprintf(h.name, sizeof(h.name), "%s", c->name);
	ret = mk_send(sk, &h, NULL, NULL);
	return ret ? ret : mk_send_set(sk, c->has.data, c->has.len, c->has.fds, c->has.nr);
}

static int start(struct context *c)
{
	char prog[PATH_MAX];
	int pair[2], exe = program_of(c);
	int ret = exe < 0 ? zns_own_program("zns-mem", prog, sizeof(prog)) : 0;

	if (!ret && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		ret = -errno;
	if (ret)
		return ret;
	c->child = fork();
	if (!c->child)
		child(prog, exe, c->name, pair[1]);
	close(pair[1]);
	c->pidfd = c->child > 0 ? (int)syscall(SYS_pidfd_open, c->child, 0) : -1;
	if (c->pidfd < 0) {
		close(pair[0]);
		return -EAGAIN;
	}
	c->pid = c->child;
	c->sk = pair[0];
	c->since_ns = zns_mono_ns();
	zns_packet_timeouts(c->sk, MK_TIMEOUT_S);
	ret = give(c, c->sk);
	/* the loop notices its exit through its pidfd, as for any pager */
	if (ret)
		kill(c->child, SIGKILL);
	return 0;
}

void successor_start(struct context *c)
{
	int ret = start(c);

	c->start_ns = 0;
	if (!ret)
		return;
	keeper_log("%s: no pager can be started: %s", c->name, strerror(-ret));
	c->failures++;
	c->start_ns = zns_mono_ns() + AGAIN_NS;
}

void successors_reap(void)
{
	pid_t pid;

	while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
		for (uint32_t i = 0; i < nr_contexts; i++)
			if (contexts[i].child == pid)
				contexts[i].child = 0;
}
