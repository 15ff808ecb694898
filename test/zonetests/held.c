/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Processes that CRIU would dump without their memory, or wait for without end (guard.py), and such
 * that look like them. The first word of the file DIR/mode says which; behind "child" it is done by
 * a child. When the file DIR/release is there, a check ends what stands in the way of a dump.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "zt.h"

#define LEN ZT_MB(4)
#define SEED 77

static uint8_t *area;
static size_t step = ZT_PAGE; /* of the pages that are checked */
static pid_t keeper;
static int uffd = -1, ring = -1;

static void open_uffd(uint64_t mode)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .range = { (uintptr_t)area, LEN }, .mode = mode };

	uffd = (int)ZT_SYS(syscall(SYS_userfaultfd, O_CLOEXEC));
	ZT_SYS(ioctl(uffd, UFFDIO_API, &api));
	ZT_SYS(ioctl(uffd, UFFDIO_REGISTER, &reg));
}

/* Has the pages that are missing, until the process @pidfd ends. */
static void keep(int pidfd)
{
	struct pollfd p[2] = { { .fd = uffd, .events = POLLIN },
			       { .fd = pidfd, .events = POLLIN } };
	uint8_t *page = zt_mmap(ZT_PAGE);
	struct uffd_msg msg;

	ZT_SYS(setsid());
	for (;;) {
		ZT_SYS(poll(p, 2, -1));
		if (p[1].revents)
			_exit(0);
		if (read(uffd, &msg, sizeof(msg)) != sizeof(msg))
			continue;
		uint64_t at = msg.arg.pagefault.address & ~(ZT_PAGE - 1);
		struct uffdio_copy copy = { .dst = at, .src = (uintptr_t)page, .len = ZT_PAGE };

		zt_fill_at(page, ZT_PAGE, SEED, at - (uintptr_t)area);
		ioctl(uffd, UFFDIO_COPY, &copy);
	}
}

static void close_ours(void)
{
	if (uffd >= 0)
		close(uffd);
	if (ring >= 0)
		close(ring);
	uffd = ring = -1;
}

/* The keeper is no child of ours: a dump does not take it along. */
static void give_away(void)
{
	int fds[2], pidfd = (int)ZT_SYS(syscall(SYS_pidfd_open, getpid(), 0));
	pid_t child;

	ZT_SYS(pipe2(fds, O_CLOEXEC));
	child = ZT_SYS(fork());
	if (!child) {
		keeper = ZT_SYS(fork());
		if (!keeper)
			keep(pidfd);
		zt_write_all(fds[1], &keeper, sizeof(keeper));
		_exit(0);
	}
	ZT_SYS(waitpid(child, NULL, 0));
	zt_read_all(fds[0], &keeper, sizeof(keeper), "keeper");
	close(fds[0]);
	close(fds[1]);
	close(pidfd);
	close_ours();
}

static void fill(size_t every)
{
	for (size_t pos = 0; pos < LEN; pos += every)
		zt_fill_at(area + pos, ZT_PAGE, SEED, pos);
}

static void missing(bool own)
{
	fill(2 * ZT_PAGE);
	open_uffd(UFFDIO_REGISTER_MODE_MISSING);
	if (own)
		step = 2 * ZT_PAGE; /* no other process would fill the other pages */
	else
		give_away();
}

static void protected(void)
{
	struct uffdio_writeprotect wp = { .mode = UFFDIO_WRITEPROTECT_MODE_WP };

	fill(ZT_PAGE);
	open_uffd(UFFDIO_REGISTER_MODE_WP);
	wp.range = (struct uffdio_range){ (uintptr_t)area, LEN / 2 };
	ZT_SYS(ioctl(uffd, UFFDIO_WRITEPROTECT, &wp));
	give_away();
}

static int open_ring(struct io_uring_params *p)
{
	int fd = (int)syscall(SYS_io_uring_setup, 4, p);

	if (fd < 0 && (errno == ENOSYS || errno == EPERM))
		zt_skip("io_uring is not allowed here");
	return ZT_SYS(fd);
}

static void sqpoll(bool away)
{
	struct io_uring_params p = { .flags = IORING_SETUP_SQPOLL, .sq_thread_idle = 100 };

	ring = open_ring(&p);
	if (away)
		give_away(); /* only the thread's memory is left */
}

/* A read that nothing ends: a worker of the kernel's sits in it. */
static void worker(void)
{
	struct io_uring_params p = { 0 };
	static char byte;
	int fds[2];

	ZT_SYS(pipe(fds));
	ring = open_ring(&p);
	uint8_t *sq = zt_mmap_at(NULL, p.sq_off.array + p.sq_entries * 4, PROT_READ | PROT_WRITE,
				 MAP_SHARED, ring, IORING_OFF_SQ_RING);
	struct io_uring_sqe *sqe = (void *)zt_mmap_at(NULL, p.sq_entries * sizeof(*sqe),
						      PROT_READ | PROT_WRITE, MAP_SHARED, ring,
						      IORING_OFF_SQES);

	*sqe = (struct io_uring_sqe){ .opcode = IORING_OP_READ,
				      .flags = IOSQE_ASYNC,
				      .fd = fds[0],
				      .addr = (uintptr_t)&byte,
				      .len = 1 };
	*(uint32_t *)(sq + p.sq_off.array) = 0;
	__atomic_store_n((uint32_t *)(sq + p.sq_off.tail), 1, __ATOMIC_RELEASE);
	ZT_SYS(syscall(SYS_io_uring_enter, ring, 1, 0, 0, NULL, 0));
}

static void *sleeps(void *name)
{
	prctl(PR_SET_NAME, name);
	for (;;)
		pause();
	return NULL;
}

/* A thread of our own with the name of one of the kernel's. */
static void named(void)
{
	pthread_t thread;

	ZT_CHECK(!pthread_create(&thread, NULL, sleeps, "iou-sqp-1"), "no thread");
}

static void set_up(const char *mode)
{
	if (!strcmp(mode, "missing") || !strcmp(mode, "own"))
		missing(*mode == 'o');
	else if (fill(ZT_PAGE), !strcmp(mode, "protected"))
	protected();
	else if (!strcmp(mode, "sqpoll") || !strcmp(mode, "sqpoll-away")) sqpoll(mode[6]);
	else if (!strcmp(mode, "worker")) worker();
	else if (!strcmp(mode, "named")) named();
}

static char mode[2][32];

static void set_up_child(int n)
{
	(void)n;
	area = zt_mmap(LEN);
	set_up(mode[1]);
}

static void check(void)
{
	char path[256];

	zt_path(path, "release");
	for (size_t pos = 0; pos < LEN; pos += step)
		zt_check_at(area + pos, ZT_PAGE, SEED, pos, "area");
	if (unlink(path))
		return;
	/* missing pages have come by the check */
	if (keeper)
		kill(keeper, SIGKILL);
	close_ours();
}

int main(int argc, char **argv)
{
	char path[256];
	FILE *f;

	zt_init(argc, argv);
	zt_path(path, "mode");
	f = fopen(path, "re");
	if (!f || fscanf(f, "%31s %31s", mode[0], mode[1]) < 1)
		zt_die("%s: no mode", path);
	fclose(f);
	area = zt_mmap(LEN);
	madvise(area, LEN, MADV_NOHUGEPAGE);
	if (!strcmp(mode[0], "child")) {
		fill(ZT_PAGE);
		zt_fork(set_up_child, NULL, 0);
	} else {
		set_up(mode[0]);
	}
	zt_ready(NULL);
	zt_serve(check);
}
