/* SPDX-License-Identifier: GPL-2.0-only */
/* See zns-alone.h. */
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "zns-alone.h"

#define ABOVE 16 /* all descriptor numbers that the child uses are below this one */

int zns_alone(const int *fd, int nr, bool block)
{
	int keep[ZNS_ALONE_MAX], null, i;
	sigset_t set;

	setsid();
	if (block)
		sigfillset(&set);
	else
		sigemptyset(&set);
	sigprocmask(SIG_SETMASK, &set, NULL);
	if (nr > ZNS_ALONE_MAX)
		return -1;
	/*
	 * first duplicate them to numbers above all targets, so that no dup2() below overwrites one
	 * of them
	 */
	for (i = 0; i < nr; i++) {
		keep[i] = fcntl(fd[i], F_DUPFD, ABOVE);
		if (keep[i] < 0)
			return -1;
	}
	null = open("/dev/null", O_RDWR);
	if (null < 0)
		return -1;
	for (i = 0; i < ZNS_ALONE_FD; i++)
		if (dup2(null, i) < 0)
			return -1;
	for (i = 0; i < nr; i++)
		if (dup2(keep[i], ZNS_ALONE_FD + i) < 0)
			return -1;
	return syscall(SYS_close_range, ZNS_ALONE_FD + nr, ~0U, 0) ? -1 : 0;
}
