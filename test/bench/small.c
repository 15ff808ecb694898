/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Something small to dump, or many small things.
 *   small CHILDREN AREAS ANSWERS
 * So many child processes that wait, and so many mappings of one page that cannot merge, every
 * second of which is written to. It appends "ready NUMBER" to the file ANSWERS, and at each SIGUSR1
 * looks at all of it again and appends "same NUMBER" or "differs NUMBER".
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define PAGE 4096l

static void answer(const char *path, const char *word, long number)
{
	char line[64];
	int len = snprintf(line, sizeof(line), "%s %ld\n", word, number);
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);

	if (fd < 0 || write(fd, line, len) != len)
		exit(1);
	close(fd);
}

int main(int argc, char **argv)
{
	long children, areas, number;
	pid_t *child;
	sigset_t set;
	char *mem;
	int sig;

	if (argc != 4)
		return 2;
	children = atol(argv[1]);
	areas = atol(argv[2]);
	number = children + areas;
	child = calloc(children + 1, sizeof(*child));
	mem = mmap(NULL, (areas + 1) * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		   -1, 0);
	if (!child || mem == MAP_FAILED)
		return 1;
	for (long i = 0; i < areas; i += 2) {
		*(long *)(mem + i * PAGE) = i + 1;
		if (mprotect(mem + i * PAGE, PAGE, PROT_READ))
			return 1;
	}
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	for (long i = 0; i < children; i++) {
		child[i] = fork();
		if (child[i] < 0)
			return 1;
		if (!child[i]) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (;;)
				pause();
		}
	}
	answer(argv[3], "ready", number);
	for (;;) {
		long right = 0;

		if (sigwait(&set, &sig))
			return 1;
		for (long i = 0; i < children; i++)
			right += !kill(child[i], 0);
		for (long i = 0; i < areas; i++)
			right += *(long *)(mem + i * PAGE) == (i % 2 ? 0 : i + 1);
		answer(argv[3], right == number ? "same" : "differs", number);
	}
}
