/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A sign of life for criu, whose tasks are frozen while it waits for us: we send the deadline again
 * and again through a pipe. A separate thread does this, since the others may wait long for a
 * device or an admission.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include "helper.h"
#include "zns/process.h"

static void *run(void *arg)
{
	uint32_t deadline_s = ZNS_DEADLINE_S;
	struct zns_err err = ZNS_ERR_INIT;

	/* A wrong line is reported where the broker is asked. */
	if (zns_config_deadline(&deadline_s, &err))
		deadline_s = ZNS_DEADLINE_S;
	zns_process_keep_caps(NULL, 0, NULL);
	while (write(ZW_BEAT_FD, &deadline_s, sizeof(deadline_s)) > 0 || errno == EAGAIN ||
	       errno == EINTR)
		/* real time, under a virtual clock too (test/bench/vtime) */
		poll(NULL, 0, ZNS_ALIVE_MS);
	return NULL;
}

void beat_start(void)
{
	struct stat st;
	pthread_t t;

	/* Other programs that start us, as tests do, need not watch. */
	if (fstat(ZW_BEAT_FD, &st) || !S_ISFIFO(st.st_mode))
		return;
	fcntl(ZW_BEAT_FD, F_SETFD, FD_CLOEXEC);
	fcntl(ZW_BEAT_FD, F_SETFL, O_NONBLOCK);
	if (!pthread_create(&t, NULL, run, NULL))
		pthread_detach(t);
}
