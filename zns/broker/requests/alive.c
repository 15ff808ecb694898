/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shows that the broker is alive: a thread increments a counter in UUID.alive, which clients that
 * wait for an answer read. It shows that this process runs, not that it makes progress: a device
 * may take long, and an admission even longer.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include "requests.h"
#include "zns/process.h"

static void *beat(void *arg)
{
	volatile uint64_t *count = arg;

	for (;;) {
		++*count;
		/* poll() waits in real time even under a virtual clock (test/bench/vtime) */
		poll(NULL, 0, ZNS_ALIVE_MS);
	}
	return NULL;
}

int alive_start(const struct znsd *d, struct zns_err *err)
{
	cleanup_close int fd = -1;
	char path[4096];
	pthread_t t;
	void *mem;
	int ret = zns_broker_path(d->reg.uuid, "alive", path, sizeof(path));

	if (ret)
		return zns_fail_sys(err, ret, "cannot name a file in %s", zns_run_dir());
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0 || ftruncate(fd, sizeof(uint64_t)) < 0)
		return zns_fail_sys(err, -errno, "cannot make %s", path);
	mem = mmap(NULL, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (mem == MAP_FAILED)
		return zns_fail_sys(err, -errno, "cannot map %s", path);
	/* Signals are blocked in this thread; the poll loop handles them. */
	ret = zns_thread_start(&t, beat, mem);
	if (ret) {
		munmap(mem, sizeof(uint64_t));
		return zns_fail_sys(err, ret, "cannot start a thread");
	}
	pthread_detach(t);
	return 0;
}
