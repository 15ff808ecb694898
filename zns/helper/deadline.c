/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * criu's --timeout, for the whole dump. It has its own thread, since the message loop may wait for
 * the broker or the device. If even this does not help, criu kills us some seconds later.
 */
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include "dump_session.h"
#include "zns/process.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *run(void *arg)
{
	struct helper *h = arg;
	struct timespec at = { .tv_sec = (time_t)(h->deadline_ns / 1000000000u),
			       .tv_nsec = (long)(h->deadline_ns % 1000000000u) };
	struct zns_err err = ZNS_ERR_INIT;
	struct dump *d;

	zns_process_keep_caps(NULL, 0, NULL);
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
		;
	pthread_mutex_lock(&lock);
	h->late = true;
	d = h->dump;
	pthread_mutex_unlock(&lock);
	zns_fail(&err, -ETIMEDOUT, "the dump took longer than --timeout %u s", h->timeout_s);
	if (d)
		dump_fail(d, &err);
	/* Nobody waits for the broker any longer; it takes back its grants. */
	if (h->s.writers >= 0) /* it is connected */
		shutdown(h->s.broker.fd, SHUT_RDWR);
	return NULL;
}

int deadline_start(struct helper *h, uint32_t timeout_s, struct zns_err *err)
{
	pthread_t t;
	int ret;

	h->timeout_s = timeout_s;
	if (!timeout_s)
		return 0;
	h->deadline_ns = zns_mono_ns() + timeout_s * 1000000000ull;
	ret = -pthread_create(&t, NULL, run, h);
	if (ret)
		return zns_fail_sys(err, ret, "cannot start a thread");
	pthread_detach(t);
	return 0;
}

int deadline_admitted(struct helper *h, struct dump *d, int ret, struct zns_err *err)
{
	pthread_mutex_lock(&lock);
	if (h->late)
		ret = zns_fail(err, -ETIMEDOUT, "no admission within --timeout %u s", h->timeout_s);
	if (!ret)
		h->dump = d;
	pthread_mutex_unlock(&lock);
	return ret;
}
