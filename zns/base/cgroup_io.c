/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The cgroup to which the kernel charges the reads and writes of this process: see
 * zns/cgroup_io.h. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "zns/cgroup_io.h"
#include "zns/safeopen.h"
#include "zns/util.h"

#define PATH_FLAGS (O_RDONLY | O_DIRECTORY | O_CLOEXEC)

/* The hierarchy that has the I/O controller. */
struct tree {
	int root;
	bool v1;
};

static bool has_word(int dir, const char *file, const char *word)
{
	cleanup_free uint8_t *text = NULL;
	size_t len;
	char *save = NULL, *w;

	if (zns_read_file(dir, file, 4096, &text, &len))
		return false;
	for (w = strtok_r((char *)text, " \n", &save); w; w = strtok_r(NULL, " \n", &save))
		if (!strcmp(w, word))
			return true;
	return false;
}

static bool has_option(char *options, const char *word)
{
	char *save = NULL;

	for (char *w = strtok_r(options, ",\n", &save); w; w = strtok_r(NULL, ",\n", &save))
		if (!strcmp(w, word))
			return true;
	return false;
}

/* If this line of mountinfo mounts the root of a hierarchy with the I/O controller, opens that
 * root. */
static bool try_mount(char *line, struct tree *t)
{
	char *sep = strstr(line, " - "), *super, *root = NULL, *at = NULL, *save = NULL, *w;
	bool v1;

	if (!sep || (strncmp(sep, " - cgroup ", 10) && strncmp(sep, " - cgroup2 ", 11)))
		return false;
	v1 = sep[9] == ' ';
	super = strrchr(sep, ' ') + 1;
	*sep = 0;
	w = strtok_r(line, " ", &save);
	for (int n = 0; w && n < 5; n++, w = strtok_r(NULL, " ", &save)) {
		if (n == 3)
			root = w;
		else if (n == 4)
			at = w;
	}
	if (!root || !at || strcmp(root, "/") || (v1 && !has_option(super, "blkio")))
		return false;
	t->root = open(at, PATH_FLAGS);
	if (t->root >= 0 && !v1 && !has_word(t->root, "cgroup.controllers", "io")) {
		close(t->root);
		t->root = -1;
	}
	t->v1 = v1;
	return t->root >= 0;
}

static int find_tree(struct tree *t, struct zns_err *err)
{
	cleanup_file FILE *f = fopen("/proc/self/mountinfo", "re");
	char line[2048];

	while (f && fgets(line, sizeof(line), f))
		if (try_mount(line, t))
			return 0;
	return zns_fail(err, -EOPNOTSUPP, "no cgroup hierarchy with the io controller is mounted");
}

/* Finds the line of /proc/PID/cgroup for the hierarchy @t; returns its path, terminated, or
 * NULL. */
static char *line_of(char *text, const struct tree *t)
{
	char *save = NULL;

	for (char *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
		char *names = strchr(l, ':'), *path = names ? strchr(names + 1, ':') : NULL;

		if (!path)
			return NULL;
		*path++ = 0;
		if (t->v1 ? has_option(names + 1, "blkio") : !names[1])
			return path;
	}
	return NULL;
}

/* Opens one path component at a time and follows no link. The owner of a cgroup may freeze and kill
 * what is in it, and throttle it for ever, so each cgroup on the path must be root's. */
static int walk(const struct tree *t, char *path, bool roots, int *out, struct zns_err *err)
{
	cleanup_close int at = fcntl(t->root, F_DUPFD_CLOEXEC, 0);
	char *save = NULL;
	struct stat st = { 0 }, top = { 0 };

	if (at < 0 || fstat(at, &top))
		return zns_fail_sys(err, -errno, "cannot open the root of the cgroups");
	for (char *name = strtok_r(path, "/", &save); name; name = strtok_r(NULL, "/", &save)) {
		int next = zns_open_subdir(at, name);

		if (next < 0)
			return zns_fail_sys(err, next,
					    "cannot open cgroup %s of the dumped process", name);
		close(at);
		at = next;
		if (fstat(at, &st))
			return zns_fail_sys(err, -errno,
					    "cannot check who owns cgroup %s of the dumped process",
					    name);
		if (st.st_dev != top.st_dev)
			return zns_fail(
				err, -EXDEV,
				"the process's cgroup is on another file system than its hierarchy");
		if (roots && st.st_uid)
			return zns_fail(
				err, -EPERM,
				"the cgroup of the dumped process belongs to user %u, who could stop the dump there for ever: give --zns-cgroup own or leave",
				st.st_uid);
	}
	*out = zns_take_fd(&at);
	return 0;
}

/* Is @pid in the group? Checking that makes it irrelevant who chose the names that led to the
 * group. */
static bool is_member(int procs, pid_t pid)
{
	int fd = fcntl(procs, F_DUPFD_CLOEXEC, 0);
	cleanup_file FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
	char line[32];

	if (!f && fd >= 0)
		close(fd);
	while (f && fgets(line, sizeof(line), f))
		if (strtol(line, NULL, 10) == pid)
			return true;
	return false;
}

static int group_of(const struct tree *t, pid_t pid, bool roots, int *procs, struct zns_err *err)
{
	cleanup_free uint8_t *text = NULL;
	cleanup_close int dir = -1, fd = -1;
	char file[64];
	struct stat st;
	char *path;
	size_t len;
	int ret;

	snprintf(file, sizeof(file), "/proc/%d/cgroup", pid);
	ret = zns_read_file(AT_FDCWD, file, 65536, &text, &len);
	if (ret)
		return zns_fail_sys(err, ret, "cannot read %s", file);
	path = line_of((char *)text, t);
	if (!path)
		return zns_fail(err, -ENOENT, "%s does not name a group", file);
	ret = walk(t, path, roots, &dir, err);
	if (ret)
		return ret;
	fd = openat(dir, "cgroup.procs", O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 || fstat(fd, &st))
		return zns_fail_sys(err, -errno,
				    "cannot open the list of members of the process's cgroup");
	if (roots && st.st_uid)
		return zns_fail(
			err, -EPERM,
			"user %u may choose the members of the dumped process's cgroup: give --zns-cgroup own or leave",
			st.st_uid);
	if (!is_member(fd, pid))
		return zns_fail(err, -ESRCH, "process %d is not in the cgroup that it names", pid);
	*procs = zns_take_fd(&fd);
	return 0;
}

/* Creates our cgroup if it does not exist. It is never removed, because the administrator may have
 * set limits on it. */
static int own_group(const struct tree *t, int *procs, struct zns_err *err)
{
	cleanup_close int dir = -1;
	struct stat st;

	if (mkdirat(t->root, ZNS_CGROUP_OWN, 0755) && errno != EEXIST)
		return zns_fail_sys(err, -errno, "cannot make the cgroup " ZNS_CGROUP_OWN);
	if (!t->v1) {
		cleanup_close int on = openat(t->root, "cgroup.subtree_control",
					      O_WRONLY | O_CLOEXEC);

		if (on < 0 || write(on, "+io", 3) != 3)
			return zns_fail_sys(err, -errno, "cannot let cgroups count I/O");
	}
	dir = zns_open_subdir(t->root, ZNS_CGROUP_OWN);
	if (dir < 0)
		return zns_fail_sys(err, dir, "cannot open the cgroup " ZNS_CGROUP_OWN);
	if (fstat(dir, &st) || st.st_uid)
		return zns_fail(err, -EPERM,
				"the cgroup " ZNS_CGROUP_OWN
				" does not belong to root: remove it, and it is made anew");
	*procs = openat(dir, "cgroup.procs", O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	return *procs < 0 ? zns_fail_sys(err, -errno,
					 "cannot open the members of the cgroup " ZNS_CGROUP_OWN) :
			    0;
}

int zns_cgroup_io_find(struct zns_cgroup_io *c, pid_t pid, struct zns_err *err)
{
	struct tree t = { .root = -1 };
	int ret = find_tree(&t, err);

	c->home = c->there = -1;
	if (ret)
		return ret;
	ret = pid ? group_of(&t, pid, true, &c->there, err) : own_group(&t, &c->there, err);
	if (!ret)
		ret = group_of(&t, getpid(), false, &c->home, err);
	close(t.root);
	if (ret)
		zns_cgroup_io_close(c);
	return ret;
}

int zns_cgroup_io_enter(const struct zns_cgroup_io *c, struct zns_err *err)
{
	if (write(c->there, "0", 1) == 1)
		return 0;
	return zns_fail_sys(err, -errno, "cannot enter the cgroup");
}

void zns_cgroup_io_close(struct zns_cgroup_io *c)
{
	if (c->there >= 0)
		close(c->there);
	if (c->home >= 0)
		close(c->home);
	c->there = c->home = -1;
}

void zns_cgroup_io_leave(struct zns_cgroup_io *c)
{
	/* The old cgroup may have been removed, or may not accept processes any more. */
	if (c->home >= 0 && write(c->home, "0", 1) != 1)
		zns_cgroup_escape();
	zns_cgroup_io_close(c);
}
