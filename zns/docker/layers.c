/* SPDX-License-Identifier: GPL-2.0-only */
/* The overlay that a container's root is: the directory that it writes to, and the layers of its
 * image. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "docker.h"

/* The options of the overlay that is mounted at @root. NULL: it is none. */
static int overlay_of(const char *root, char **options)
{
	cleanup_file FILE *f = fopen("/proc/self/mountinfo", "re");
	cleanup_free char *line = NULL;
	char *at, *type;
	size_t room = 0;

	*options = NULL;
	if (!f)
		return -errno;
	while (getline(&line, &room, f) > 0) {
		/* ID PARENT MAJOR:MINOR ROOT POINT OPTIONS … - TYPE SOURCE OPTIONS */
		at = line;
		for (int i = 0; at && i < 4; i++)
			at = strchr(at + (i > 0), ' ');
		type = at ? strstr(at, " - ") : NULL;
		if (!type || strncmp(at + 1, root, strlen(root)) || at[1 + strlen(root)] != ' ')
			continue;
		free(*options);
		*options = NULL; /* a later mount covers it */
		if (strncmp(type + 3, "overlay ", 8) || !(at = strrchr(type, ' ')))
			continue;
		at[strcspn(at, "\n")] = 0;
		*options = strdup(at + 1);
		if (!*options)
			return -ENOMEM;
	}
	return 0;
}

/* -EINVAL: the path is too long, or the kernel has escaped a character of it. */
static int upper_in(const char *options, char *out, size_t len)
{
	const char *at = options ? strstr(options, "upperdir=") : NULL;
	size_t n;

	*out = 0;
	if (!at)
		return 0;
	at += strlen("upperdir=");
	n = strcspn(at, ",");
	if (n >= len || memchr(at, '\\', n))
		return -EINVAL;
	snprintf(out, len, "%.*s", (int)n, at);
	return 0;
}

int docker_upper(const char *root, char *out, size_t len)
{
	cleanup_free char *options = NULL;
	int ret = overlay_of(root, &options), in = upper_in(options, out, len);

	return ret ? ret : in;
}

/* A path is used again, for other files, after the engine's directory was made anew. The number of
 * an inode is used again, too, but not with the same time of birth. */
static int add_layer(struct json_object *to, const char *base, const char *path)
{
	char all[2 * PATH_MAX], text[2 * PATH_MAX + 64];
	struct statx st;

	snprintf(all, sizeof(all), "%s%s%s", *path == '/' ? "" : base, *path == '/' ? "" : "/",
		 path);
	if (strchr(path, '\\') || statx(AT_FDCWD, all, 0, STATX_INO | STATX_BTIME, &st))
		return -EINVAL;
	if (!(st.stx_mask & STATX_BTIME))
		memset(&st.stx_btime, 0, sizeof(st.stx_btime));
	snprintf(text, sizeof(text), "%s %llu %lld.%09u", all, (unsigned long long)st.stx_ino,
		 (long long)st.stx_btime.tv_sec, st.stx_btime.tv_nsec);
	return json_object_array_add(to, json_object_new_string(text)) ? -ENOMEM : 0;
}

struct json_object *docker_layers(struct json_object *spec, const char *bundle)
{
	const char *root = zns_json_str(zns_json_get(spec, "root"), "path");
	cleanup_free char *options = NULL;
	char path[2 * PATH_MAX], top[PATH_MAX] = "", base[PATH_MAX], *save, *one, *end;
	struct json_object *all = json_object_new_array();
	int ret = -EINVAL;

	if (root && (*root == '/' || realpath(bundle, top))) {
		snprintf(path, sizeof(path), "%s%s%s", top, *root == '/' ? "" : "/", root);
		ret = overlay_of(path, &options);
	}
	/* containerd shortens a long list: its paths then begin where the upper directory's parent
	 * is */
	if (!ret)
		ret = upper_in(options, base, sizeof(base));
	for (int i = 0; !ret && i < 2 && (end = strrchr(base, '/')); i++)
		*end = 0;
	for (one = options ? strtok_r(options, ",", &save) : NULL; !ret && one;
	     one = strtok_r(NULL, ",", &save)) {
		char *dirs = strchr(one, '='), *next;

		if (strncmp(one, "lower", 5) || !dirs)
			continue;
		for (dirs++; !ret && (next = strsep(&dirs, ":"));)
			ret = *next ? add_layer(all, base, next) : 0;
	}
	if (!ret && zns_json_len(all))
		return all;
	json_object_put(all);
	return NULL;
}
