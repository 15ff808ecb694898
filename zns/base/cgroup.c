/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Leaves the cgroups of the process that started us, so that we do not end with them, and their
 * freezer and limits do not affect us. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "zns/process.h"
#include "zns/util.h"

static bool write_zero(const char *mountpoint, const char *name)
{
	cleanup_close int fd = -1;
	char path[512];

	if ((size_t)snprintf(path, sizeof(path), "%s/%s", mountpoint, name) >= sizeof(path))
		return false;
	fd = open(path, O_WRONLY | O_CLOEXEC);
	return fd >= 0 && write(fd, "0", 1) == 1;
}

static bool one_thread(void)
{
	struct stat st;

	return !stat("/proc/self/task", &st) && st.st_nlink == 3;
}

/*
 * Moves us into the root group of one hierarchy. To move a process, the kernel blocks all forks on
 * the machine and waits 5 to 17 ms for those that have begun. A thread that moves only itself
 * avoids that, but in version 2 only whole processes can be moved there.
 */
static bool enter_root(const char *mountpoint, bool v2)
{
	return (!v2 && one_thread() && write_zero(mountpoint, "tasks")) ||
	       write_zero(mountpoint, "cgroup.procs");
}

/* Is @word in @list, which has commas between words? */
static bool listed(const char *list, const char *word, size_t len)
{
	for (const char *p = list; *p; p += strcspn(p, ","), p += *p == ',')
		if (strcspn(p, ",\n") == len && !strncmp(p, word, len))
			return true;
	return false;
}

/*
 * Are we in the root group of a hierarchy already? Writing to it anyway would take milliseconds.
 * @groups: the text of /proc/self/cgroup. @super: the mount options; NULL for version 2. Returns
 * false if it is not certain.
 */
static bool in_root(const char *groups, const char *super)
{
	for (const char *l = groups; *l; l += strcspn(l, "\n"), l += *l == '\n') {
		const char *names = memchr(l, ':', strcspn(l, "\n")),
			   *path = names ? strchr(names + 1, ':') : NULL;
		bool ours = false;

		if (!path)
			return false;
		names++;
		if (!super)
			ours = names == path;
		for (const char *n = names; super && n < path && !ours; n += strcspn(n, ",:") + 1)
			ours = listed(super, n, strcspn(n, ",:"));
		if (ours)
			return path[1] == '/' && (path[2] == '\n' || !path[2]);
	}
	return false;
}

/* Calls @root for the mountpoint of each hierarchy in whose root group we are not. A hierarchy that
 * is delegated or read-only is skipped: we stay in its group. False: one call returned false, or
 * the hierarchies could not be listed. */
static bool each_root(bool (*root)(const char *mountpoint, bool v2, void *arg), void *arg)
{
	cleanup_file FILE *f = fopen("/proc/self/mountinfo", "re");
	cleanup_free uint8_t *groups = NULL;
	bool all = f != NULL;
	char line[2048];
	size_t len;

	if (zns_read_file(AT_FDCWD, "/proc/self/cgroup", 65536, &groups, &len))
		groups = NULL;
	while (f && fgets(line, sizeof(line), f)) {
		char *sep = strstr(line, " - "), *super, *save = NULL, *top = NULL, *mnt = NULL,
		     *tok;
		bool v2;

		if (!sep || (strncmp(sep + 3, "cgroup ", 7) && strncmp(sep + 3, "cgroup2 ", 8)))
			continue;
		v2 = sep[9] == '2';
		super = strrchr(sep, ' ') + 1;
		*sep = 0;
		tok = strtok_r(line, " ", &save);
		for (int n = 0; tok && n < 5; n++, tok = strtok_r(NULL, " ", &save)) {
			if (n == 3)
				top = tok;
			else if (n == 4)
				mnt = tok;
		}
		if (top && mnt && !strcmp(top, "/") &&
		    !(groups && in_root((char *)groups, v2 ? NULL : super)))
			all &= root(mnt, v2, arg);
	}
	return all;
}

static bool enter(const char *mountpoint, bool v2, void *arg)
{
	return enter_root(mountpoint, v2);
}

bool zns_cgroup_escape(void)
{
	return each_root(enter, NULL);
}

static bool open_root(const char *mountpoint, bool v2, void *arg)
{
	int *fd = arg;

	if (v2 && *fd < 0)
		*fd = open(mountpoint, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return true;
}

int zns_cgroup_root(void)
{
	int fd = -1;

	each_root(open_root, &fd);
	return fd;
}
