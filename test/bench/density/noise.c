/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A noise container: a server whose objects are all on its heap.
 *
 *   noise SOCKET NUMBER DIVIDE MIBPS
 *
 * It says "empty", waits for a line, fills its heap at MIBPS, says "ready", and serves: a client
 * sends a u32, the object's number, and gets a u32, its bytes, and then these.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "noise.h"
#include "samples.h"

#define CLIENTS_MAX 64

static uint64_t **object;
static uint32_t number, divide;

static void fill(uint32_t mibps)
{
	uint64_t begin = now_ns(), done = 0;
	uint32_t nr = nr_objects(divide);

	object = calloc(nr, sizeof(*object));
	for (uint32_t o = 0; object && o < nr; o++) {
		uint32_t bytes = object_bytes(o, divide);
		uint64_t due = begin + done * 1000000000 / ((uint64_t)mibps << 20), now = now_ns();
		struct timespec t = { (time_t)(due / 1000000000), (long)(due % 1000000000) };

		if (due > now)
			clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
		object[o] = malloc(bytes);
		if (!object[o])
			fail("malloc");
		for (uint32_t at = 0; at < bytes; at += 8)
			object[o][at / 8] = object_word(number, o, at);
		done += bytes;
	}
}

/* False: the client has disconnected. */
static bool send_all(int fd, const void *buf, size_t len)
{
	while (len) {
		ssize_t n = send(fd, buf, len, MSG_NOSIGNAL);

		if (n <= 0)
			return false;
		buf = (const char *)buf + n;
		len -= (size_t)n;
	}
	return true;
}

static bool serve(int fd)
{
	uint32_t o, bytes;

	if (recv(fd, &o, sizeof(o), MSG_WAITALL) != (ssize_t)sizeof(o))
		return false;
	bytes = object_bytes(o, divide);
	return bytes && send_all(fd, &bytes, sizeof(bytes)) && send_all(fd, object[o], bytes);
}

int main(int argc, char **argv)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	struct pollfd p[CLIENTS_MAX + 1];
	nfds_t nr = 1;
	char line[8];

	if (argc != 5 || strlen(argv[1]) >= sizeof(a.sun_path))
		return 2;
	strcpy(a.sun_path, argv[1]);
	number = (uint32_t)atoi(argv[2]);
	divide = (uint32_t)atoi(argv[3]);
	if (!divide || atoi(argv[4]) < 1)
		return 2;
	p[0] = (struct pollfd){ .fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0),
				.events = POLLIN };
	unlink(argv[1]);
	if (p[0].fd < 0 || bind(p[0].fd, (struct sockaddr *)&a, sizeof(a)) ||
	    listen(p[0].fd, CLIENTS_MAX))
		fail(argv[1]);
	puts("empty");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return 0;
	fill((uint32_t)atoi(argv[4]));
	puts("ready");
	fflush(stdout);
	while (poll(p, nr, -1) > 0 || errno == EINTR) {
		for (nfds_t i = nr - 1; i > 0; i--) {
			if (!p[i].revents || serve(p[i].fd))
				continue;
			close(p[i].fd);
			p[i] = p[--nr];
		}
		if (p[0].revents & POLLIN && nr <= CLIENTS_MAX)
			p[nr++] = (struct pollfd){ .fd = accept(p[0].fd, NULL, NULL),
						   .events = POLLIN };
	}
	return 0;
}
