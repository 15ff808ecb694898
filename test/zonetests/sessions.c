/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Relations of processes: zombies with exit codes not yet collected, sessions, process groups,
 * pending and blocked signals, an interval timer. zonetest: {'flavour': 'h ns'}
 */
#include <errno.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include "zt.h"

static pid_t exited, killed, leader, member, in_session;
static uint8_t state[ZT_PAGE];

static pid_t zombie(int code, int sig)
{
	siginfo_t info;
	pid_t pid = ZT_SYS(fork());

	if (!pid) {
		if (sig)
			raise(sig);
		_exit(code);
	}
	ZT_SYS(waitid(P_PID, pid, &info, WEXITED | WNOWAIT));
	return pid;
}

static void session_kid_check(int n)
{
	(void)n;
	ZT_CHECK(getsid(0) == getppid(), "session is %d, not the parent's", getsid(0));
	ZT_CHECK(getpgrp() == getpid(), "process group is %d", getpgrp());
}

static void own_group(int n)
{
	(void)n;
	ZT_SYS(setpgid(0, 0));
}

static void lead_session(int n)
{
	(void)n;
	ZT_SYS(setsid());
	in_session = zt_fork(own_group, session_kid_check, 0);
}

static void leader_check(int n)
{
	(void)n;
	ZT_CHECK(getsid(0) == getpid(), "session is %d, not mine", getsid(0));
	zt_join(in_session);
}

static void join_group(int n)
{
	(void)n;
	ZT_SYS(setpgid(0, 0));
}

static void member_check(int n)
{
	(void)n;
	ZT_CHECK(getpgrp() == getpid() && getsid(0) == getsid(getppid()),
		 "group %d or session %d is wrong", getpgrp(), getsid(0));
}

static void check_zombies(void)
{
	int status = 0;

	ZT_CHECK(waitpid(exited, &status, WNOHANG) == exited, "the first zombie is gone: %m");
	ZT_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42, "its exit code differs: %#x",
		 status);
	ZT_CHECK(waitpid(killed, &status, WNOHANG) == killed, "the second zombie is gone: %m");
	ZT_CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "its signal differs: %#x",
		 status);
}

static void check_signals(void)
{
	sigset_t set;
	siginfo_t info;
	struct timespec now = { 0 };
	struct itimerval timer;

	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN + 3);
	ZT_CHECK(sigtimedwait(&set, &info, &now) == SIGRTMIN + 3, "the pending signal is lost");
	ZT_CHECK(info.si_value.sival_int == 12345, "its value is %d", info.si_value.sival_int);
	ZT_CHECK(sigtimedwait(&set, &info, &now) == SIGRTMIN + 3 &&
			 info.si_value.sival_int == 54321,
		 "the second one is lost or wrong");
	ZT_CHECK(!getitimer(ITIMER_REAL, &timer) && timer.it_value.tv_sec > 3000 &&
			 timer.it_interval.tv_sec == 77,
		 "the timer has %ld s left", (long)timer.it_value.tv_sec);
}

static void check(void)
{
	zt_check(state, sizeof(state), 1, "memory");
	check_zombies();
	check_signals();
	zt_join(leader);
	zt_join(member);
}

int main(int argc, char **argv)
{
	struct itimerval timer = { .it_value.tv_sec = 4000, .it_interval.tv_sec = 77 };
	sigset_t set;

	zt_init(argc, argv);
	zt_fill(state, sizeof(state), 1);
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN + 3);
	sigprocmask(SIG_BLOCK, &set, NULL);
	ZT_SYS(sigqueue(getpid(), SIGRTMIN + 3, (union sigval){ .sival_int = 12345 }));
	ZT_SYS(sigqueue(getpid(), SIGRTMIN + 3, (union sigval){ .sival_int = 54321 }));
	ZT_SYS(setitimer(ITIMER_REAL, &timer, NULL));
	exited = zombie(42, 0);
	killed = zombie(0, SIGKILL);
	leader = zt_fork(lead_session, leader_check, 0);
	member = zt_fork(join_group, member_check, 0);
	zt_ready(NULL);
	zt_flip(state + 99);
	zt_serve(check);
}
