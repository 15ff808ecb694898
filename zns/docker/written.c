/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A container's memory fits its files only as they were at the dump. Times of change (ctime) tell
 * whether somebody has written since: nobody but the kernel sets them.
 */
#include <fts.h>
#include <string.h>
#include <sys/stat.h>
#include "docker.h"

#define FILES_MAX 1000000 /* looked at */

struct look {
	int64_t since_ns;
	size_t left;
	struct zns_err *err;
};

static int by_none(const FTSENT **a, const FTSENT **b)
{
	return 0;
}

static int one(struct look *l, const FTSENT *e)
{
	char path[200];

	if (e->fts_info == FTS_DP)
		return 0;
	if (e->fts_info == FTS_ERR || e->fts_info == FTS_DNR || e->fts_info == FTS_NS)
		return zns_fail_sys(l->err, -e->fts_errno, "%s",
				    zns_escape(e->fts_path, path, sizeof(path)));
	/* sockets and devices have no contents */
	if (!S_ISREG(e->fts_statp->st_mode) && !S_ISDIR(e->fts_statp->st_mode))
		return 0;
	if (e->fts_statp->st_ctim.tv_sec * 1000000000ll + e->fts_statp->st_ctim.tv_nsec >
	    l->since_ns)
		return zns_fail(l->err, -EEXIST, "%s was written after its checkpoint",
				zns_escape(e->fts_path, path, sizeof(path)));
	return l->left-- ?
		       0 :
		       zns_fail(l->err, -E2BIG, "it has more than %u files to look at", FILES_MAX);
}

static int tree(struct look *l, const char *dir)
{
	char *const paths[] = { (char *)(uintptr_t)dir, NULL };
	FTS *f = fts_open(paths, FTS_PHYSICAL | FTS_XDEV | FTS_NOCHDIR | FTS_COMFOLLOW, by_none);
	FTSENT *e;
	int ret = 0;

	if (!f)
		return zns_fail_sys(l->err, -errno, "%s", dir);
	while (!ret && (errno = 0, e = fts_read(f)))
		ret = one(l, e);
	if (!ret && errno)
		ret = zns_fail_sys(l->err, -errno, "%s", dir);
	fts_close(f);
	return ret;
}

/* The directory that an overlay mounted at @root writes to; "": @root is no overlay. */
static int upper_of(const char *root, char *out, size_t len)
{
	cleanup_file FILE *f = fopen("/proc/self/mountinfo", "re");
	cleanup_free char *line = NULL;
	char *at, *type, *options;
	size_t room = 0, n;

	*out = 0;
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
		*out = 0; /* a later mount covers it */
		options = strncmp(type + 3, "overlay ", 8) ? NULL : strstr(type, "upperdir=");
		if (!options)
			continue;
		options += strlen("upperdir=");
		n = strcspn(options, ",\n ");
		if (n >= len || memchr(options, '\\', n))
			return -EINVAL;
		snprintf(out, len, "%.*s", (int)n, options);
	}
	return 0;
}

static bool is_writable(struct json_object *mount)
{
	struct json_object *all = zns_json_get(mount, "options");
	const char *type = zns_json_str(mount, "type"), *o;

	if (!type || strcmp(type, "bind"))
		return false;
	for (size_t i = 0;
	     json_object_is_type(all, json_type_array) && i < json_object_array_length(all); i++) {
		o = json_object_get_string(json_object_array_get_idx(all, i));
		if (o && !strcmp(o, "ro"))
			return false;
	}
	return true;
}

int docker_written_since(struct json_object *spec, const char *own, int64_t since_ns,
			 struct zns_err *err)
{
	const char *root = zns_json_str(zns_json_get(spec, "root"), "path"), *from;
	struct json_object *mounts = zns_json_get(spec, "mounts"), *m;
	struct look l = { .since_ns = since_ns, .left = FILES_MAX, .err = err };
	char upper[PATH_MAX];
	int ret;

	if (!root || *root != '/')
		return zns_fail(err, -EINVAL, "its config.json names no root");
	ret = upper_of(root, upper, sizeof(upper));
	if (ret)
		return zns_fail_sys(err, ret, "the mount at %s", root);
	ret = tree(&l, *upper ? upper : root);
	for (size_t i = 0; !ret && json_object_is_type(mounts, json_type_array) &&
			   i < json_object_array_length(mounts);
	     i++) {
		m = json_object_array_get_idx(mounts, i);
		from = zns_json_str(m, "source");
		if (!is_writable(m) || !from || *from != '/' ||
		    (!strncmp(from, own, strlen(own)) && from[strlen(own)] == '/'))
			continue;
		ret = tree(&l, from);
	}
	return ret;
}
