/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The source of a bind mount may be a symbolic link: /etc/localtime, or docker-init on Debian. runc
 * follows the link when it creates the container. criu does not follow it in a restore, and fails.
 * So before a restore, links in the bundle's config.json are replaced by their targets.
 */
#include <fcntl.h>
#include <string.h>
#include "runc.h"

static bool resolve(struct json_object *mount)
{
	const char *type = zns_json_str(mount, "type"), *from = zns_json_str(mount, "source");
	char real[PATH_MAX];

	if (!type || strcmp(type, "bind") || !from || !realpath(from, real) || !strcmp(real, from))
		return false;
	json_object_object_add(mount, "source", json_object_new_string(real));
	return true;
}

int links_resolve(const char *bundle, struct zns_err *err)
{
	struct json_object *spec, *mounts;
	char path[PATH_MAX];
	const char *text;
	bool changed = false;
	int ret;

	if ((size_t)snprintf(path, sizeof(path), "%s/config.json", bundle) >= sizeof(path))
		return zns_fail(err, -ENAMETOOLONG, "%.200s: the path is too long", bundle);
	ret = zns_json_read(path, &spec, err);
	if (ret)
		return ret;
	mounts = zns_json_get(spec, "mounts");
	for (size_t i = 0; i < zns_json_len(mounts); i++)
		changed |= resolve(json_object_array_get_idx(mounts, i));
	if (changed) {
		text = json_object_to_json_string_ext(spec, JSON_C_TO_STRING_PLAIN |
								    JSON_C_TO_STRING_NOSLASHESCAPE);
		ret = zns_replace_file(AT_FDCWD, path, text, strlen(text), 0600);
		if (ret)
			zns_fail_sys(err, ret, "cannot write %s", path);
	}
	json_object_put(spec);
	return ret;
}
