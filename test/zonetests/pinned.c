/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel writes to pages that it has pinned, without a fault: one long read of DIR/slow/data
 * past the page cache. The file's server lets it last. A second thread waits in it; or, if DIR/aio
 * is there, it is asynchronous and nobody waits. Then a child has the same memory, so that there is
 * something to copy while the parent may not be. For livecontrols.py, which is that server.
 */
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include "zt.h"

#define BUF ((char *)0x100000000ul) /* first of all that is copied */
#define LEN (16 * ZT_PAGE)
#define CONTENT 0x5a /* each byte of the file */

static aio_context_t ring;
static pthread_t reader;
static int fd;
static long got;
static pid_t kid;

static void *read_all(__attribute__((unused)) void *arg)
{
	got = pread(fd, BUF, LEN, 0);
	return NULL;
}

static void submit(void)
{
	static struct iocb cb = { .aio_lio_opcode = IOCB_CMD_PREAD, .aio_nbytes = LEN };
	struct iocb *one = &cb;

	cb.aio_fildes = fd;
	cb.aio_buf = (uintptr_t)BUF;
	if (syscall(SYS_io_submit, ring, 1, &one) != 1)
		zt_die("io_submit: %m");
}

static void check(void)
{
	struct io_event e = { 0 };

	if (ring)
		kill(kid, SIGKILL);
	else
		pthread_join(reader, NULL);
	if (ring && !got) {
		if (syscall(SYS_io_getevents, ring, 1, 1, &e, NULL) != 1)
			zt_die("io_getevents: %m");
		got = e.res;
	}
	ZT_CHECK(got == (long)LEN, "%ld bytes were read", got);
	for (size_t i = 0; i < LEN; i++)
		ZT_CHECK(BUF[i] == CONTENT, "byte %zu is not what was read", i);
}

int main(int argc, char **argv)
{
	char path[256];

	zt_init(argc, argv);
	zt_mmap_at(BUF, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		   0);
	memset(BUF, 1, LEN);
	zt_fill(zt_mmap(zt_size), zt_size, 2);
	zt_path(path, "slow/data");
	fd = ZT_SYS(open(path, O_RDONLY | O_DIRECT));
	zt_path(path, "aio");
	if (!access(path, F_OK)) {
		kid = ZT_SYS(fork());
		while (!kid)
			pause();
		ZT_SYS(syscall(SYS_io_setup, 4, &ring));
		submit();
	}
	if (!ring && pthread_create(&reader, NULL, read_all, NULL))
		zt_die("no thread");
	zt_ready(NULL);
	zt_serve(check);
}
