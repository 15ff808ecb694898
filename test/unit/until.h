/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TEST_UNTIL_H
#define TEST_UNTIL_H
/* Waits for conditions, in place of sleeps. Include it behind cmocka.h. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define UNTIL_S 60 /* far longer than anything takes on a busy machine */

static inline time_t until_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec;
}

/* Waits until @cond is true. The test fails if it is not within UNTIL_S; in a thread that is not
 * the test's own the program ends. */
#define until(cond)                                                                      \
	do {                                                                             \
		const time_t until_end_ = until_now() + UNTIL_S;                         \
                                                                                         \
		while (!(cond)) {                                                        \
			if (until_now() > until_end_)                                    \
				fail_msg("waited %d s in vain for: %s", UNTIL_S, #cond); \
			nanosleep(&(struct timespec){ .tv_nsec = 500000 }, NULL);        \
		}                                                                        \
	} while (0)

/* The letter of a thread's state in /proc; 0: it is gone. */
static inline char task_state(pid_t pid, pid_t tid)
{
	char path[64], buf[512], *p;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", pid, tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, buf, sizeof(buf) - 1);
	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return 0;
	buf[n] = 0;
	p = strrchr(buf, ')');
	return p ? p[2] : 0;
}

/* A thread of this process waits for something, or has ended. */
static inline bool is_waiting(pid_t tid)
{
	char s = task_state(getpid(), tid);

	return s == 'S' || !s;
}

static inline pid_t own_tid(void)
{
	return (pid_t)syscall(SYS_gettid);
}

#endif
