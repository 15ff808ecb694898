/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Runs `znsctl gc` when it is due (gc_due.c) and nothing else runs it. It is a separate program
 * because only znsctl can find out which checkpoints are still needed. It is a client like any
 * other, and the broker does not wait for it.
 */
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "requests.h"

#define LOOK_MS 60000
#define LIMIT_MS (10 * 60000) /* time limit, since a device may hang */

/*
 * Runs in the child of a process with threads, so it only makes calls that are safe there. The
 * kernel kills the program when this broker ends, for whatever reason, because the program would
 * start the next broker.
 */
static void __attribute__((noreturn)) run_gc(char *const argv[], pid_t broker)
{
	int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
	int out = open("/dev/null", O_WRONLY | O_CLOEXEC);
	sigset_t none;

	sigemptyset(&none);
	/* reset all signals, so that the program does not ignore those that we ignore */
	for (int s = 1; s < NSIG; s++)
		signal(s, SIG_DFL);
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != broker || in < 0 || out < 0 ||
	    dup2(in, 0) < 0 || dup2(out, 1) < 0 || sigprocmask(SIG_SETMASK, &none, NULL))
		_exit(1);
	execve(argv[0], argv, environ);
	_exit(127);
}

static int start(struct znsd *d)
{
	char prog[PATH_MAX], id[ZNS_UUID_STR];
	/* --no-programs: programs in gc.d may need a network and capabilities that this process has
	 * given up */
	char *argv[] = { prog, (char *)"gc", (char *)"--no-programs", (char *)"--dev", id, NULL };
	int ret = zns_find_znsctl(prog, sizeof(prog));
	pid_t broker = getpid(), pid;

	if (ret)
		return ret;
	zns_uuid_format(d->reg.uuid, id);
	pid = fork();
	if (!pid)
		run_gc(argv, broker);
	if (pid < 0)
		return -errno;
	d->server->gc_pid = pid;
	return 0;
}

static void reap(struct server *s)
{
	if (s->gc_pid && zns_mono_ns() - s->gc_ns > LIMIT_MS * 1000000ull)
		kill(s->gc_pid, SIGKILL);
	if (s->gc_pid && waitpid(s->gc_pid, NULL, WNOHANG) != 0)
		s->gc_pid = 0;
}

bool sweeping_start(struct znsd *d)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct server *s = d->server;
	uint64_t every_s;
	bool from_now;
	int ret;

	s->gc_look_ns = zns_mono_ns();
	if (s->gc_pid)
		return false;
	if (zns_config_sweep(&every_s, &err)) {
		znsd_warn("%s", err.msg);
		return false;
	}
	if (!gc_due(d, zns_swept_last(d->reg.uuid), every_s, &from_now)) {
		if (from_now)
			zns_swept_note(d->reg.uuid);
		return false;
	}
	/* done even if the start fails, so that the next attempt is after the normal interval */
	zns_swept_note(d->reg.uuid);
	s->gc_ns = zns_mono_ns();
	ret = start(d);
	if (ret)
		znsd_warn("cannot run `znsctl gc`: %s", strerror(-ret));
	else
		znsd_log("no sweep for %llu s: running `znsctl gc`", (unsigned long long)every_s);
	return !ret;
}

void sweeping_end(struct znsd *d)
{
	reap(d->server);
	if (d->server->gc_pid)
		kill(d->server->gc_pid, SIGTERM);
}

int sweeping_step(struct znsd *d)
{
	struct server *s = d->server;
	uint64_t now = zns_mono_ns();

	reap(s);
	if (now - s->gc_look_ns >= LOOK_MS * 1000000ull) {
		sweeping_start(d);
		now = s->gc_look_ns;
	}
	return LOOK_MS - (int)((now - s->gc_look_ns) / 1000000) + 1;
}
