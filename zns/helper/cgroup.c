/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cgroups: getting out of the container's, and reading the container's id from a task's. */
#include <ctype.h>
#include <fcntl.h>
#include <string.h>
#include "helper.h"

/* Write ourselves into one hierarchy's root group. */
static void enter_root(const char *mountpoint)
{
	cleanup_close int fd = -1;
	char path[512];

	if ((size_t)snprintf(path, sizeof(path), "%s/cgroup.procs", mountpoint) >= sizeof(path))
		return;
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd >= 0 && write(fd, "0", 1) != 1)
		return;	/* a delegated or read-only hierarchy: we stay, and are charged there */
}

/* runc puts criu into the container's groups before a restore (hooks.md), and the helper is its child. */
void cgroup_escape(void)
{
	cleanup_file FILE *f = fopen("/proc/self/mountinfo", "re");
	char line[2048];

	while (f && fgets(line, sizeof(line), f)) {
		char *sep = strstr(line, " - "), *save = NULL, *root = NULL, *mnt = NULL, *tok = strtok_r(line, " ", &save);

		if (!sep || (strncmp(sep + 3, "cgroup ", 7) && strncmp(sep + 3, "cgroup2 ", 8)))
			continue;
		for (int n = 0; tok && n < 5; n++, tok = strtok_r(NULL, " ", &save)) {
			if (n == 3)
				root = tok;
			else if (n == 4)
				mnt = tok;
		}
		if (root && mnt && !strcmp(root, "/"))
			enter_root(mnt);
	}
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
			if (n == 64)
				id = p;	/* of nested containers the innermost, which stands last */
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
