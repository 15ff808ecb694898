/* SPDX-License-Identifier: GPL-2.0-only */
/* Docker's daemon and its containers, as `znsctl docker` sees them */
#include <string.h>
#include "docker_cmd.h"

int docker_daemon_open(struct docker_daemon *d, const char *host, struct zns_err *err)
{
	const char *s;
	int ret;

	memset(d, 0, sizeof(*d));
	ret = docker_api_init(&d->api, host, err);
	if (!ret)
		ret = docker_api_call(&d->api, "GET", "/info", NULL, &d->info, err);
	if (ret)
		return ret;
	s = zns_json_str(d->info, "DockerRootDir");
	if (!s || *s != '/' || strlen(s) >= sizeof(d->root))
		return zns_fail(err, -EPROTO, "Docker's daemon does not say where its data are");
	strcpy(d->root, s);
	s = zns_json_str(d->info, "ServerVersion");
	snprintf(d->version, sizeof(d->version), "%s", s ? s : "unknown");
	d->experimental = json_object_get_boolean(zns_json_get(d->info, "ExperimentalBuild"));
	return 0;
}

void docker_daemon_close(struct docker_daemon *d)
{
	json_object_put(d->info);
	d->info = NULL;
}

bool docker_daemon_is_ours(const struct docker_daemon *d, const char *runtime)
{
	return docker_runtime_is_ours(
		zns_json_get(zns_json_get(d->info, "Runtimes"), runtime ? runtime : ""));
}

bool docker_runtime_is_ours(struct json_object *runtime)
{
	const char *path = zns_json_str(runtime, "path"), *base;

	base = path ? strrchr(path, '/') : NULL;
	return base && !strcmp(base + 1, "zns-runc");
}

struct json_object *docker_limits(const char *version)
{
	struct json_object *list = json_object_new_array();
	unsigned major = 0, minor = 0;

	if (sscanf(version, "%u.%u", &major, &minor) < 1)
		json_object_array_add(
			list,
			json_object_new_string(
				"the daemon's version is not known: nothing can be said about it"));
	if (major >= 28)
		json_object_array_add(
			list, json_object_new_string(
				      "docker start --checkpoint of Docker 28 and later cannot "
				      "restore a container that has a network namespace of its "
				      "own (moby#50750): use znsctl docker resume"));
	if (major == 25)
		json_object_array_add(
			list,
			json_object_new_string(
				"early Docker 25.0 cannot restore at all (moby#47456): take a later one"));
	if (major && major < 24)
		json_object_array_add(
			list,
			json_object_new_string(
				"Docker before 24 has no --annotation: use --label zns.qos=N or -e ZNS_QOS=N"));
	json_object_array_add(
		list,
		json_object_new_string(
			"docker start --checkpoint-dir is refused by every version: use znsctl docker clone"));
	return list;
}

bool docker_cannot_restore(const struct docker_daemon *d, const struct docker_target *t)
{
	const char *net = zns_json_str(zns_json_get(t->json, "HostConfig"), "NetworkMode");
	unsigned major = 0;

	return sscanf(d->version, "%u", &major) == 1 && major >= 28 && net && strcmp(net, "host") &&
	       strncmp(net, "container:", 10);
}

int docker_start_from(const struct docker_daemon *d, const struct docker_target *t, const char *id,
		      const char *name, struct zns_err *err)
{
	struct docker_container c = { .kind = "docker" };
	char path[1024], what[256];
	int ret;

	if (!docker_cannot_restore(d, t)) {
		snprintf(path, sizeof(path), "/containers/%s/start?checkpoint=%s", id, name);
		return docker_api_call(&d->api, "POST", path, NULL, NULL, err);
	}
	/*
	 * Docker cannot restore, so start it in the ordinary way: zns-runc then resumes the
	 * container.
	 */
	snprintf(c.root, sizeof(c.root), "%s", d->root);
	snprintf(c.id, sizeof(c.id), "%s", id);
	ret = docker_resume_ask(&c, name, what, sizeof(what), err);
	if (ret)
		return ret;
	snprintf(path, sizeof(path), "/containers/%s/start", id);
	ret = docker_api_call(&d->api, "POST", path, NULL, NULL, err);
	if (ret)
		docker_resume_refused(&c);
	return ret;
}

int docker_target_open(const struct docker_daemon *d, const char *name, struct docker_target *t,
		       struct zns_err *err)
{
	char path[512];
	int ret;

	memset(t, 0, sizeof(*t));
	if (!docker_good_name(name))
		return zns_fail(err, -EINVAL, "\"%.60s\" cannot be a container's name or id", name);
	snprintf(path, sizeof(path), "/containers/%s/json", name);
	ret = docker_api_call(&d->api, "GET", path, NULL, &t->json, err);
	if (ret)
		return ret;
	t->running = json_object_get_boolean(
		zns_json_get(zns_json_get(t->json, "State"), "Running"));
	t->runtime = zns_json_str(zns_json_get(t->json, "HostConfig"), "Runtime");
	return docker_container_read_root(
		d->root, zns_json_str(t->json, "Id") ? zns_json_str(t->json, "Id") : "", &t->c,
		err);
}

void docker_target_close(struct docker_target *t)
{
	docker_container_fini(&t->c);
	json_object_put(t->json);
	memset(t, 0, sizeof(*t));
}

int docker_open(struct docker_daemon *d, const char *host, const char *name,
		struct docker_target *t, struct zns_err *err)
{
	int ret = docker_daemon_open(d, host, err);

	return ret ? ret : docker_target_open(d, name, t, err);
}

void docker_close(struct docker_daemon *d, struct docker_target *t)
{
	docker_target_close(t);
	docker_daemon_close(d);
}

bool docker_good_name(const char *name)
{
	static const char first[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
	size_t n = strlen(name), i;

	if (n < 2 || n > DOCKER_NAME_MAX || !strchr(first, *name))
		return false;
	for (i = 1; i < n; i++)
		if (!strchr(first, name[i]) && !strchr("_.-", name[i]))
			return false;
	return true;
}
