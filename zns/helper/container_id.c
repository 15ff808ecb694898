/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Finds the container's id in the cgroups of a task. */
#include <ctype.h>
#include <string.h>
#include "helper.h"

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
				id = p; /* the innermost of nested containers stands last */
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
