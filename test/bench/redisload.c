/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A client of Redis that keeps every latency: half of the requests SET, half GET a random key of
 * those that DEBUG POPULATE makes.
 *
 *   redisload PORT CONNECTIONS RATE KEYS BYTES FILE
 *
 * RATE 0: each connection sends its next request when the last one is answered. Else so many
 * requests a second fall due, whether or not an answer is late; a latency counts from then.
 * FILE: a u64, the number of requests, then of each two u64: when it was due and when it was
 * answered (CLOCK_MONOTONIC, ns). It ends with SIGTERM.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define RECORDS_MAX (16u << 20)
#define CONNECTIONS_MAX 256
#define REQUEST_MAX 8192

struct record {
	uint64_t due_ns, done_ns;
};
struct file {
	uint64_t nr;
	struct record record[RECORDS_MAX];
};
struct connection {
	int fd;
	uint64_t due_ns;
	size_t expect; /* bytes of the answer that are still to come */
};

static volatile sig_atomic_t ended;
static struct connection conn[CONNECTIONS_MAX];
static int idle[CONNECTIONS_MAX], nr_idle;
static size_t value_bytes, get_bytes;
static uint64_t keys, seed = 88172645463325252ull;

static void on_term(int sig)
{
	(void)sig;
	ended = 1;
}

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t rnd(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	return seed ^= seed << 17;
}

static void ask(struct connection *c, uint64_t due_ns)
{
	char buf[REQUEST_MAX], key[32];
	int nr = snprintf(key, sizeof(key), "key:%llu", (unsigned long long)(rnd() % keys)), len;

	if (rnd() & 1) {
		len = snprintf(buf, sizeof(buf), "*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%zu\r\n", nr,
			       key, value_bytes);
		memset(buf + len, 'a' + (int)(rnd() % 26), value_bytes);
		len += (int)value_bytes;
		buf[len++] = '\r';
		buf[len++] = '\n';
		c->expect = strlen("+OK\r\n");
	} else {
		len = snprintf(buf, sizeof(buf), "*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n", nr, key);
		c->expect = get_bytes;
	}
	c->due_ns = due_ns;
	if (send(c->fd, buf, (size_t)len, MSG_NOSIGNAL) != len)
		fail("send");
}

static void answer(struct file *f, int i)
{
	struct connection *c = &conn[i];
	char buf[REQUEST_MAX];
	ssize_t n = recv(c->fd, buf, sizeof(buf), MSG_DONTWAIT);

	if (n < 0 && errno == EAGAIN)
		return;
	if (n <= 0 || (size_t)n > c->expect || buf[0] == '-') {
		fprintf(stderr, "redisload: not the answer that was expected\n");
		exit(1);
	}
	c->expect -= (size_t)n;
	if (c->expect)
		return;
	if (f->nr < RECORDS_MAX) {
		f->record[f->nr] = (struct record){ c->due_ns, now_ns() };
		f->nr++;
	}
	idle[nr_idle++] = i;
}

int main(int argc, char **argv)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sigaction on_end = { .sa_handler = on_term };
	int epoll = epoll_create1(0), nr, one = 1;
	uint64_t step_ns = 0, due_ns;
	struct file *f;
	int fd;

	if (argc != 7)
		return 2;
	to.sin_port = htons((uint16_t)atoi(argv[1]));
	nr = atoi(argv[2]);
	if (atoi(argv[3]) > 0)
		step_ns = 1000000000u / (uint64_t)atoi(argv[3]);
	keys = strtoull(argv[4], NULL, 10);
	value_bytes = strtoull(argv[5], NULL, 10);
	if (nr < 1 || nr > CONNECTIONS_MAX || !keys || value_bytes > REQUEST_MAX - 200)
		return 2;
	get_bytes = value_bytes + 2 + (size_t)snprintf(NULL, 0, "$%zu\r\n", value_bytes);
	fd = open(argv[6], O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (fd < 0 || ftruncate(fd, sizeof(*f)))
		fail(argv[6]);
	f = mmap(NULL, sizeof(*f), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (f == MAP_FAILED)
		fail("mmap");
	sigaction(SIGTERM, &on_end, NULL);
	for (int i = 0; i < nr; i++) {
		struct epoll_event e = { .events = EPOLLIN, .data.u32 = (uint32_t)i };

		conn[i].fd = socket(AF_INET, SOCK_STREAM, 0);
		if (conn[i].fd < 0 || connect(conn[i].fd, (struct sockaddr *)&to, sizeof(to)) ||
		    setsockopt(conn[i].fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) ||
		    epoll_ctl(epoll, EPOLL_CTL_ADD, conn[i].fd, &e))
			fail("connect");
		idle[nr_idle++] = i;
	}
	due_ns = now_ns();
	while (!ended) {
		struct timespec wait = { 0, 100000000 };
		struct epoll_event e[CONNECTIONS_MAX];
		uint64_t now = now_ns();
		int n;

		while (nr_idle && (!step_ns || due_ns <= now)) {
			ask(&conn[idle[--nr_idle]], step_ns ? due_ns : now);
			due_ns += step_ns;
		}
		if (step_ns && nr_idle && due_ns - now < 100000000)
			wait.tv_nsec = (long)(due_ns - now);
		n = epoll_pwait2(epoll, e, nr, &wait, NULL);
		if (n < 0 && errno != EINTR)
			fail("epoll");
		for (int i = 0; i < n; i++)
			answer(f, (int)e[i].data.u32);
	}
	return 0;
}
