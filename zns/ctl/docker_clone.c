// SPDX-License-Identifier: GPL-2.0-only
/*
 * docker clone: a new container that begins at a checkpoint of another one. Docker has no way to say so, but the
 * checkpoint is a directory with a handle, and a copy of it in the new container's place is as good.
 */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "docker.h"

enum { OPT_IMAGE = OPT_OWN };

#define IMAGE_MAX MIB(4)	/* plain copies are at most 64 KiB, the handle 256 KiB */

static int copy_dir(const char *from, const char *to, struct zns_err *err)
{
	DIR *d = opendir(from);
	struct dirent *e;
	int dst, ret = 0;

	if (!d)
		return zns_fail_sys(err, -errno, "%s", from);
	dst = mkdir(to, 0700) ? -1 : open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dst < 0)
		ret = zns_fail_sys(err, -errno, "%s", to);
	while (!ret && (e = readdir(d))) {
		cleanup_free uint8_t *data = NULL;
		size_t len;

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		ret = zns_read_file(dirfd(d), e->d_name, IMAGE_MAX, &data, &len);
		if (!ret)
			ret = zns_replace_file(dst, e->d_name, data, len, 0600);
		if (ret)
			zns_fail_sys(err, ret, "copying %s/%s", from, e->d_name);
	}
	if (dst >= 0)
		close(dst);
	closedir(d);
	return ret;
}

/* Files that the container changed must be there for its processes: an image of it as it is now. */
static int image_of(const struct docker_daemon *d, const struct docker_target *t, const char *name, char *out,
		    size_t len, struct zns_err *err)
{
	struct json_object *changes = NULL, *o = NULL;
	char path[1024];
	const char *id;
	int ret;

	snprintf(path, sizeof(path), "/containers/%s/changes", t->c.id);
	ret = docker_api_call(&d->api, "GET", path, NULL, &changes, err);
	if (ret)
		return ret;
	if (!changes || !json_object_is_type(changes, json_type_array) || !json_object_array_length(changes)) {
		json_object_put(changes);
		id = docker_json_str(t->json, "Image");
		snprintf(out, len, "%s", id ? id : t->c.image);
		return 0;
	}
	json_object_put(changes);
	snprintf(path, sizeof(path), "/commit?container=%s&repo=zns-clone&tag=%s", t->c.id, name);
	ret = docker_api_call(&d->api, "POST", path, NULL, &o, err);
	if (ret)
		return ret;
	id = docker_json_str(o, "Id");
	snprintf(out, len, "%s", id ? id : "");
	json_object_put(o);
	return *out ? 0 : zns_fail(err, -EPROTO, "docker: the new image has no id");
}

/* POST /containers/create with what inspect says; the id of the new one. */
static int create(const struct docker_daemon *d, const struct docker_target *t, const char *image, const char *name,
		  char *id, size_t len, struct zns_err *err)
{
	struct json_object *body = NULL, *host = docker_json_get(t->json, "HostConfig"), *o = NULL, *copy = NULL;
	char path[512];
	const char *s;
	int ret;

	if (json_object_deep_copy(docker_json_get(t->json, "Config"), &body, NULL) ||
	    json_object_deep_copy(host, &copy, NULL)) {
		json_object_put(body);
		return zns_fail(err, -ENOMEM, "the container's description cannot be copied");
	}
	json_object_object_add(body, "Image", json_object_new_string(image));
	/* The host name is in the checkpoint; a port can be bound once. */
	json_object_object_del(copy, "PortBindings");
	json_object_object_add(copy, "ContainerIDFile", json_object_new_string(""));
	json_object_object_add(body, "HostConfig", copy);
	snprintf(path, sizeof(path), "/containers/create?name=%s", name);
	ret = docker_api_call(&d->api, "POST", path, body, &o, err);
	json_object_put(body);
	if (ret)
		return ret;
	s = docker_json_str(o, "Id");
	snprintf(id, len, "%s", s ? s : "");
	json_object_put(o);
	return *id ? 0 : zns_fail(err, -EPROTO, "docker: the new container has no id");
}

static int start_clone(const struct docker_daemon *d, const char *id, const struct docker_entry *e, struct zns_err *err)
{
	char path[PATH_MAX + 512];
	int ret;

	snprintf(path, sizeof(path), "%s/containers/%s/checkpoints", d->root, id);
	if (mkdir(path, 0700) && errno != EEXIST)
		return zns_fail_sys(err, -errno, "%s", path);
	snprintf(path, sizeof(path), "%s/containers/%s/checkpoints/%s", d->root, id, e->name);
	ret = copy_dir(e->dir, path, err);
	if (ret)
		return ret;
	/* So that its archive differs from the original's, which containerd may still hold. */
	strncat(path, "/descriptors.json", sizeof(path) - strlen(path) - 1);
	utimensat(AT_FDCWD, path, NULL, 0);
	snprintf(path, sizeof(path), "/containers/%s/start?checkpoint=%s", id, e->name);
	return docker_api_call(&d->api, "POST", path, NULL, NULL, err);
}

static int clone_it(const struct docker_daemon *d, const struct docker_target *t, const char *checkpoint,
		    const char *name, const char *image, char *id, size_t len, struct zns_err *err)
{
	cleanup_free struct docker_entry *list = NULL;
	struct zns_err ignored;
	char own[512], path[256];
	size_t nr, i;
	int ret;

	if (!docker_good_name(name))
		return zns_fail(err, -EINVAL, "\"%.60s\" cannot be a container's name", name);
	if (docker_cannot_restore(d, t))
		return zns_fail(err, -EOPNOTSUPP, DOCKER_CANNOT_RESTORE, d->version, t->c.name);
	ret = docker_entries(&t->c, &list, &nr, err);
	if (ret)
		return ret;
	for (i = 0; i < nr && strcmp(list[i].name, checkpoint); i++)
		;
	if (i == nr)
		return zns_fail(err, -ENOENT, "container %s has no checkpoint %s on zones", t->c.name, checkpoint);
	ret = docker_entry_check(&list[i], err);
	if (!ret && !image) {
		ret = image_of(d, t, name, own, sizeof(own), err);
		image = own;
	}
	if (!ret)
		ret = create(d, t, image, name, id, len, err);
	if (ret)
		return ret;
	ret = start_clone(d, id, &list[i], err);
	if (ret) {	/* nothing half-made stays */
		snprintf(path, sizeof(path), "/containers/%s?force=1", id);
		docker_api_call(&d->api, "DELETE", path, NULL, NULL, &ignored);
	}
	return ret;
}

int docker_clone(const struct ctl_cmd *cmd, int argc, char **argv)
{
	static const struct option opts[] = {
		{ "image", required_argument, NULL, OPT_IMAGE }, CTL_DOCKER_HOST, CTL_COMMON_OPTIONS, CTL_END_OPTIONS,
	};
	const char *host = NULL, *image = NULL;
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	struct docker_daemon d = { 0 };
	struct docker_target t = { 0 };
	struct json_object *j;
	char id[128];
	int c, ret;

	while ((c = ctl_getopt(cmd, argc, argv, opts, &args)) >= 0) {
		if (c == OPT_IMAGE)
			image = optarg;
		else
			host = optarg;
	}
	if (c == -2)
		return args.code;
	if (args.argc != 3)
		return ctl_usage(cmd, "a container, one of its checkpoints and the new container's name are wanted");
	ret = docker_daemon_open(&d, host, &err);
	if (!ret)
		ret = docker_target_open(&d, args.argv[0], &t, &err);
	if (!ret)
		ret = clone_it(&d, &t, args.argv[1], args.argv[2], image, id, sizeof(id), &err);
	if (!ret && args.json) {
		j = json_object_new_object();
		json_object_object_add(j, "container_id", json_object_new_string(id));
		json_object_object_add(j, "name", json_object_new_string(args.argv[2]));
		json_object_object_add(j, "from", json_object_new_string(t.c.name));
		ctl_print_json(j);
	} else if (!ret) {
		printf("%s (%.12s) runs from checkpoint %s of %s\n", args.argv[2], id, args.argv[1], t.c.name);
	}
	docker_target_close(&t);
	docker_daemon_close(&d);
	return ret ? ctl_fail(cmd, &err) : CTL_OK;
}
