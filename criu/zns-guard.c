/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tasks that cannot be dumped, though CRIU does not notice. Memory behind a userfaultfd: pages that
 * its holder has not put there yet look like holes, and the dump succeeds without them. Threads of
 * io_uring in the kernel: they can be traced, but never stop, and the dump waits for ever.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "log.h"
#include "util.h"
#include "xmalloc.h"
#include "zns-guard.h"

#undef LOG_PREFIX
#define LOG_PREFIX "zns: "

/* linux/sched.h. A program chooses the names of its threads, but not these flags. */
#define IO_WORKER 0x10u

/* What is at /proc/PID/NAME, as text that may be cut: its length, 0 if it cannot be read. */
static size_t read_text(pid_t pid, const char *name, char *text, size_t size)
{
	char path[64];
	ssize_t len;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	len = fd < 0 ? 0 : read(fd, text, size - 1);
	close_safe(&fd);
	text[len < 0 ? 0 : len] = '\0';
	return len < 0 ? 0 : len;
}

/* For a line to the user: nothing in it moves a cursor. */
static const char *name_of(pid_t pid)
{
	static char name[64];
	size_t len = read_text(pid, "comm", name, sizeof(name)), i;

	while (len && name[len - 1] == '\n')
		name[--len] = '\0';
	for (i = 0; i < len; i++)
		if (name[i] < ' ' || name[i] > '~')
			name[i] = '?';
	return name;
}

static DIR *open_dir(pid_t pid, const char *name)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	return opendir(path);
}

int zns_guard_thread(pid_t pid, pid_t tid)
{
	char name[32], text[512], *s;
	unsigned int flags;

	snprintf(name, sizeof(name), "task/%d/stat", tid);
	if (!read_text(pid, name, text, sizeof(text)))
		return 0;
	s = strrchr(text, ')');
	if (!s || sscanf(s, ") %*c %*d %*d %*d %*d %*d %u", &flags) != 1 || !(flags & IO_WORKER))
		return 0;
	pr_err("Process %d (%s) uses io_uring: its thread %d is one of the kernel's, which never stops for a dump. The "
	       "program has to close its rings first, or the owner of a ring that was passed on (IORING_SETUP_SQPOLL); "
	       "threads that only finish requests end some seconds after the last one\n",
	       pid, name_of(pid), tid);
	return -1;
}

static bool holds_uffd(pid_t pid)
{
	char link[sizeof(UFFD_LINK)];
	DIR *dir = open_dir(pid, "fd");
	struct dirent *e;
	bool found = false;

	while (dir && !found && (e = readdir(dir)))
		found = readlinkat(dirfd(dir), e->d_name, link, sizeof(link)) ==
				(ssize_t)strlen(UFFD_LINK) &&
			!memcmp(link, UFFD_LINK, strlen(UFFD_LINK));
	if (dir)
		closedir(dir);
	return found;
}

static bool is_lazy_pages(pid_t pid)
{
	char text[4096], *s;
	size_t len = read_text(pid, "cmdline", text, sizeof(text));

	for (s = text; s < text + len; s += strlen(s) + 1)
		if (!strcmp(s, "lazy-pages"))
			return holds_uffd(pid) && strcmp(name_of(pid), ZNS_HOLDER_NAME);
	return false;
}

/* A lazy-pages daemon that still fills somebody's memory; 0: none to be seen. */
static pid_t lazy_pages_daemon(void)
{
	DIR *dir = opendir("/proc");
	struct dirent *e;
	pid_t pid = 0;

	while (dir && (e = readdir(dir))) {
		pid = atoi(e->d_name);
		if (pid > 0 && is_lazy_pages(pid))
			break;
		pid = 0;
	}
	if (dir)
		closedir(dir);
	return pid;
}

/* uw, write protection alone, takes no page away. */
static bool is_filled_by_another(const char *flags)
{
	const char *s = flags;

	while ((s = strchr(s, 'u'))) {
		if ((s == flags || s[-1] == ' ') && (s[1] == 'm' || s[1] == 'i'))
			return true;
		s++;
	}
	return false;
}

int zns_guard_area(pid_t pid, unsigned long start, unsigned long end, const char *flags)
{
	const char *todo =
		"end the program that holds it (a lazy restore; a pager: `znsctl memory detach`, or dump into zones) or let it fill and release the area";
	char daemon[128];
	pid_t lazy;

	if (!is_filled_by_another(flags) || zns_mem_answers(pid, start, end))
		return 0;
	if (holds_uffd(pid)) {
		todo = "the process holds it itself and has to unregister the area";
	} else if ((lazy = lazy_pages_daemon())) {
		snprintf(
			daemon, sizeof(daemon),
			"a lazy restore still fills it: wait until the lazy-pages daemon (process %d) has ended",
			lazy);
		todo = daemon;
	}
	pr_err("Process %d (%s) has memory at %lx-%lx behind a userfaultfd. What is not there yet would be lost in a dump; %s\n",
	       pid, name_of(pid), start, end, todo);
	return -1;
}

/* As criu does in the freeze, where it costs nothing. */
static int guard_areas(pid_t pid)
{
	unsigned long start = 0, end = 0, a, b;
	char path[32], *line = NULL;
	size_t size = 0;
	FILE *f;
	int ret = 0;

	snprintf(path, sizeof(path), "/proc/%d/smaps", pid);
	f = fopen(path, "re");
	while (f && !ret && getline(&line, &size, f) > 0)
		if (!strncmp(line, "VmFlags: ", 9))
			ret = zns_guard_area(pid, start, end, line + 9);
		else if (sscanf(line, "%lx-%lx", &a, &b) == 2)
			start = a, end = b;
	free(line);
	if (f)
		fclose(f);
	return ret;
}

struct pids {
	pid_t *pid;
	unsigned int nr, max;
};

static int add_pid(struct pids *list, pid_t pid)
{
	unsigned int max = list->max ? list->max * 2 : 64;
	pid_t *more;

	if (list->nr == list->max) {
		more = xrealloc(list->pid, max * sizeof(pid_t));
		if (!more)
			return -1;
		list->pid = more;
		list->max = max;
	}
	list->pid[list->nr++] = pid;
	return 0;
}

static int add_children(struct pids *list, pid_t pid, pid_t tid)
{
	char path[64];
	int child, ret = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", pid, tid);
	f = fopen(path, "re");
	while (f && !ret && fscanf(f, "%d", &child) == 1)
		ret = add_pid(list, child);
	if (f)
		fclose(f);
	return ret;
}

static int guard_threads(struct pids *list, pid_t pid)
{
	DIR *dir = open_dir(pid, "task");
	struct dirent *e;
	pid_t tid;
	int ret = 0;

	while (dir && !ret && (e = readdir(dir))) {
		tid = atoi(e->d_name);
		if (tid > 0)
			ret = zns_guard_thread(pid, tid) || add_children(list, pid, tid);
	}
	if (dir)
		closedir(dir);
	return ret ? -1 : 0;
}

/*
 * The tree runs, so this is not the last word: seize.c asks for each thread, and proc_parse.c for
 * each area. But whoever says no there has kept the tasks frozen while others' memory was dumped.
 * Areas are looked at only if somebody in the tree has a userfaultfd: reading smaps takes a page
 * walk.
 */
int zns_guard_tree(pid_t root)
{
	struct pids list = {};
	bool uffd = false;
	unsigned int i;
	int ret;

	ret = add_pid(&list, root);
	for (i = 0; !ret && i < list.nr; i++) {
		ret = guard_threads(&list, list.pid[i]);
		uffd = uffd || holds_uffd(list.pid[i]);
	}
	for (i = 0; !ret && uffd && i < list.nr; i++)
		ret = guard_areas(list.pid[i]);
	xfree(list.pid);
	return ret;
}
