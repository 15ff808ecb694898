// SPDX-License-Identifier: GPL-2.0-only
/* Docker's daemon and its containers, as `znsctl docker` sees them; docker status */
#include <string.h>
#include "docker.h"

enum { OPT_CONFIG = OPT_OWN, OPT_NAME };

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
	s = docker_json_str(d->info, "DockerRootDir");
	if (!s || *s != '/' || strlen(s) >= sizeof(d->root))
		return zns_fail(err, -EPROTO, "Docker's daemon does not say where its data are");
	strcpy(d->root, s);
	s = docker_json_str(d->info, "ServerVersion");
	snprintf(d->version, sizeof(d->version), "%s", s ? s : "unknown");
	d->experimental = json_object_get_boolean(docker_json_get(d->info, "ExperimentalBuild"));
	return 0;
}

void docker_daemon_close(struct docker_daemon *d)
{
	json_object_put(d->info);
	d->info = NULL;
}

bool docker_daemon_is_ours(const struct docker_daemon *d, const char *runtime)
{
	struct json_object *r = docker_json_get(docker_json_get(d->info, "Runtimes"), runtime ? runtime : "");
	const char *path = docker_json_str(r, "path"), *base;

	base = path ? strrchr(path, '/') : NULL;
	return base && !strcmp(base + 1, "zns-runc");
}

struct json_object *docker_limits(const char *version)
{
	struct json_object *list = json_object_new_array();
	unsigned major = 0, minor = 0;

	if (sscanf(version, "%u.%u", &major, &minor) < 1)
		json_object_array_add(list, json_object_new_string(
						    "the daemon's version is not known: nothing can be said about it"));
	if (major >= 28)
		json_object_array_add(list,
				      json_object_new_string("Docker 28 and later cannot restore a container that has "
							     "a network namespace of its own (moby#50750): run it with "
							     "--network host or --network container:OTHER"));
	if (major == 25)
		json_object_array_add(list, json_object_new_string(
			"early Docker 25.0 cannot restore at all (moby#47456): take a later one"));
	if (major && major < 24)
		json_object_array_add(list, json_object_new_string(
			"Docker before 24 has no --annotation: use --label zns.qos=N or -e ZNS_QOS=N"));
	json_object_array_add(
		list, json_object_new_string("docker run -t: containers with a terminal cannot be restored by Docker"));
	json_object_array_add(list, json_object_new_string(
		"docker start --checkpoint-dir is refused by every version: use znsctl docker clone"));
	return list;
}

bool docker_cannot_restore(const struct docker_daemon *d, const struct docker_target *t)
{
	const char *net = docker_json_str(docker_json_get(t->json, "HostConfig"), "NetworkMode");
	unsigned major = 0;

	return sscanf(d->version, "%u", &major) == 1 && major >= 28 && net && strcmp(net, "host") &&
	       strncmp(net, "container:", 10);
}

int docker_target_open(const struct docker_daemon *d, const char *name, struct docker_target *t, struct zns_err *err)
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
	t->running = json_object_get_boolean(docker_json_get(docker_json_get(t->json, "State"), "Running"));
	t->runtime = docker_json_str(docker_json_get(t->json, "HostConfig"), "Runtime");
	return docker_container_read_root(d->root, docker_json_str(t->json, "Id") ? docker_json_str(t->json, "Id") : "",
					  &t->c, err);
}

void docker_target_close(struct docker_target *t)
{
	docker_container_fini(&t->c);
	json_object_put(t->json);
	memset(t, 0, sizeof(*t));
}

bool docker_good_name(const char *name)
{
	static const char first[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
	size_t n = strlen(name), i;

	if (n < 2 || n > DOCKER_NAME_MAX || !strchr(first, *name))
		return false;
	for (i = 1; i < n; i++)
		if (!strchr(first, name[i]) && !strchr("_.-", name[i]))
			return false;
	return true;
}

static void add(struct json_object *j, bool json, const char *key, const char *label, const char *value)
{
	if (json)
		json_object_object_add(j, key, value ? json_object_new_string(value) : NULL);
	else
		printf("%-14s %s\n", label, value ? value : "-");
}

int docker_status(const struct ctl_cmd *cmd, int argc, char **argv)
{
	static const struct option opts[] = {
		{ "config", required_argument, NULL, OPT_CONFIG }, { "name", required_argument, NULL, OPT_NAME },
		CTL_DOCKER_HOST, CTL_COMMON_OPTIONS, CTL_END_OPTIONS,
	};
	const char *config = "/etc/docker/daemon.json", *name = "zns", *host = NULL, *path;
	struct json_object *o = NULL, *j = json_object_new_object(), *limits, *rt;
	struct zns_err err = ZNS_ERR_INIT, no_daemon = ZNS_ERR_INIT, no_device = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	struct zns_registered reg;
	struct docker_daemon d = { 0 };
	bool registered, daemon, known, ready;
	size_t i;
	int c, ret;

	while ((c = ctl_getopt(cmd, argc, argv, opts, &args)) >= 0) {
		if (c == OPT_CONFIG)
			config = optarg;
		else if (c == OPT_NAME)
			name = optarg;
		else
			host = optarg;
	}
	if (c == -2 || args.argc) {
		json_object_put(j);
		return c == -2 ? args.code : ctl_usage(cmd, "no argument is taken");
	}
	ret = docker_json_read(config, &o, &err);
	if (ret && ret != -ENOENT) {
		json_object_put(j);
		return ctl_fail(cmd, &err);
	}
	rt = docker_json_get(docker_json_get(o, "runtimes"), name);
	path = docker_json_str(rt, "path");
	registered = path && strlen(path) >= 9 && !strcmp(path + strlen(path) - 8, "zns-runc");
	daemon = !docker_daemon_open(&d, host, &no_daemon);
	known = daemon && docker_daemon_is_ours(&d, name);
	ready = !zns_resolve_device(NULL, &reg, &no_device);
	add(j, args.json, "config", "config", config);
	add(j, args.json, "runtime", "runtime",
	    registered	? path
	    : args.json ? NULL
			: "not registered: znsctl docker install");
	if (args.json)
		json_object_object_add(j, "registered", json_object_new_boolean(registered));
	add(j, args.json, "daemon_version", "daemon", daemon ? d.version : args.json ? NULL : no_daemon.msg);
	if (daemon)
		add(j, args.json, "root", "data root", d.root);
	if (args.json) {
		json_object_object_add(j, "daemon_knows_runtime", json_object_new_boolean(known));
		json_object_object_add(j, "experimental", json_object_new_boolean(d.experimental));
	} else if (daemon) {
		add(j, false, "", "", known ? "it knows the runtime" : "it does not know the runtime yet: restart it");
		if (!d.experimental)
			add(j, false, "", "",
			    "it is not experimental, so it takes no checkpoints: restart it after install");
	}
	add(j, args.json, "device", "device", ready ? reg.path : args.json ? NULL : no_device.msg);
	limits = daemon ? docker_limits(d.version) : json_object_new_array();
	for (i = 0; !args.json && i < json_object_array_length(limits); i++)
		printf("%-14s %s\n", i ? "" : "limits", json_object_get_string(json_object_array_get_idx(limits, i)));
	json_object_object_add(j, "limits", limits);
	if (args.json)
		ctl_print_json(j);
	else
		json_object_put(j);
	json_object_put(o);
	docker_daemon_close(&d);
	return registered && known && d.experimental && ready ? CTL_OK : CTL_FAILED;
}
