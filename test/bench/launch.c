/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Runs a command and writes what it used: launch RESULT COMMAND...
 * RESULT gets one line: wall time in ns, exit status, user and system time in us, peak memory in
 * KiB, for the command and all children that it waited for. It stands between a large Python
 * process and the command, since Linux counts the memory of the starting process in the peak of the
 * command.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long long us(const struct timeval *t)
{
	return t->tv_sec * 1000000ll + t->tv_usec;
}

int main(int argc, char **argv)
{
	struct timespec start, end;
	struct rusage use;
	FILE *out;
	int status;
	pid_t pid;

	if (argc < 3)
		return 2;
	clock_gettime(CLOCK_MONOTONIC, &start);
	pid = fork();
	if (pid == 0) {
		execv(argv[2], argv + 2);
		_exit(127);
	}
	if (pid < 0 || wait4(pid, &status, 0, &use) != pid)
		return 1;
	clock_gettime(CLOCK_MONOTONIC, &end);
	out = fopen(argv[1], "w");
	if (!out)
		return 1;
	fprintf(out, "%lld %d %lld %lld %ld\n",
		(end.tv_sec - start.tv_sec) * 1000000000ll + end.tv_nsec - start.tv_nsec,
		WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), us(&use.ru_utime),
		us(&use.ru_stime), use.ru_maxrss);
	return fclose(out) != 0;
}
