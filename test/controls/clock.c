/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A clock that stands still until a test moves it, in all processes that map it: see controls.h. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "controls.h"
#include "zns/util.h"

static _Atomic uint64_t *now_ns; /* NULL: time passes as the kernel says */

uint64_t zns_mono_ns(void)
{
	struct timespec ts;

	if (now_ns)
		return *now_ns;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static void map(const char *file)
{
	int fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	void *mem = MAP_FAILED;

	if (fd >= 0 && !ftruncate(fd, sizeof(*now_ns)))
		mem = mmap(NULL, sizeof(*now_ns), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (mem == MAP_FAILED) {
		perror(file);
		abort();
	}
	close(fd);
	now_ns = mem;
}

/* Runs before the constructors of tests. */
static __attribute__((constructor(101))) void read_environment(void)
{
	const char *file = secure_getenv("ZNS_CLOCK");

	if (file && *file)
		map(file);
}

void zns_clock_stop(const char *file)
{
	uint64_t start_ns = zns_mono_ns();

	map(file);
	*now_ns = start_ns;
	setenv("ZNS_CLOCK", file, 1);
}

void zns_clock_advance(uint64_t ns)
{
	*now_ns += ns;
}

void zns_clock_run(void)
{
	if (now_ns)
		munmap((void *)now_ns, sizeof(*now_ns));
	now_ns = NULL;
	unsetenv("ZNS_CLOCK");
}
