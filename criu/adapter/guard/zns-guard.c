/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Lists the tree, and finds tasks that cannot be dumped although CRIU does not notice it. One case
 * is memory that is registered with a userfaultfd: pages that its owner has not provided yet look
 * like holes, and the dump succeeds without them. Another is a kernel thread of an io_uring: it can
 * be traced but never stops, so the dump waits for ever.
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
#include "zns-guards.h"

#undef LOG_PREFIX
#define LOG_PREFIX "zns: "

/* A flag of linux/sched.h. A program chooses the names of its threads, but not these flags. */
#define IO_WORKER 0x10u

size_t zns_guard_text(pid_t pid, const char *name, char *text, size_t size)
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

char *zns_guard_plain(char *text)
{
	char *s;

	text[strcspn(text, "\n")] = '\0';
	for (s = text; *s; s++)
		if (*s < ' ' || *s > '~')
			*s = '?';
	return text;
}

const char *zns_guard_name(pid_t pid)
{
	static char name[2][64];
	static int last;

	last = !last;
	zns_guard_text(pid, "comm", name[last], sizeof(name[last]));
	return zns_guard_plain(name[last]);
}

DIR *zns_guard_dir(pid_t pid, const char *name)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	return opendir(path);
}

bool zns_guard_stat(pid_t pid, pid_t tid, char *state, unsigned int *flags)
{
	char name[32], text[512], *s;

	snprintf(name, sizeof(name), "task/%d/stat", tid);
	if (!zns_guard_text(pid, name, text, sizeof(text)))
		return false;
	s = strrchr(text, ')');
	return s && sscanf(s, ") %c %*d %*d %*d %*d %*d %u", state, flags) == 2;
}

int zns_guard_thread(pid_t pid, pid_t tid)
{
	unsigned int flags;
	char state;

	if (!zns_guard_stat(pid, tid, &state, &flags) || !(flags & IO_WORKER))
		return 0;
	pr_err("Process %d (%s) uses io_uring: its thread %d is one of the kernel's, which never stops for a dump. The "
	       "program has to close its rings first, or the owner of a ring that was passed on (IORING_SETUP_SQPOLL); "
	       "threads that only finish requests end some seconds after the last one\n",
	       pid, zns_guard_name(pid), tid);
	return -1;
}

static bool holds_uffd(pid_t pid)
{
	char link[sizeof(UFFD_LINK)];
	DIR *dir = zns_guard_dir(pid, "fd");
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

/* Is it a lazy-pages daemon that still fills the memory of a task? */
static bool is_lazy_pages(pid_t pid)
{
	char text[4096], *s;
	size_t len = zns_guard_text(pid, "cmdline", text, sizeof(text));

	for (s = text; s < text + len; s += strlen(s) + 1)
		if (!strcmp(s, "lazy-pages"))
			return holds_uffd(pid) && strcmp(zns_guard_name(pid), ZNS_HOLDER_NAME);
	return false;
}

/*
 * Finds the first process after @after, in the order of /proc, for which @is returns true; 0: none.
 */
static pid_t find_process(bool (*is)(pid_t pid), pid_t after)
{
	DIR *dir = opendir("/proc");
	struct dirent *e;
	pid_t pid = 0;

	while (dir && (e = readdir(dir))) {
		pid = atoi(e->d_name);
		if (pid > after && is(pid))
			break;
		pid = 0;
	}
	if (dir)
		closedir(dir);
	return pid;
}

/*
 * Writes the names of all lazy-pages daemons into @out, since no file tells which of them has a
 * userfaultfd of the task. Returns 0 if there is none.
 */
static int name_lazy_pages(char *out, size_t len)
{
	size_t n = 0;
	pid_t pid = 0;
	int nr = 0;

	while (n < len && (pid = find_process(is_lazy_pages, pid)))
		n += snprintf(out + n, len - n, "%s%d", nr++ ? ", " : "", pid);
	return nr;
}

/*
 * Does a userfaultfd provide missing pages of the area? The flags um and ui mean that. uw means
 * write protection, for which no page is missing.
 */
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
	char daemon[256], pids[128];
	int nr;

	if (!is_filled_by_another(flags) || zns_mem_answers(pid, start, end))
		return 0;
	if (holds_uffd(pid)) {
		todo = "the process holds it itself and has to unregister the area";
	} else if ((nr = name_lazy_pages(pids, sizeof(pids)))) {
		snprintf(
			daemon, sizeof(daemon),
			"a lazy restore still fills it: wait until the lazy-pages daemon (%s %s) has ended",
			nr > 1 ? "one of processes" : "process", pids);
		todo = daemon;
	}
	pr_err("Process %d (%s) has memory at %lx-%lx behind a userfaultfd. What is not there yet would be lost in a dump; %s\n",
	       pid, zns_guard_name(pid), start, end, todo);
	return -1;
}

/* Makes the checks before the freeze that criu makes during it. */
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

static int add(struct zns_guard_tree *tree, pid_t pid, unsigned int parent)
{
	unsigned int max = tree->max ? tree->max * 2 : 64;
	struct zns_guard_task *more;

	if (tree->nr == tree->max) {
		more = xrealloc(tree->task, max * sizeof(*more));
		if (!more)
			return -1;
		tree->task = more;
		tree->max = max;
	}
	tree->task[tree->nr++] = (struct zns_guard_task){ .pid = pid, .parent = parent };
	return 0;
}

static int add_children(struct zns_guard_tree *tree, unsigned int i, pid_t tid)
{
	char path[64];
	int child, ret = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", tree->task[i].pid, tid);
	f = fopen(path, "re");
	while (f && !ret && fscanf(f, "%d", &child) == 1)
		ret = add(tree, child, i);
	if (f)
		fclose(f);
	return ret;
}

static int walk_threads(struct zns_guard_tree *tree, unsigned int i,
			int (*each)(pid_t pid, pid_t tid))
{
	DIR *dir = zns_guard_dir(tree->task[i].pid, "task");
	struct dirent *e;
	pid_t tid;
	int ret = 0;

	while (dir && !ret && (e = readdir(dir))) {
		tid = atoi(e->d_name);
		if (tid > 0)
			ret = each(tree->task[i].pid, tid) || add_children(tree, i, tid);
	}
	if (dir)
		closedir(dir);
	return ret ? -1 : 0;
}

int zns_guard_walk(struct zns_guard_tree *tree, pid_t root, int (*each)(pid_t pid, pid_t tid))
{
	unsigned int i;
	int ret = add(tree, root, 0);

	for (i = 0; !ret && i < tree->nr; i++)
		ret = walk_threads(tree, i, each);
	return ret;
}

bool zns_guard_is_pager(pid_t pid)
{
	return !strcmp(zns_guard_name(pid), "zns-mem");
}

/*
 * The tree still runs, so seize.c checks each thread again, and proc_parse.c each area. But if
 * these refuse, the tasks have been frozen and the memory of others was dumped already. Reading
 * smaps takes a page walk. So areas are checked only if a process of the tree has a userfaultfd, or
 * if a pager runs that does not take part in this dump: such a pager stops its program now and
 * then, and criu's attempt to stop it would fail at such a moment.
 */
int zns_guard_tree(pid_t root, bool pre_dump)
{
	struct zns_guard_tree tree = {};
	struct zns_guard_seen seen = { .pre_dump = pre_dump };
	bool areas;
	unsigned int i;
	int ret = zns_guard_walk(&tree, root, zns_guard_thread);

	for (i = 0; !ret && i < tree.nr; i++)
		ret = zns_guard_files(tree.task[i].pid, &seen);
	areas = seen.uffd_pid || (!zns_mem_begun() && find_process(zns_guard_is_pager, 0));
	for (i = 0; !ret && areas && i < tree.nr; i++)
		ret = guard_areas(tree.task[i].pid);
	if (!ret && seen.uffd_pid)
		ret = zns_guard_refuse_fd(seen.uffd_pid, seen.uffd, "a userfaultfd");
	xfree(tree.task);
	return ret;
}
