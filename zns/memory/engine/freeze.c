/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Freezes the cgroup of a context while it hibernates: then nothing runs, not even timers. Only a
 * cgroup below the root, in which and below which there is no process but this context's, and all
 * of those. Both versions of cgroups.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>

#include "../policy/cgroup.h"
#include "../policy/hiber.h"

#define WAIT_MS 3000 /* until all have frozen */
#define DEPTH_MAX 8
#define TWO "cgroup.freeze"
#define ONE "freezer.state"

static const struct version {
	const char *fs, *controller, *file, *on, *off, *state, *frozen;
} versions[] = {
	{ "cgroup2", "", TWO, "1", "0", "cgroup.events", "frozen 1" },
	{ "cgroup", "freezer", ONE, "FROZEN", "THAWED", ONE, "FROZEN" },
};

static const struct version *find(pid_t pid, char *dir, size_t len)
{
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(versions); i++) {
		char at[512], path[512], file[FROZEN_MAX + 32];

		if (!cgroup_mounted(versions[i].fs, versions[i].controller, at, sizeof(at)) ||
		    !cgroup_of(pid, versions[i].controller, path, sizeof(path)) ||
		    (size_t)snprintf(dir, len, "%s%s", at, path) + 32 >= len)
			continue;
		snprintf(file, sizeof(file), "%s/%s", dir, versions[i].file);
		if (!access(file, W_OK))
			return &versions[i];
	}
	return NULL;
}

struct census {
	struct proc *const *list;
	unsigned int nr, met;
	pid_t stranger; /* -1: none */
};

static void count(struct census *c, int dir)
{
	cleanup_free uint8_t *text = NULL;
	char *p, *end;
	size_t len;

	if (zns_read_file(dir, "cgroup.procs", 1 << 20, &text, &len)) {
		c->stranger = 0;
		return;
	}
	for (p = (char *)text;; p = end) {
		long pid = strtol(p, &end, 10);
		bool ours = false;

		if (end == p)
			return;
		for (unsigned int i = 0; i < c->nr; i++)
			ours |= c->list[i]->pid == pid;
		if (ours)
			c->met++;
		else
			c->stranger = (pid_t)pid;
	}
}

static void count_all(struct census *c, int dir, int depth)
{
	struct dirent *e;
	DIR *d = fdopendir(dir); /* takes it */

	if (!d || depth > DEPTH_MAX) {
		c->stranger = 0;
		if (d)
			closedir(d);
		else
			close(dir);
		return;
	}
	count(c, dir);
	while ((e = readdir(d))) {
		int sub;

		if (e->d_name[0] == '.' || e->d_type != DT_DIR)
			continue;
		sub = openat(dir, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (sub >= 0)
			count_all(c, sub, depth + 1);
	}
	closedir(d);
}

static int check(struct zns_mem *m, const char *dir, struct zns_err *err)
{
	struct proc *list[PROCS_MAX];
	struct census c = { .list = list, .stranger = -1 };
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), ret = 0;

	if (fd < 0)
		return zns_fail_sys(err, -errno, "%s", dir);
	procs(m, list, &c.nr);
	count_all(&c, fd, 0);
	if (c.stranger >= 0)
		ret = zns_fail(err, -EBUSY, "PID %d is in its cgroup, and not of this context",
			       c.stranger);
	else if (c.met != c.nr)
		ret = zns_fail(err, -EBUSY, "not all of its processes are in one cgroup");
	for (unsigned int i = 0; i < c.nr; i++)
		proc_put(list[i]);
	return ret;
}

static int put(const char *file, const char *text)
{
	cleanup_close int fd = open(file, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	return write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

static bool says(const char *dir, const char *name, const char *word)
{
	cleanup_free uint8_t *text = NULL;
	char path[FROZEN_MAX + 32];
	size_t len;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return !zns_read_file(AT_FDCWD, path, 4096, &text, &len) && strstr((char *)text, word);
}

static bool await(const struct version *v, const char *dir)
{
	for (int ms = 0; ms < WAIT_MS; ms += 5) {
		if (says(dir, v->state, v->frozen))
			return true;
		nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
	}
	return false;
}

static pid_t first(struct zns_mem *m)
{
	struct proc *list[PROCS_MAX];
	unsigned int nr;
	pid_t pid = 0;

	procs(m, list, &nr);
	for (unsigned int i = 0; i < nr; i++) {
		if (!pid)
			pid = list[i]->pid;
		proc_put(list[i]);
	}
	return pid;
}

int freeze_begin(struct zns_mem *m, struct zns_err *err)
{
	struct shared_hiber *h = &m->sh->hiber;
	char dir[FROZEN_MAX - 32];
	const struct version *v = find(first(m), dir, sizeof(dir));
	int ret;

	if (h->frozen[0])
		return 0; /* the last pager did */
	if (!v)
		return zns_fail(err, -ENOENT, "it has no cgroup of its own that can be frozen");
	if (says(dir, v->state, v->frozen))
		return zns_fail(err, -EALREADY, "its cgroup is frozen already, by somebody else");
	ret = check(m, dir, err);
	if (ret)
		return ret;
	/* first, so that a successor thaws what we may have frozen */
	snprintf(h->frozen, sizeof(h->frozen), "%s/%s", dir, v->file);
	ret = put(h->frozen, v->on);
	if (!ret && await(v, dir))
		return 0;
	freeze_end(m);
	return zns_fail_sys(err, ret ? ret : -ETIMEDOUT, "%s", dir);
}

void freeze_end(struct zns_mem *m)
{
	struct shared_hiber *h = &m->sh->hiber;
	const char *name;

	if (!h->frozen[0])
		return;
	h->frozen[FROZEN_MAX - 1] = 0;
	name = strrchr(h->frozen, '/');
	for (size_t i = 0; name && i < ZNS_ARRAY_SIZE(versions); i++)
		if (!strcmp(name + 1, versions[i].file))
			put(h->frozen, versions[i].off);
	h->frozen[0] = 0;
}
