/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A library to preload, with KILL_WAIT="N PID": kills process PID right before the Nth wait4(), and
 * lets wait4() begin only when all threads of PID are ending. PID 0: our child that is the first
 * process of a PID namespace. A wait that is repeated because it found nothing counts once.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define PF_EXITING 4u /* the kernel's flag of a task that is ending */

static bool has_ended(const char *dir, const char *tid)
{
	char path[400], line[512];
	const char *end = NULL;
	unsigned int flags = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s/stat", dir, tid);
	f = fopen(path, "r");
	if (f && fgets(line, sizeof(line), f))
		end = strrchr(line, ')');
	if (f)
		fclose(f);
	return !end || sscanf(end + 2, "%*c %*d %*d %*d %*d %*d %u", &flags) != 1 ||
	       flags & PF_EXITING;
}

static bool all_have_ended(pid_t pid)
{
	bool ended = true;
	struct dirent *e;
	char dir[64];
	DIR *d;

	snprintf(dir, sizeof(dir), "/proc/%d/task", (int)pid);
	d = opendir(dir);
	while (d && ended && (e = readdir(d)))
		ended = *e->d_name == '.' || has_ended(dir, e->d_name);
	if (d)
		closedir(d);
	return ended;
}

static pid_t init_of_ours(void)
{
	char path[64], line[256], *last;
	pid_t found = 0;
	FILE *list, *f;
	int child;

	snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
	list = fopen(path, "r");
	while (list && !found && fscanf(list, "%d", &child) == 1) {
		snprintf(path, sizeof(path), "/proc/%d/status", child);
		f = fopen(path, "r");
		while (f && fgets(line, sizeof(line), f)) {
			last = strrchr(line, '\t');
			if (!strncmp(line, "NSpid:", 6) && last && !strcmp(last, "\t1\n"))
				found = child;
		}
		if (f)
			fclose(f);
	}
	if (list)
		fclose(list);
	return found;
}

pid_t wait4(pid_t pid, int *status, int options, struct rusage *usage)
{
	static pid_t (*next)(pid_t, int *, int, struct rusage *);
	const char *rule = getenv("KILL_WAIT");
	static bool again;
	static int seen;
	int nth, victim;
	pid_t got;

	if (!next)
		next = dlsym(RTLD_NEXT, "wait4");
	if (rule && sscanf(rule, "%d %d", &nth, &victim) == 2 && !again && ++seen == nth) {
		if (!victim)
			victim = init_of_ours();
		if (!victim) {
			dprintf(STDERR_FILENO, "no first process of a PID namespace\n");
			_exit(99);
		}
		kill(victim, SIGKILL);
		while (!all_have_ended(victim))
			usleep(1000);
		dprintf(STDERR_FILENO, "killed before wait %d\n", nth);
	}
	got = next(pid, status, options, usage);
	again = !got;
	return got;
}
