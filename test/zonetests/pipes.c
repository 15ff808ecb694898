/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Pipes with data in flight: odd counts, a full one, an enlarged one, one whose writer is a child,
 * one whose writer is gone, and a fifo. zonetest: {'flavour': 'h ns'}
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include "zt.h"

static const size_t counts[] = { 0, 1, 4095, 4096, 4097, 12345, 65536 };
#define PIPES (sizeof(counts) / sizeof(counts[0]))
#define LARGE (ZT_MB(1) - 4099)

static int pipes[PIPES][2], large[2], orphan[2], from_kid[2], fifo;
static uint8_t *buf;
static pid_t kid;

static void put(int fd, size_t len, uint64_t seed)
{
	zt_fill(buf, len, seed);
	/* in two pieces, so that buffers inside the pipe are only partly filled */
	zt_write_all(fd, buf, len / 3);
	zt_write_all(fd, buf + len / 3, len - len / 3);
}

static void get(int fd, size_t len, uint64_t seed, const char *what)
{
	zt_read_all(fd, buf, len, what);
	zt_check(buf, len, seed, what);
}

static void check_empty(int fd, const char *what)
{
	ZT_CHECK(!fcntl(fd, F_SETFL, O_NONBLOCK), "%s: %m", what);
	ZT_CHECK(read(fd, buf, 1) < 0 && errno == EAGAIN, "%s has more than was put in", what);
}

static void kid_setup(int n)
{
	(void)n;
	put(from_kid[1], 3333, 52);
}

static void kid_check(int n)
{
	(void)n;
	put(from_kid[1], 7777, 53);
}

static void check(void)
{
	char c = 'x';

	for (size_t i = 0; i < PIPES; i++) {
		get(pipes[i][0], counts[i], 10 + i, "pipe");
		ZT_CHECK(write(pipes[i][1], &c, 1) == 1 && read(pipes[i][0], &c, 1) == 1 &&
				 c == 'x',
			 "pipe is dead");
		check_empty(pipes[i][0], "pipe");
	}
	ZT_CHECK(fcntl(large[1], F_GETPIPE_SZ) == (int)ZT_MB(1), "the enlarged pipe has %d",
		 fcntl(large[1], F_GETPIPE_SZ));
	ZT_CHECK(fcntl(large[0], F_GETFL) & O_NONBLOCK, "the enlarged pipe lost O_NONBLOCK");
	get(large[0], LARGE, 50, "enlarged pipe");
	get(orphan[0], 999, 51, "pipe without writer");
	ZT_CHECK(read(orphan[0], &c, 1) == 0, "pipe without writer has no end");
	get(from_kid[0], 3333, 52, "pipe from the child");
	zt_join(kid);
	get(from_kid[0], 7777, 53, "pipe from the child, after restore");
	get(fifo, 5555, 54, "fifo");
	check_empty(fifo, "fifo");
}

int main(int argc, char **argv)
{
	char path[256];

	zt_init(argc, argv);
	buf = zt_mmap(ZT_MB(2));
	for (size_t i = 0; i < PIPES; i++) {
		ZT_SYS(pipe(pipes[i]));
		put(pipes[i][1], counts[i], 10 + i);
	}
	ZT_SYS(pipe2(large, O_NONBLOCK));
	ZT_SYS(fcntl(large[1], F_SETPIPE_SZ, ZT_MB(1)));
	put(large[1], LARGE, 50);
	ZT_SYS(pipe(orphan));
	put(orphan[1], 999, 51);
	ZT_SYS(close(orphan[1]));
	ZT_SYS(pipe(from_kid));
	zt_path(path, "fifo");
	ZT_SYS(mkfifo(path, 0600));
	fifo = ZT_SYS(open(path, O_RDWR));
	put(fifo, 5555, 54);
	kid = zt_fork(kid_setup, kid_check, 0);
	munmap(buf, ZT_MB(2)); /* the data is in the pipes only */
	buf = zt_mmap(ZT_MB(2));
	zt_ready(NULL);
	/* a pipe cannot be changed in place: read one byte, put another at the end */
	if (zt_selftest) {
		ZT_SYS(read(pipes[5][0], buf, 1));
		ZT_SYS(write(pipes[5][1], buf, 1));
	}
	zt_serve(check);
}
