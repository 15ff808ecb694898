/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Lists containers that should have their memory on zones but run without: zns-runc has noted the
 * reason (zns/docker/extend.c).
 */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include "memory.h"

#define SUFFIX ".memory"
#define NOTE_MAX 4096

/*
 * Reads a note: the container's name, and a line with the reason. The container may have chosen
 * parts of both, so they are untrusted.
 */
static bool read_note(int dir, const char *file, char *text, char **line)
{
	cleanup_free uint8_t *got = NULL;
	size_t len;

	if (zns_read_file(dir, file, NOTE_MAX, &got, &len))
		return false;
	snprintf(text, NOTE_MAX, "%s", (char *)got);
	*line = strchr(text, '\n');
	if (!*line)
		return false;
	*(*line)++ = 0;
	(*line)[strcspn(*line, "\n")] = 0;
	return true;
}

void memory_notes(struct json_object *list)
{
	char path[4096], text[NOTE_MAX], name[CTL_NAME], *line;
	struct dirent *e;
	DIR *d;

	if ((size_t)snprintf(path, sizeof(path), "%s/docker", zns_run_dir()) >= sizeof(path))
		return;
	d = opendir(path);
	while (d && (e = readdir(d))) {
		size_t len = strlen(e->d_name);

		if (len <= strlen(SUFFIX) || strcmp(e->d_name + len - strlen(SUFFIX), SUFFIX) ||
		    !read_note(dirfd(d), e->d_name, text, &line))
			continue;
		if (list)
			json_object_array_add(list, ctl_obj(J("name", text), J("reason", line)));
		else
			printf("%-20s  not attached     %s\n", ctl_name(text, name, sizeof(name)),
			       ctl_text(line));
	}
	if (d)
		closedir(d);
}
