/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Ends a dump early for one of three reasons: criu's --timeout, which covers the whole dump;
 * SIGTERM, by which criu passes on a user's Ctrl-C; and the exit of criu itself. Threads watch for
 * them, since the message loop may wait for the broker or the device. If the dump does not end even
 * then, criu kills the helper some seconds later.
 */
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include "dump/dump_session.h"
#include "zns/process.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* criu has asked for the commit, and the request goes to the broker now; protected by lock */
static bool asked;
static bool over; /* the dump is committed; protected by lock */
static int stopped = -1; /* an eventfd that SIGTERM fills */

/*
 * Makes the dump fail with @err, unless it has failed before or is committed. With @criu_ended
 * (criu has exited) the dump also goes on if criu has asked for the commit: the broker may be
 * committing at this moment, so the dump then ends with a handle, or not at all.
 */
static void end_early(struct helper *h, bool criu_ended, const struct zns_err *err)
{
	struct dump *d = NULL;
	bool first;

	pthread_mutex_lock(&lock);
	first = !over && !h->late && !(criu_ended && asked);
	if (first) {
		h->late = true;
		h->late_err = *err;
		d = h->dump;
	}
	pthread_mutex_unlock(&lock);
	if (d)
		dump_fail(d, err);
	/*
	 * Ends all waits for answers of the broker. When the connection closes, the broker takes
	 * back the zones that it has granted.
	 */
	if (first && h->s.writers >= 0) /* only if there is a connection */
		shutdown(h->s.broker.fd, SHUT_RDWR);
}

static void *run(void *arg)
{
	struct helper *h = arg;
	struct timespec at = { .tv_sec = (time_t)(h->deadline_ns / 1000000000u),
			       .tv_nsec = (long)(h->deadline_ns % 1000000000u) };
	struct zns_err err = ZNS_ERR_INIT;

	zns_process_keep_caps(NULL, 0, NULL);
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
		;
	zns_fail(&err, -ETIMEDOUT, "the dump took longer than --timeout %u s", h->timeout_s);
	end_early(h, false, &err);
	return NULL;
}

static void *watch(void *arg)
{
	struct helper *h = arg;
	struct pollfd p[] = { { .fd = stopped, .events = POLLIN },
			      { .fd = h->criu, .events = POLLIN } };
	struct zns_err err = ZNS_ERR_INIT;

	zns_process_keep_caps(NULL, 0, NULL);
	while (poll(p, ZNS_ARRAY_SIZE(p), -1) < 0 && errno == EINTR)
		;
	if (p[0].revents)
		zns_fail(
			&err, -EINTR,
			"interrupted by a signal: nothing of the dump stays, and its tasks run on");
	else
		zns_fail(&err, -ECANCELED,
			 "criu ended before the commit: nothing of the dump stays");
	end_early(h, !p[0].revents, &err);
	return NULL;
}

static void on_stop(int signo)
{
	uint64_t one = 1;
	int saved = errno;

	if (write(stopped, &one, sizeof(one)) < 0) {
		/* the eventfd is full: the thread was woken before */
	}
	errno = saved;
}

static int start(void *(*thread)(void *), struct helper *h, struct zns_err *err)
{
	pthread_t t;
	int ret = -pthread_create(&t, NULL, thread, h);

	if (ret)
		return zns_fail_sys(err, ret, "cannot start a thread");
	pthread_detach(t);
	return 0;
}

int deadline_start(struct helper *h, uint32_t timeout_s, struct zns_err *err)
{
	struct sigaction sa = { .sa_handler = on_stop, .sa_flags = SA_RESTART };
	int ret;

	stopped = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (stopped < 0 || sigaction(SIGTERM, &sa, NULL))
		return zns_fail_sys(err, -errno, "cannot watch for signals");
	ret = start(watch, h, err);
	h->timeout_s = timeout_s;
	if (ret || !timeout_s)
		return ret;
	h->deadline_ns = zns_mono_ns() + timeout_s * 1000000000ull;
	return start(run, h, err);
}

int deadline_admitted(struct helper *h, struct dump *d, int ret, struct zns_err *err)
{
	pthread_mutex_lock(&lock);
	if (h->late && h->late_err.code == -ETIMEDOUT)
		ret = zns_fail(err, -ETIMEDOUT, "no admission within --timeout %u s", h->timeout_s);
	else if (h->late)
		ret = zns_fail(err, h->late_err.code, "%s", h->late_err.msg);
	if (!ret)
		h->dump = d;
	pthread_mutex_unlock(&lock);
	return ret;
}

int deadline_asked(const struct helper *h, struct zns_err *err)
{
	int ret = 0;

	pthread_mutex_lock(&lock);
	if (h->late)
		ret = zns_fail(err, h->late_err.code, "%s", h->late_err.msg);
	asked = !ret;
	pthread_mutex_unlock(&lock);
	return ret;
}

void deadline_over(void)
{
	pthread_mutex_lock(&lock);
	over = true;
	pthread_mutex_unlock(&lock);
}
