/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * SIGUSR1: forks a child, whose PID is then in DIR/child. The child waits for a signal, checks all
 * that it has inherited, and ends (lazyfaults.py).
 */
#include <signal.h>
#include "zt.h"

static uint8_t *mem;

static void check(void)
{
	zt_check(mem, zt_size, 9, "memory");
}

static void child(void)
{
	char path[256], tmp[256];
	FILE *f;

	zt_path(path, "child");
	zt_path(tmp, "child.tmp");
	f = fopen(tmp, "we");
	if (!f || fprintf(f, "%d\n", getpid()) < 0 || fclose(f) || rename(tmp, path))
		zt_die("%s: %m", path);
	zt_wait();
	zt_finish(check);
}

int main(int argc, char **argv)
{
	zt_init(argc, argv);
	signal(SIGCHLD, SIG_IGN);
	if (!zt_size)
		zt_size = ZT_MB(32);
	mem = zt_mmap(zt_size);
	zt_fill(mem, zt_size, 9);
	zt_ready(check);
	while (zt_wait() != SIGTERM)
		if (!ZT_SYS(fork()))
			child();
	zt_finish(check);
}
