/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The clients of the noise containers: each asks a random container for a random object, checks the
 * answer, and waits.
 *
 *   touch FILE CLIENTS WAIT_MS SEED DIVIDE SOCKET...
 *
 * FILE: samples.h. The first socket is container 0's. It ends with SIGTERM; wrong content ends it
 * with 1.
 */
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "noise.h"
#include "samples.h"

static struct samples *f;
static uint64_t wait_us;
static uint32_t divide;
static char **sockets;
static int nr_sockets;
static uint64_t first_seed;

static int connect_to(const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)))
		fail(path);
	return fd;
}

static void receive(int fd, void *buf, size_t len)
{
	if (recv(fd, buf, len, MSG_WAITALL) != (ssize_t)len)
		fail("a noise container's answer");
}

static void touch(int fd, uint32_t server, uint32_t o, uint64_t *buf)
{
	uint32_t bytes, expect = object_bytes(o, divide);

	if (send(fd, &o, sizeof(o), MSG_NOSIGNAL) != (ssize_t)sizeof(o))
		fail("send");
	receive(fd, &bytes, sizeof(bytes));
	if (bytes != expect)
		fail("length");
	receive(fd, buf, bytes);
	for (uint32_t at = 0; at < bytes; at += 512)
		if (buf[at / 8] != object_word(server, o, at)) {
			f->wrong = 1;
			fprintf(stderr, "touch: container %u, object %u: wrong at %u\n", server, o,
				at);
			exit(1);
		}
}

static void *client(void *arg)
{
	uint64_t seed = first_seed + 0x9e3779b97f4a7c15ull * ((uint64_t)(uintptr_t)arg + 1);
	uint32_t objects = nr_objects(divide);
	uint64_t *buf = malloc(2 << 20);
	int *fd = calloc((size_t)nr_sockets, sizeof(*fd));

	if (!buf || !fd)
		fail("malloc");
	for (;;) {
		struct timespec t = { (time_t)(wait_us / 1000000),
				      (long)(wait_us % 1000000 * 1000) };
		uint32_t server = (uint32_t)(rnd(&seed) >> 20) % (uint32_t)nr_sockets;
		uint64_t slot;

		nanosleep(&t, NULL);
		slot = __atomic_fetch_add(&f->nr, 1, __ATOMIC_RELAXED);
		if (slot >= SAMPLES_MAX)
			return NULL;
		if (!fd[server])
			fd[server] = connect_to(sockets[server]);
		f->s[slot].due_ns = now_ns();
		touch(fd[server], server, (uint32_t)(rnd(&seed) >> 20) % objects, buf);
		f->s[slot].done_ns = now_ns();
	}
}

static void lap(void)
{
	uint64_t *buf = malloc(2 << 20);
	int fd = connect_to(sockets[nr_sockets - 1]);

	if (!buf)
		fail("malloc");
	for (uint32_t o = 0; o < nr_objects(divide); o++)
		touch(fd, (uint32_t)nr_sockets - 1, o, buf);
}

int main(int argc, char **argv)
{
	pthread_t t;
	int clients;

	if (argc < 7)
		return 2;
	clients = atoi(argv[2]);
	wait_us = (uint64_t)(atof(argv[3]) * 1000);
	first_seed = strtoull(argv[4], NULL, 10) * 7919 + 88172645463325252ull;
	divide = (uint32_t)atoi(argv[5]);
	sockets = argv + 6;
	nr_sockets = argc - 6;
	if (clients < 0 || !divide)
		return 2;
	f = samples_make(argv[1]);
	if (!clients) {
		lap();
		return 0;
	}
	for (int i = 0; i < clients; i++)
		if (pthread_create(&t, NULL, client, (void *)(uintptr_t)i))
			fail("pthread_create");
	pthread_join(t, NULL);
	return 0;
}
