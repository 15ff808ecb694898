/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Finds the first process of a running container: by asking Docker's daemon, or in the runtime's
 * state.
 */
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include "docker.h"

static int of_docker(const char *name, struct docker_running *r, struct zns_err *err)
{
	struct json_object *o = NULL, *state;
	struct docker_api api;
	const char *full;
	char path[512];
	int ret = docker_api_init(&api, NULL, err);

	if (ret)
		return ret;
	snprintf(path, sizeof(path), "/containers/%s/json", name);
	ret = docker_api_call(&api, "GET", path, NULL, &o, err);
	if (ret)
		return ret;
	state = zns_json_get(o, "State");
	r->pid = json_object_get_int(zns_json_get(state, "Pid"));
	full = zns_json_str(o, "Name");
	snprintf(r->name, sizeof(r->name), "%s", full && *full ? full + (*full == '/') : name);
	if (!json_object_get_boolean(zns_json_get(state, "Running")) || r->pid <= 1)
		ret = zns_fail(err, -ESRCH, "container %s does not run", name);
	json_object_put(o);
	return ret;
}

/*
 * Is @name this container of Podman: its name, its id, or at least the first 12 digits of the id?
 */
static bool is_named(const struct docker_state *s, const char *id, const char *name)
{
	const struct docker_runtime rt = { .docker_root = NULL };
	struct zns_err err = ZNS_ERR_INIT;
	struct docker_container c;
	bool found = false;

	if (!strncmp(id, name, strlen(name)) && (strlen(name) >= 12 || !id[strlen(name)]))
		return true;
	if (docker_container_read(&rt, s->bundle, id, &c, &err))
		return false;
	docker_container_podman(&c, s->init_pid);
	found = !strcmp(c.name, name) ||
		(!strncmp(c.name, "podman/", 7) && !strcmp(c.name + 7, name));
	docker_container_fini(&c);
	return found;
}

static bool of_runtime(const char *root, const char *name, struct docker_running *r)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct docker_state s;
	bool found = false;
	struct dirent *e;
	DIR *d = opendir(root);

	while (d && !found && (e = readdir(d))) {
		if (!docker_good_id(e->d_name) || docker_state_read(root, e->d_name, &s, &err) ||
		    s.init_pid <= 1 || !is_named(&s, e->d_name, name))
			continue;
		r->pid = s.init_pid;
		found = true;
	}
	if (d)
		closedir(d);
	return found;
}

int docker_running(const char *name, struct docker_running *r, struct zns_err *err)
{
	static const char *const roots[] = { "/run/crun", "/run/runc" };
	struct zns_err docker = ZNS_ERR_INIT;
	int ret;

	memset(r, 0, sizeof(*r));
	if (!docker_good_word(name))
		return zns_fail(err, -EINVAL, "\"%.60s\" cannot be a container's name or id", name);
	ret = of_docker(name, r, &docker);
	if (!ret)
		return 0;
	if (ret == -ESRCH) {
		*err = docker;
		return ret;
	}
	snprintf(r->name, sizeof(r->name), "%s", name);
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(roots); i++)
		if (of_runtime(roots[i], name, r))
			return 0;
	return zns_fail(err, -ENOENT, "no container %s runs here, neither Docker's nor Podman's",
			name);
}
