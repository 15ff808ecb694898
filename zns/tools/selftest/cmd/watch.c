/* SPDX-License-Identifier: GPL-2.0-only */
/* A drive may never answer. The user gets a report even then. */
#include <ftw.h>
#include <pthread.h>
#include <unistd.h>

#include "selftest.h"

#define TICK_US 100000

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
/* time of the last line; protected by the lock, like the other variables here */
static uint64_t since_ns;
static char last[128]; /* the subject of the last line */

void st_saying(const char *what)
{
	pthread_mutex_lock(&lock);
	since_ns = zns_mono_ns();
	snprintf(last, sizeof(last), "%s", what);
}

void st_said(void)
{
	pthread_mutex_unlock(&lock);
}

static int unlink_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

void st_tidy(const struct selftest *s)
{
	nftw(s->dir, unlink_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Call with the lock held. Threads that wait for the drive still wait, so nothing is freed. */
static _Noreturn void give_up(struct selftest *s)
{
	char after[sizeof(last)], limit[32];
	int code;

	snprintf(after, sizeof(after), "%s", last);
	st_say(s, ST_FAILED, "time",
	       "the check after \"%s\" does not end within %s: the drive hangs (dmesg), or wants a larger --limit; the rest is not run",
	       after, zns_format_duration(s->limit_s, limit, sizeof(limit)));
	st_run_kill();
	st_tidy(s);
	code = st_end(s);
	fflush(NULL);
	_exit(code);
}

static void *watch(void *arg)
{
	struct selftest *s = arg;

	for (;;) {
		usleep(TICK_US);
		pthread_mutex_lock(&lock);
		if ((zns_mono_ns() - since_ns) / 1000000000 >= s->limit_s)
			give_up(s);
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}

int st_watch(struct selftest *s)
{
	pthread_t thread;
	int ret;

	since_ns = zns_mono_ns();
	snprintf(last, sizeof(last), "the beginning");
	ret = -pthread_create(&thread, NULL, watch, s);
	if (!ret)
		pthread_detach(thread);
	return ret;
}
