/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * File systems that read past the page cache without O_DIRECT: they may let a device or another
 * process write to the reader's pages, past page tables and protection. Whether they do so for a
 * file only they know (FUSE's FOPEN_DIRECT_IO, cache modes of 9p and CIFS), so each file on one may
 * be such a file. Descriptors tell the number of their mount. It stands in the process's list of
 * mounts or, where the file was opened outside and given to it, in ours.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "direct.h"

#define LIST_MAX (16U << 20) /* bytes */

static bool is_type(const char *type, size_t len)
{
	static const char *const past[] = { "fuse", "fuseblk", "virtiofs", "9p", "cifs", "smb3" };

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(past); i++)
		if (len == strlen(past[i]) && !memcmp(type, past[i], len))
			return true;
	return len > 5 && (!memcmp(type, "fuse.", 5) || (len > 8 && !memcmp(type, "fuseblk.", 8)));
}

/* "36 35 98:0 /root /where rw,noatime master:1 - type device options" */
static bool is_past(const char *line, struct mount_ids *ids)
{
	const long id = strtol(line, NULL, 10);
	const char *type;

	for (unsigned int i = 0; i < ids->nr; i++) {
		if (ids->id[i] != id)
			continue;
		ids->id[i] = ids->id[--ids->nr]; /* found */
		type = strstr(line, " - ");
		return !type || is_type(type + 3, strcspn(type + 3, " "));
	}
	return false;
}

static bool any_past(const char *path, struct mount_ids *ids)
{
	cleanup_free uint8_t *text = NULL;
	bool past = false;
	size_t len;

	if (zns_read_file(AT_FDCWD, path, LIST_MAX, &text, &len))
		return true;
	for (char *line = (char *)text, *end; !past && ids->nr && *line; line = end) {
		end = strchrnul(line, '\n');
		if (*end)
			*end++ = '\0';
		past = is_past(line, ids);
	}
	return past;
}

bool mounts_past_cache(pid_t pid, struct mount_ids *ids)
{
	char path[40];

	snprintf(path, sizeof(path), "/proc/%d/mountinfo", pid);
	return ids->nr &&
	       (any_past(path, ids) || (ids->nr && any_past("/proc/self/mountinfo", ids)));
}
