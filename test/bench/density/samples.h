/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef SAMPLES_H
#define SAMPLES_H
/*
 * The file that a client writes while it runs, and that samples.py reads meanwhile: a head of
 * four u64, then for each request two u64, when it was due and when it was answered
 * (CLOCK_MONOTONIC, ns; 0: not yet).
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define SAMPLES_MAX (8u << 20)

struct sample {
	uint64_t due_ns, done_ns;
};

struct samples {
	uint64_t nr; /* slots in use */
	uint64_t start_ns, step_ns; /* request i is due at start + i * step; step 0: when it is sent
				     */
	uint64_t wrong; /* number of wrong answers so far */
	struct sample s[SAMPLES_MAX];
};

static inline void fail(const char *what)
{
	perror(what);
	exit(1);
}

static inline uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint64_t rnd(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	return *seed ^= *seed << 17;
}

/* A sparse array for the process that creates it. */
static inline struct samples *samples_make(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	struct samples *f;

	if (fd < 0 || ftruncate(fd, sizeof(*f)))
		fail(path);
	f = mmap(NULL, sizeof(*f), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (f == MAP_FAILED)
		fail("mmap");
	close(fd);
	return f;
}

#endif
