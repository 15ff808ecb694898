/* SPDX-License-Identifier: GPL-2.0-only */
/* Reads what runc and crun store about a running container. Only root can write their files. */
#include <fcntl.h>
#include <string.h>
#include "docker.h"

/* Reads crun's state: <root>/ID/status. -ENOENT: crun has no such container. */
static int of_crun(const char *root, const char *id, struct docker_state *s, struct zns_err *err)
{
	struct json_object *state;
	char path[PATH_MAX];
	const char *bundle;
	int ret;

	if ((size_t)snprintf(path, sizeof(path), "%s/%s/status", root ? root : "/run/crun", id) >=
	    sizeof(path))
		return -ENAMETOOLONG;
	if (access(path, F_OK))
		return -ENOENT;
	ret = zns_json_read(path, &state, err);
	if (ret)
		return ret;
	s->init_pid = json_object_get_int(zns_json_get(state, "pid"));
	bundle = zns_json_str(state, "bundle");
	if (bundle)
		snprintf(s->bundle, sizeof(s->bundle), "%s", bundle);
	else
		ret = zns_fail(err, -EBADMSG, "%s does not name the bundle", path);
	json_object_put(state);
	return ret;
}

static bool file_says(const char *dir, const char *name, const char *line)
{
	cleanup_free uint8_t *text = NULL;
	char path[PATH_MAX];
	const char *at;
	size_t len;

	if (!dir || (size_t)snprintf(path, sizeof(path), "%s/%s", dir, name) >= sizeof(path) ||
	    zns_read_file(AT_FDCWD, path, 4096, &text, &len))
		return false;
	at = strstr((char *)text, line);
	return at && (at == (char *)text || at[-1] == '\n');
}

bool docker_cgroup_frozen(struct json_object *paths)
{
	/*
	 * cgroups version 1 have one directory for each controller; version 2 has a single one,
	 * with an empty name
	 */
	const char *one = zns_json_str(paths, "freezer"), *two = zns_json_str(paths, "");

	return file_says(one, "freezer.state", "FR") /* matches FROZEN and FREEZING */ ||
	       file_says(two, "cgroup.freeze", "1") || file_says(two, "cgroup.events", "frozen 1");
}

int docker_state_read(const char *root, const char *id, struct docker_state *s, struct zns_err *err)
{
	struct json_object *state, *labels;
	char path[PATH_MAX];
	const char *label;
	int ret;

	memset(s, 0, sizeof(*s));
	ret = of_crun(root, id, s, err);
	if (ret != -ENOENT)
		return ret;
	if ((size_t)snprintf(path, sizeof(path), "%s/%s/state.json", root ? root : "/run/runc",
			     id) >= sizeof(path))
		return zns_fail(err, -ENAMETOOLONG, "%.200s: the path is too long", root);
	ret = zns_json_read(path, &state, err);
	if (ret)
		return ret;
	s->init_pid = json_object_get_int(zns_json_get(state, "init_process_pid"));
	s->init_start = json_object_get_uint64(zns_json_get(state, "init_process_start"));
	s->frozen = docker_cgroup_frozen(zns_json_get(state, "cgroup_paths"));
	labels = zns_json_get(zns_json_get(state, "config"), "labels");
	ret = zns_fail(err, -ENOENT, "%s does not name the bundle", path);
	for (size_t i = 0; i < zns_json_len(labels); i++) {
		label = json_object_get_string(json_object_array_get_idx(labels, i));
		if (label && !strncmp(label, "bundle=", 7)) {
			snprintf(s->bundle, sizeof(s->bundle), "%s", label + 7);
			err->code = ret = 0;
		}
	}
	json_object_put(state);
	return ret;
}
