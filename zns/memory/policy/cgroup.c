/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* See cgroup.h. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cgroup.h"
#include "zns/util.h"

static bool listed(const char *list, const char *word)
{
	for (const char *p = list; *p; p += strcspn(p, ","), p += *p == ',')
		if (strcspn(p, ", \n") == strlen(word) && !strncmp(p, word, strlen(word)))
			return true;
	return false;
}

bool cgroup_mounted(const char *of, const char *controller, char *out, size_t len)
{
	cleanup_file FILE *f = fopen("/proc/self/mountinfo", "re");
	char line[4096], root[512], at[512], fs[64], super[512];

	while (f && fgets(line, sizeof(line), f)) {
		char *rest = strstr(line, " - ");

		if (rest && sscanf(line, "%*d %*d %*s %511s %511s", root, at) == 2 &&
		    sscanf(rest, " - %63s %*s %511s", fs, super) == 2 && !strcmp(root, "/") &&
		    !strcmp(fs, of) && (!*controller || listed(super, controller)))
			return (size_t)snprintf(out, len, "%s", at) < len;
	}
	return false;
}

bool cgroup_of(pid_t pid, const char *controller, char *out, size_t len)
{
	cleanup_free uint8_t *text = NULL;
	char file[48], *save = NULL;
	size_t n;

	snprintf(file, sizeof(file), "/proc/%d/cgroup", pid);
	if (zns_read_file(AT_FDCWD, file, 65536, &text, &n))
		return false;
	for (char *l = strtok_r((char *)text, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
		char *names = strchr(l, ':'), *path = names ? strchr(names + 1, ':') : NULL;

		if (!path)
			continue;
		*path++ = 0;
		if (*controller ? !listed(names + 1, controller) : names[1] != 0)
			continue;
		/* "/../x" is outside of our cgroup namespace */
		return path[0] == '/' && path[1] && !strstr(path, "/..") &&
		       (size_t)snprintf(out, len, "%s", path) < len;
	}
	return false;
}
