/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TEST_PAIR_H
#define TEST_PAIR_H
/* The two ends of a socket of packets, and a check that no descriptor is left over. */
#include <dirent.h>
#include <unistd.h>

static int sk[2];

static inline int end_pair(void **state)
{
	close(sk[0]);
	close(sk[1]);
	return 0;
}

static inline int count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

#endif
