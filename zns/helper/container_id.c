/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Finds the container's id in the cgroups of a task. */
#include <ctype.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include "helper.h"

/*
 * Did root make this cgroup? A user to whom a cgroup was delegated can make children of any name,
 * although no engine made such a container. The answer is unknown if the hierarchy is mounted
 * elsewhere. @line: a line of /proc/PID/cgroup, read up to @end.
 */
static bool made_by_root(const char *line, const char *end)
{
	static const char *const base[] = { "/sys/fs/cgroup", "/sys/fs/cgroup/unified" };
	const char *name = strchr(line, ':'), *path = name ? strchr(name + 1, ':') : NULL;
	char at[PATH_MAX];
	struct stat st;

	if (!path || path > end)
		return false;
	if (!strncmp(name + 1, "name=", 5))
		name += 5;
	end += strcspn(end, "/\n"); /* end of the path component that contains the id */
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(base); i++) {
		snprintf(at, sizeof(at), "%s%s%.*s%.*s", base[i], path > name + 1 ? "/" : "",
			 (int)(path - name - 1), name + 1, (int)(end - path - 1), path + 1);
		if (!lstat(at, &st))
			return st.st_uid == 0;
	}
	return true;
}

int cgroup_container_id(pid_t pid, char *out, size_t len)
{
	cleanup_file FILE *f = NULL;
	char path[64], line[4096];

	snprintf(path, sizeof(path), "/proc/%d/cgroup", pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		const char *id = NULL;

		for (char *p = line; *p; p++) {
			size_t n = 0;

			while (isxdigit((unsigned char)p[n]) && !isupper((unsigned char)p[n]))
				n++;
			if (n == 64 && made_by_root(line, p))
				id = p; /* with nested containers the innermost id comes last */
			if (n)
				p += n - 1;
		}
		if (id && len > 64) {
			memcpy(out, id, 64);
			out[64] = 0;
			return 0;
		}
	}
	return -ENOENT;
}
