/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Out of the cgroups of whoever started this process: their end, their freezer and their limits are not ours. */
#include <fcntl.h>
#include <string.h>
#include "zns/process.h"
#include "zns/util.h"

/* Write ourselves into one hierarchy's root group. */
static bool enter_root(const char *mountpoint)
{
	cleanup_close int fd = -1;
	char path[512];

	if ((size_t)snprintf(path, sizeof(path), "%s/cgroup.procs", mountpoint) >= sizeof(path))
		return false;
	fd = open(path, O_WRONLY | O_CLOEXEC);
	return fd >= 0 && write(fd, "0", 1) == 1;
}

bool zns_cgroup_escape(void)
{
	cleanup_file FILE *f = fopen("/proc/self/mountinfo", "re");
	bool all = f != NULL;
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
		/* A delegated or read-only hierarchy: we stay, and are charged there. */
		if (root && mnt && !strcmp(root, "/"))
			all &= enter_root(mnt);
	}
	return all;
}
