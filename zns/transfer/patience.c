/* SPDX-License-Identifier: GPL-2.0-only */
/* See patience.h. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "../ctl/lib/ctl.h"
#include "patience.h"
#include "zns/util.h"

#define POLL_MS 1000
#define NS 1000000000ULL
#define TICK_MAX (2 * POLL_MS * NS / 1000)
/* most ns that are counted for one wait, so that the multiplication does not overflow */
#define NS_MAX (100000 * NS)

void ctl_patience_start(struct ctl_patience *p, uint64_t limit_s)
{
	p->limit_s = zns_min(limit_s, (uint64_t)UINT32_MAX);
	p->full = p->left = p->limit_s * CTL_PATIENCE_RATE;
}

bool ctl_patience_waited(struct ctl_patience *p, uint64_t ns)
{
	uint64_t cost = zns_min(ns, NS_MAX) * CTL_PATIENCE_RATE / NS;

	p->left -= zns_min(p->left, cost);
	return !p->limit_s || p->left;
}

bool ctl_patience_ticked(struct ctl_patience *p, uint64_t from_ns)
{
	return ctl_patience_waited(p, zns_min(zns_mono_ns() - from_ns, TICK_MAX));
}

void ctl_patience_got(struct ctl_patience *p, uint64_t bytes)
{
	p->left += zns_min(p->full - p->left, bytes);
}

int ctl_patience_wait(struct ctl_patience *p, int fd)
{
	struct pollfd f = { .fd = fd, .events = POLLIN };

	while (p && p->limit_s) {
		uint64_t from = zns_mono_ns();

		if (poll(&f, 1, POLL_MS) > 0)
			return 0;
		if (!ctl_patience_ticked(p, from))
			return -ETIMEDOUT;
	}
	return 0;
}

static void on_tick(int sig)
{
}

/* Starts a timer that interrupts a blocked write() each second, in this thread only. */
static int tick_start(timer_t *t)
{
	const struct itimerspec each = { { POLL_MS / 1000, 0 }, { POLL_MS / 1000, 0 } };
	/* without SA_RESTART, so that write() returns EINTR */
	const struct sigaction sa = { .sa_handler = on_tick };
	struct sigevent ev = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGALRM };

	sigset_t alarm;

	ev._sigev_un._tid = gettid();
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	/* the parent process may have left the signal blocked */
	if (sigaction(SIGALRM, &sa, NULL) || pthread_sigmask(SIG_UNBLOCK, &alarm, NULL) ||
	    timer_create(CLOCK_MONOTONIC, &ev, t))
		return -errno;
	if (!timer_settime(*t, 0, &each, NULL))
		return 0;
	timer_delete(*t);
	return -errno;
}

static int write_ticking(struct ctl_patience *p, int fd, const uint8_t *buf, size_t len,
			 struct zns_err *err)
{
	for (size_t done = 0; done < len;) {
		uint64_t from = zns_mono_ns();
		ssize_t n = write(fd, buf + done, len - done);
		int ret = !n ? -EIO : n < 0 && errno != EINTR ? -errno : ctl_caught(err);

		if (ret)
			return ret;
		if (n > 0) {
			ctl_patience_got(p, (uint64_t)n);
			done += (size_t)n;
		}
		if (!ctl_patience_ticked(p, from) && done < len)
			return -ETIMEDOUT;
	}
	return 0;
}

int ctl_patience_write(struct ctl_patience *p, int fd, const void *buf, size_t len,
		       struct zns_err *err)
{
	struct stat st;
	timer_t t = NULL;
	int ret;

	if (!fstat(fd, &st) && S_ISREG(st.st_mode))
		return zns_write_all(fd, buf, len);
	ret = tick_start(&t);
	if (ret)
		return ret;
	ret = write_ticking(p, fd, buf, len, err);
	timer_delete(t);
	return ret;
}

int ctl_patience_fail(const struct ctl_patience *p, const char *who_did, struct zns_err *err)
{
	return zns_fail(
		err, -ETIMEDOUT,
		"%s nothing for %llu s, or less than %u KiB/s, so the transfer was stopped (--timeout S waits longer)",
		who_did, (unsigned long long)p->limit_s, CTL_PATIENCE_RATE >> 10);
}
