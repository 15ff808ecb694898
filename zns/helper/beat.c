/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Tells criu that the helper is alive, since criu's tasks are frozen while criu waits for it. A
 * thread writes the broker's deadline into a pipe again and again. It is a thread of its own
 * because the other threads may wait long for a device or for admission.
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

	/*
	 * on an error use the default: the request to the broker reads zns.conf again and reports
	 * it
	 */
	if (zns_config_deadline(&deadline_s, &err))
		deadline_s = ZNS_DEADLINE_S;
	zns_process_keep_caps(NULL, 0, NULL);
	while (write(ZW_BEAT_FD, &deadline_s, sizeof(deadline_s)) > 0 || errno == EAGAIN ||
	       errno == EINTR)
		/* a wait in real time, even under a virtual clock (test/bench/vtime) */
		poll(NULL, 0, ZNS_ALIVE_MS);
	return NULL;
}

void beat_start(void)
{
	struct stat st;
	pthread_t t;

	/*
	 * criu passes a pipe as this descriptor; other programs that start the helper, as tests do,
	 * need not
	 */
	if (fstat(ZW_BEAT_FD, &st) || !S_ISFIFO(st.st_mode))
		return;
	fcntl(ZW_BEAT_FD, F_SETFD, FD_CLOEXEC);
	fcntl(ZW_BEAT_FD, F_SETFL, O_NONBLOCK);
	if (!pthread_create(&t, NULL, run, NULL))
		pthread_detach(t);
}
