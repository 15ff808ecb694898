/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Finds processes in namespaces that a restore cannot recreate, and processes that are traced or do
 * not stop. CRIU does dump processes of the first kind: only its restore compares the namespaces of
 * each process with those of its parent (pstree.c).
 */
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cr_options.h"
#include "crtools.h"
#include "log.h"
#include "namespaces.h"
#include "util.h"
#include "xmalloc.h"
#include "zns-guard.h"
#include "zns-guards.h"

#undef LOG_PREFIX
#define LOG_PREFIX "zns: "

#define VFORK_LOOK_NS 10000000l
/*
 * number of checks whether a vfork() has ended: posix_spawn() takes milliseconds, and criu waits
 * ten seconds for a process to stop
 */
#define VFORK_LOOKS 300

/* The kinds of namespaces that pstree.c compares. */
static const struct {
	const char *name;
	unsigned long flag;
} space[] = {
	{ "time", CLONE_NEWTIME }, { "pid", CLONE_NEWPID }, { "net", CLONE_NEWNET },
	{ "ipc", CLONE_NEWIPC },   { "uts", CLONE_NEWUTS }, { "mnt", CLONE_NEWNS },
	{ "user", CLONE_NEWUSER },
};
#define NR_SPACES ARRAY_SIZE(space)

/*
 * Inode numbers of namespaces. 0: unknown, as for a zombie, or a kind that this kernel does not
 * have.
 */
struct spaces {
	unsigned int id[NR_SPACES];
};

static void read_spaces(pid_t pid, struct spaces *s)
{
	DIR *dir = zns_guard_dir(pid, "ns");
	char link[64], *id;
	ssize_t len;
	unsigned int i;

	for (i = 0; i < NR_SPACES; i++) {
		len = dir ? readlinkat(dirfd(dir), space[i].name, link, sizeof(link) - 1) : -1;
		link[len < 0 ? 0 : len] = '\0';
		id = strchr(link, '[');
		s->id[i] = id ? strtoul(id + 1, NULL, 10) : 0;
	}
	if (dir)
		closedir(dir);
}

/* Returns the CLONE_ flags of the namespaces in which @a and @b differ. */
static unsigned long differ(const struct spaces *a, const struct spaces *b)
{
	unsigned long flags = 0;
	unsigned int i;

	for (i = 0; i < NR_SPACES; i++)
		if (a->id[i] && b->id[i] && a->id[i] != b->id[i])
			flags |= space[i].flag;
	return flags;
}

static int refuse_space(pid_t pid, pid_t parent, unsigned long flags)
{
	unsigned int i = 0;

	while (!(space[i].flag & flags))
		i++;
	pr_err("Process %d (%s) is in another %s namespace than its parent %d (%s), and no restore can make that: end it "
	       "first, or start it in the namespaces of the tree (what `docker exec` put into a restored container is outside "
	       "of its time namespace with runc before 1.2.7)\n",
	       pid, zns_guard_name(pid), space[i].name, parent, zns_guard_name(parent));
	return -1;
}

/*
 * Applies the rule of prepare_pstree_kobj_ids(), which CRIU checks only in a restore: processes of
 * a tree may have network and mount namespaces of their own only if the tree's root has.
 */
static int guard_spaces(const struct zns_guard_tree *tree)
{
	struct spaces *s = xzalloc(tree->nr * sizeof(*s)), own;
	unsigned long may, flags;
	unsigned int i;
	int ret = s ? 0 : -1;

	if (ret)
		return ret;
	read_spaces(getpid(), &own);
	read_spaces(tree->task[0].pid, &s[0]);
	may = differ(&s[0], &own) & CLONE_SUBNS;
	for (i = 1; !ret && i < tree->nr; i++) {
		read_spaces(tree->task[i].pid, &s[i]);
		flags = differ(&s[i], &s[tree->task[i].parent]) & ~may;
		if (flags)
			ret = refuse_space(tree->task[i].pid, tree->task[tree->task[i].parent].pid,
					   flags);
	}
	xfree(s);
	return ret;
}

static int guard_traced(pid_t pid, int tracer)
{
	/*
	 * One of our pagers stops its program from time to time. That is allowed, since the pager
	 * itself is paused before the freeze.
	 */
	if (!tracer || zns_guard_is_pager(tracer))
		return 0;
	if (!strcmp(zns_guard_name(tracer), "criu"))
		pr_err("Process %d (%s) is being dumped already, by process %d (criu): wait until that has ended\n",
		       pid, zns_guard_name(pid), tracer);
	else
		pr_err("Process %d (%s) is traced by process %d (%s), and a task has one tracer only: detach that first\n",
		       pid, zns_guard_name(pid), tracer, zns_guard_name(tracer));
	return -1;
}

/*
 * Does the thread wait in vfork() for its child to call execve() or to exit? No signal stops it
 * there.
 */
static bool in_vfork(pid_t pid, pid_t tid)
{
	char name[32], text[128];
	unsigned long arg;
	unsigned int flags;
	char state;
	long nr;

	if (!zns_guard_stat(pid, tid, &state, &flags) || state != 'D')
		return false;
	snprintf(name, sizeof(name), "task/%d/syscall", tid);
	zns_guard_text(pid, name, text, sizeof(text));
	if (sscanf(text, "%ld %lx", &nr, &arg) != 2)
		return false;
#ifdef __NR_vfork
	if (nr == __NR_vfork)
		return true;
#endif
	return (nr == __NR_clone && arg & CLONE_VFORK) || nr == __NR_clone3;
}

static int guard_vfork(pid_t pid, pid_t tid)
{
	const struct timespec look = { .tv_nsec = VFORK_LOOK_NS };
	int i;

	for (i = 0; in_vfork(pid, tid); i++) {
		if (i == VFORK_LOOKS) {
			pr_err("Process %d (%s) waits in vfork() for a child, and cannot be stopped until that child calls "
			       "execve() or ends: try again then\n",
			       pid, zns_guard_name(pid));
			return -1;
		}
		nanosleep(&look, NULL);
	}
	return 0;
}

/*
 * Checks that limits can be read: CRIU would find out only after it has copied all memory, and fail
 * with "Can't get rlimit 0".
 */
static int guard_limits(pid_t pid)
{
	struct rlimit limit;

	if (opts.mode == CR_PRE_DUMP || !prlimit(pid, RLIMIT_CPU, NULL, &limit) || errno != EPERM)
		return 0;
	pr_err("Process %d (%s) is of another user, and criu may not read its limits: CAP_SYS_RESOURCE is missing (setpriv -d "
	       "shows what there is; in a container: --cap-add SYS_RESOURCE)\n",
	       pid, zns_guard_name(pid));
	return -1;
}

static int guard_thread(pid_t pid, pid_t tid)
{
	char name[32], text[512], state = 0, *s;
	int tracer = 0;

	snprintf(name, sizeof(name), "task/%d/status", tid);
	zns_guard_text(pid, name, text, sizeof(text));
	s = strstr(text, "\nState:");
	if (s)
		sscanf(s, " State: %c", &state);
	s = strstr(text, "\nTracerPid:");
	if (s)
		sscanf(s, " TracerPid: %d", &tracer);
	if (tid == pid && guard_limits(pid))
		return -1;
	return guard_traced(pid, tracer) || (state == 'D' && guard_vfork(pid, tid));
}

int zns_guard_tasks(pid_t root)
{
	struct zns_guard_tree tree = {};
	int ret = zns_guard_walk(&tree, root, guard_thread) || guard_spaces(&tree) ? -1 : 0;

	xfree(tree.task);
	return ret;
}
