/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shows the reason of an error to the user of `docker`. After a failed checkpoint containerd shows
 * the first line of the runtime's output, after a failed create or restore the last error in the
 * runtime's log. The real reason is in criu's log, and this copies it to both places.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "runc.h"

#define LOG_TAIL MIB(1)

/*
 * Copies one line without control characters, since the container's creator may have chosen parts
 * of it.
 */
static void tame(const char *line, char *out, size_t len)
{
	size_t n = 0;
	int w;

	for (; *line && n + 5 < len; line += w ? w : 1) {
		w = zns_printable(line);
		if (w)
			memcpy(out + n, line, (size_t)w);
		else
			out[n] = '?';
		n += w ? (size_t)w : 1;
	}
	out[n] = 0;
}

void report_line(const struct call *c, const char *text)
{
	struct json_object *j;
	cleanup_close int fd = -1;
	char when[32], line[ZNS_ERR_MAX + 128];

	tame(text, line, sizeof(line));
	if (!c->log) {
		fprintf(stderr, "%s\n", line);
		return;
	}
	fd = open(c->log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0)
		return;
	zns_format_time(zns_now_ns(), when, sizeof(when));
	if (!c->log_json) {
		for (char *p = line; *p; p++)
			if (*p == '"' || *p == '\\')
				*p = '\'';
		dprintf(fd, "time=\"%s\" level=error msg=\"%s\"\n", when, line);
		return;
	}
	j = json_object_new_object();
	json_object_object_add(j, "level", json_object_new_string("error"));
	json_object_object_add(j, "msg", json_object_new_string(line));
	json_object_object_add(j, "time", json_object_new_string(when));
	dprintf(fd, "%s\n",
		json_object_to_json_string_ext(j, JSON_C_TO_STRING_PLAIN |
							  JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(j);
}

/* For Docker and CRI: replaces the name of criu's option in a message by that of our label. */
static void add_label(const char *text, char *out, size_t len)
{
	size_t n = strlen(out);

	for (const char *const *flag = docker_flags; *flag; flag++) {
		const char *at = strstr(text, *flag);

		if (at && at >= text + 2 && at[-1] == '-' && at[-2] == '-' &&
		    !strncmp(out, "criu: ", 6)) {
			snprintf(out + n, len - n,
				 " (for a container: label or annotation zns.criu=%s)", *flag);
			return;
		}
	}
}

/* Takes "zns: text" out of "(00.01) Error (criu/adapter/zns-img.c:112): zns: text" and returns
 * "text"; of criu's own errors "criu: text". */
static bool error_line(const char *line, char *out, size_t len, bool *ours)
{
	const char *p = strstr(line, "Error ("), *text;

	if (!p)
		return false;
	text = strstr(p, "): ");
	if (!text)
		return false;
	text += 3;
	/*
	 * skip these: the first one appears in any user namespace, the second is only criu's last
	 * line
	 */
	if (!strncmp(text, "rlimit: Can't setup", 19) || strstr(text, "FAILED."))
		return false;
	*ours = !strncmp(text, "zns: ", 5);
	snprintf(out, len, "%s%s", *ours ? "" : "criu: ", text);
	add_label(text, out, len);
	return true;
}

int report_find(const struct call *c, const char *log_name, const struct timespec *since, char *out,
		size_t len)
{
	const char *dir = c->work_path ? c->work_path : c->image_path;
	cleanup_free char *buf = NULL;
	cleanup_close int fd = -1;
	char path[PATH_MAX], found[512], *line, *next;
	bool ours = false, have = false;
	struct stat st;
	size_t n;

	if (!dir || (size_t)snprintf(path, sizeof(path), "%s/%s", dir, log_name) >= sizeof(path))
		return -ENOENT;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
	if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_mtim.tv_sec < since->tv_sec)
		return -ENOENT;
	n = zns_min((size_t)st.st_size, (size_t)LOG_TAIL);
	buf = malloc(n + 1);
	if (!buf || zns_pread_all(fd, buf, n, st.st_size - (off_t)n))
		return -ENOENT;
	buf[n] = 0;
	/*
	 * Choose the line to report: the first error has caused the others, and our errors say more
	 * than criu's.
	 */
	for (line = buf; line && !ours; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = 0;
		if (error_line(line, found, sizeof(found), &ours) && (ours || !have)) {
			snprintf(out, len, "%s", found);
			have = true;
		}
	}
	return have ? 0 : -ENOENT;
}
