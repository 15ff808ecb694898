/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The clients of the booking site: a fixed number of requests per second become due, even if
 * answers are late, and a latency counts from when its request was due.
 *
 *   load FILE CONNECTIONS RATE SEED USERS SOCKET...
 *
 * RATE 0: each connection sends its next request when the last one was answered, which shows the
 * highest possible rate. FILE: samples.h. It ends with SIGTERM; a wrong answer ends it with 1.
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "samples.h"

#define CONNECTIONS_MAX 512
#define ANSWER_MAX 65536

struct connection {
	int fd;
	uint64_t slot;
	uint32_t user;
	size_t len;
	char buf[ANSWER_MAX];
};

/* Per cent of requests of each kind, as in AcmeAir: most are queries of flights. */
static const struct {
	int percent;
	const char *path;
} mix[] = { { 46, "flights" }, { 14, "bookings" }, { 10, "profile" }, { 10, "book" },
	    { 10, "login" },   { 5, "update" },    { 5, "cancel" } };

static volatile sig_atomic_t ended;
static struct connection conn[CONNECTIONS_MAX];
static int idle[CONNECTIONS_MAX], nr_idle;
static uint64_t seed;
static uint32_t users;

static void on_term(int sig)
{
	(void)sig;
	ended = 1;
}

static void ask(struct samples *f, struct connection *c, uint64_t due_ns)
{
	int roll = (int)(rnd(&seed) >> 16) % 100, len;
	unsigned int i = 0;
	char buf[256];

	roll = roll < 0 ? -roll : roll;
	while (roll >= mix[i].percent)
		roll -= mix[i++].percent;
	c->user = (uint32_t)(rnd(&seed) >> 20) % users;
	c->len = 0;
	c->slot = f->nr;
	len = snprintf(buf, sizeof(buf), "GET /%s?user=%u&n=%llu HTTP/1.1\r\nHost: site\r\n\r\n",
		       mix[i].path, c->user, (unsigned long long)(rnd(&seed) >> 20) % 1000000);
	f->s[c->slot].due_ns = due_ns;
	f->nr++;
	if (send(c->fd, buf, (size_t)len, MSG_NOSIGNAL) != len)
		fail("send");
}

/* Returns 0 if the answer is not complete yet. */
static int whole(const struct connection *c)
{
	const char *body = strstr(c->buf, "\r\n\r\n"),
		   *length = strcasestr(c->buf, "\r\ncontent-length: ");
	char expect[32];

	if (!body)
		return 0;
	if (!length || length > body)
		return -1;
	body += 4;
	if (c->len < (size_t)(body - c->buf) + strtoul(length + 18, NULL, 10))
		return 0;
	snprintf(expect, sizeof(expect), "{\"user\":%u,", c->user);
	return strncmp(c->buf, "HTTP/1.1 200", 12) || strncmp(body, expect, strlen(expect)) ? -1 :
											      1;
}

static void answer(struct samples *f, int i)
{
	struct connection *c = &conn[i];
	ssize_t n = recv(c->fd, c->buf + c->len, sizeof(c->buf) - 1 - c->len, MSG_DONTWAIT);
	int ret;

	if (n < 0 && errno == EAGAIN)
		return;
	if (n > 0) {
		c->len += (size_t)n;
		c->buf[c->len] = 0;
	}
	ret = n > 0 ? whole(c) : -1;
	if (ret < 0) {
		f->wrong++;
		fprintf(stderr, "load: not the answer that was expected: %.300s\n", c->buf);
		exit(1);
	}
	if (!ret)
		return;
	f->s[c->slot].done_ns = now_ns();
	idle[nr_idle++] = i;
}

static void connect_all(int epoll, int nr, char **sockets, int nr_sockets)
{
	for (int i = 0; i < nr; i++) {
		struct epoll_event e = { .events = EPOLLIN, .data.u32 = (uint32_t)i };
		struct sockaddr_un a = { .sun_family = AF_UNIX };

		snprintf(a.sun_path, sizeof(a.sun_path), "%s", sockets[i % nr_sockets]);
		conn[i].fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (conn[i].fd < 0 || connect(conn[i].fd, (struct sockaddr *)&a, sizeof(a)) ||
		    epoll_ctl(epoll, EPOLL_CTL_ADD, conn[i].fd, &e))
			fail(a.sun_path);
		idle[nr_idle++] = i;
	}
}

int main(int argc, char **argv)
{
	struct sigaction on_end = { .sa_handler = on_term };
	int epoll = epoll_create1(EPOLL_CLOEXEC), nr, rate;
	struct epoll_event e[CONNECTIONS_MAX];
	struct samples *f;

	if (argc < 7)
		return 2;
	nr = atoi(argv[2]);
	rate = atoi(argv[3]);
	seed = strtoull(argv[4], NULL, 10) * 7919 + 88172645463325252ull;
	users = (uint32_t)strtoul(argv[5], NULL, 10);
	if (nr < 1 || nr > CONNECTIONS_MAX || !users)
		return 2;
	f = samples_make(argv[1]);
	sigaction(SIGTERM, &on_end, NULL);
	connect_all(epoll, nr, argv + 6, argc - 6);
	f->step_ns = rate ? 1000000000u / (uint64_t)rate : 0;
	f->start_ns = now_ns();
	while (!ended && f->nr < SAMPLES_MAX) {
		uint64_t now = now_ns(), due = f->start_ns + f->nr * f->step_ns;
		struct timespec wait = { 0, 100000000 };
		int n;

		while (nr_idle && (!f->step_ns || due <= now)) {
			ask(f, &conn[idle[--nr_idle]], f->step_ns ? due : now);
			due += f->step_ns;
		}
		if (f->step_ns && nr_idle && due - now < 100000000)
			wait.tv_nsec = (long)(due - now);
		n = epoll_pwait2(epoll, e, nr, &wait, NULL);
		if (n < 0 && errno != EINTR)
			fail("epoll");
		for (int i = 0; i < n; i++)
			answer(f, (int)e[i].data.u32);
	}
	return 0;
}
