/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Estimates the size of a dump before any task is frozen, from counts that the kernel keeps. */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "../helper.h"
#include "zns/grow.h"

#define PER_TASK KIB(64) /* bytes of a task's images other than its pages */
#define TASKS_MAX 65536u
/* most descriptors of a tree that are checked: each check takes a microsecond or two */
#define LOOKS_MAX 8192u

/* Bytes of a task that become pages in an image: memory that is shared, and memory of its own. */
struct resident {
	uint64_t shared, own;
};

static struct resident read_status(pid_t pid)
{
	static const char *const keys[] = { "RssShmem:", "HugetlbPages:", "RssAnon:", "VmSwap:" };
	struct resident r = { 0, 0 };
	cleanup_file FILE *f = NULL;
	unsigned long long kb;
	char path[64], line[256];

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		for (size_t i = 0; i < ZNS_ARRAY_SIZE(keys); i++)
			if (!strncmp(line, keys[i], strlen(keys[i])) &&
			    sscanf(line + strlen(keys[i]), "%llu", &kb) == 1)
				*(i < 2 ? &r.shared : &r.own) += kb * 1024;
	return r;
}

static void add_children(pid_t pid, const char *tid, pid_t **list, uint32_t *nr, uint32_t *max)
{
	cleanup_file FILE *f = NULL;
	char path[320];
	int child;

	snprintf(path, sizeof(path), "/proc/%d/task/%s/children", pid, tid);
	f = fopen(path, "re");
	while (f && fscanf(f, "%d", &child) == 1 && *nr < TASKS_MAX) {
		if (*nr == *max) {
			uint32_t more = *max ? 2 * *max : 64;
			pid_t *p = realloc(*list, more * sizeof(*p));

			if (!p)
				return;
			*list = p;
			*max = more;
		}
		(*list)[(*nr)++] = child;
	}
}

uint32_t task_tree(pid_t root, pid_t **out)
{
	uint32_t nr = 0, max = 0;

	*out = malloc(sizeof(**out));
	if (!*out)
		return 0;
	max = 1;
	(*out)[nr++] = root;
	for (uint32_t at = 0; at < nr; at++) {
		pid_t pid = (*out)[at];
		char path[64];
		struct dirent *de;
		DIR *dir;

		snprintf(path, sizeof(path), "/proc/%d/task", pid);
		dir = opendir(path);
		while (dir && (de = readdir(dir)))
			if (de->d_name[0] != '.')
				add_children(pid, de->d_name, out, &nr, &max);
		if (dir)
			closedir(dir);
	}
	return nr;
}

uint64_t task_bytes(pid_t pid, bool shared)
{
	struct resident r = read_status(pid);

	return r.shared + (shared ? 0 : r.own) + PER_TASK;
}

/*
 * Files without a name: memfds and deleted files. The dump stores their pages, whether a task maps
 * them or not.
 */
struct nameless {
	struct {
		uint64_t ino;
		uint32_t major, minor;
	} * v;
	size_t nr, max;
	uint32_t looks;
	uint64_t bytes;
};

static bool is_new(struct nameless *o, const struct statx *s)
{
	for (size_t i = 0; i < o->nr; i++)
		if (o->v[i].ino == s->stx_ino && o->v[i].major == s->stx_dev_major &&
		    o->v[i].minor == s->stx_dev_minor)
			return false;
	if (zns_grow(o->v, o->nr, o->max))
		return false;
	o->v[o->nr].ino = s->stx_ino;
	o->v[o->nr].major = s->stx_dev_major;
	o->v[o->nr++].minor = s->stx_dev_minor;
	return true;
}

static void add_nameless(pid_t pid, struct nameless *o)
{
	struct dirent *de;
	struct statx s;
	char path[64];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	dir = opendir(path);
	while (dir && o->looks < LOOKS_MAX && (de = readdir(dir))) {
		o->looks++;
		/*
		 * AT_STATX_DONT_SYNC: do not ask the server of a network file system, which may not
		 * respond
		 */
		if (!statx(dirfd(dir), de->d_name, AT_STATX_DONT_SYNC, STATX_BASIC_STATS, &s) &&
		    S_ISREG(s.stx_mode) && !s.stx_nlink && s.stx_blocks && is_new(o, &s))
			o->bytes += s.stx_blocks * 512;
	}
	if (dir)
		closedir(dir);
}

uint64_t task_tree_bytes(pid_t pid, uint64_t *least)
{
	cleanup_free pid_t *list = NULL;
	uint32_t nr = task_tree(pid, &list);
	struct nameless o = { .v = NULL };
	uint64_t sum = 0, mapped = 0;

	*least = 0;
	for (uint32_t n = 0; n < nr; n++) {
		struct resident r = read_status(list[n]);

		sum += r.shared + r.own + PER_TASK;
		mapped += r.shared; /* these include mapped pages of nameless files */
		/*
		 * take the maximum: two tasks may share one memory (vfork), and it is dumped once
		 */
		*least = zns_max(*least, r.own);
		add_nameless(list[n], &o);
	}
	*least -= *least /
		  /*
		   * a reserve: the kernel's counts are not exact, and tasks may free some memory
		   * before the freeze
		   */
		  16;
	free(o.v);
	return sum + o.bytes - zns_min(o.bytes, mapped);
}

int task_uid(pid_t pid, uint32_t *uid)
{
	struct stat st;
	char path[64];

	/* /proc/PID/task may be denied even to this process */
	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	if (stat(path, &st))
		return -errno;
	*uid = st.st_uid;
	return 0;
}
