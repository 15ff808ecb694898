/* SPDX-License-Identifier: GPL-2.0-only */
/* Ends a dump or restore on Ctrl-C. See include/zns-stop.h. */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "common/compiler.h"
#include "log.h"
#include "zns-img.h"
#include "zns-link.h"
#include "zns-state.h"
#include "zns-stop.h"

#undef LOG_PREFIX
#define LOG_PREFIX "zns: "

/*
 * s; timeout(1) sends each signal twice at once; one that comes later than this is from a user who
 * insists
 */
#define INSIST_S 1

static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
static volatile time_t first; /* time of the first signal; 0: none yet */
static volatile sig_atomic_t ended_by; /* the signal that ended the restore; 0: none */
static volatile pid_t root; /* the root task, once the restore has made it */

static time_t now(void)
{
	struct timespec t = {};

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + 1;
}

static void take(int sig)
{
	int saved = errno;
	bool again = first && now() - first > INSIST_S;

	if (first && !again)
		return;
	first = now();
	if (again || (root ? kill(root, SIGKILL) : zns_link_stop())) {
		signal(sig, SIG_DFL);
		raise(sig);
	} else if (root) {
		ended_by = sig;
	}
	errno = saved;
}

/* Installs the handler, except for signals that the caller ignores or handles. */
static void install(void)
{
	struct sigaction sa = { .sa_handler = take, .sa_flags = SA_RESTART }, old;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(signals); i++) {
		if (!sigaction(signals[i], NULL, &old) && old.sa_handler == SIG_DFL)
			sigaction(signals[i], &sa, NULL);
	}
}

static void block(int how)
{
	sigset_t set;
	unsigned int i;

	sigemptyset(&set);
	for (i = 0; i < ARRAY_SIZE(signals); i++)
		sigaddset(&set, signals[i]);
	sigprocmask(how, &set, NULL);
}

void zns_stop_dump(void)
{
	install();
}

void zns_stop_restore(pid_t pid)
{
	if (zns_session.state != ZNS_RESTORE)
		return;
	root = pid;
	install();
	block(SIG_UNBLOCK);
}

void zns_stop_restore_end(void)
{
	if (root)
		block(SIG_BLOCK);
}

/*
 * Prints the reason. This is not done in the handler, which may have interrupted a write to the
 * log's buffer.
 */
void zns_stop_restore_failed(void)
{
	if (ended_by)
		pr_err("Interrupted (%s): the restored tasks are killed, and the checkpoint stays\n",
		       strsignal(ended_by));
}
