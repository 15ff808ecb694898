/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * docker clone: makes a container that starts from another container's checkpoint. Docker has no
 * command for this. But a checkpoint is a directory with a handle, so it suffices to copy it to the
 * new container.
 */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include "docker_cmd.h"

/* bytes; a directory may have plain copies of at most 64 KiB and handles of 256 KiB */
#define IMAGE_MAX MIB(4)

static int copy_dir(const char *from, const char *to, struct zns_err *err)
{
	DIR *d = opendir(from);
	struct dirent *e;
	int dst, ret = 0;

	if (!d)
		return zns_fail_sys(err, -errno, "cannot open %s", from);
	dst = mkdir(to, 0700) ? -1 : open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dst < 0)
		ret = zns_fail_sys(err, -errno, "cannot make %s", to);
	while (!ret && (e = readdir(d))) {
		cleanup_free uint8_t *data = NULL;
		size_t len;

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		ret = zns_read_file(dirfd(d), e->d_name, IMAGE_MAX, &data, &len);
		if (!ret)
			ret = zns_replace_file(dst, e->d_name, data, len, 0600);
		if (ret)
			zns_fail_sys(err, ret, "cannot copy %s/%s", from, e->d_name);
	}
	if (dst >= 0)
		close(dst);
	closedir(d);
	return ret;
}

#define CLONE_REPO "zns-clone"

/*
 * Removes images of earlier clones. Docker refuses to remove those that a container uses. No other
 * program uses this prefix for names.
 */
static void prune_images(const struct docker_daemon *d)
{
	struct json_object *list = NULL, *tags;
	struct zns_err ignored = ZNS_ERR_INIT;
	char path[512];
	const char *tag;

	if (docker_api_call(&d->api, "GET",
			    "/images/json?filters=%7B%22reference%22%3A%5B%22" CLONE_REPO
			    "%22%5D%7D",
			    NULL, &list, &ignored))
		return;
	for (size_t i = 0; i < zns_json_len(list); i++) {
		tags = zns_json_get(json_object_array_get_idx(list, i), "RepoTags");
		for (size_t k = 0; k < zns_json_len(tags); k++) {
			tag = json_object_get_string(json_object_array_get_idx(tags, k));
			if (!tag || strncmp(tag, CLONE_REPO ":", strlen(CLONE_REPO) + 1) ||
			    strlen(tag) > 300)
				continue;
			snprintf(path, sizeof(path), "/images/%s", tag);
			docker_api_call(&d->api, "DELETE", path, NULL, NULL, &ignored);
		}
	}
	json_object_put(list);
}

static int name_is_free(const struct docker_daemon *d, const char *name, struct zns_err *err)
{
	struct zns_err none = ZNS_ERR_INIT;
	struct json_object *o = NULL;
	const char *has;
	char path[256];
	bool taken;
	int ret;

	snprintf(path, sizeof(path), "/containers/%s/json", name);
	ret = docker_api_call(&d->api, "GET", path, NULL, &o, &none);
	if (ret)
		return ret == -ENOENT ? 0 : zns_fail(err, ret, "%s", none.msg);
	/* compare the whole name, since @name may also be a prefix of another container's id */
	has = zns_json_str(o, "Name");
	taken = has && *has == '/' && !strcmp(has + 1, name);
	json_object_put(o);
	return taken ? zns_fail(err, -EEXIST, "the name %s is in use by another container", name) :
		       0;
}

/*
 * Takes a lock, so that one clone is made at a time: until its container exists, another call would
 * remove its image as unused.
 */
static int lock_images(struct zns_err *err)
{
	char path[PATH_MAX];
	int fd, ret = docker_run_path("clone", "lock", path, sizeof(path), err);

	if (ret)
		return ret;
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return zns_fail_sys(err, -errno, "cannot open %s", path);
	while (flock(fd, LOCK_EX))
		if (errno != EINTR) {
			ret = zns_fail_sys(err, -errno, "cannot lock %s", path);
			close(fd);
			return ret;
		}
	return fd;
}

/*
 * Makes an image of the container's present state, since the processes need the files that it has
 * changed. Each image gets a new tag: for a tag that exists already, Docker would use the earlier
 * image.
 */
static int image_of(const struct docker_daemon *d, const struct docker_target *t, const char *name,
		    char *out, size_t len, struct zns_err *err)
{
	struct json_object *changes = NULL, *o = NULL;
	uint8_t uuid[ZNS_UUID_LEN];
	char path[1024], text[ZNS_UUID_STR];
	const char *id;
	int ret;

	snprintf(path, sizeof(path), "/containers/%s/changes", t->c.id);
	ret = docker_api_call(&d->api, "GET", path, NULL, &changes, err);
	if (ret)
		return ret;
	if (!zns_json_len(changes)) {
		json_object_put(changes);
		id = zns_json_str(t->json, "Image");
		snprintf(out, len, "%s", id ? id : t->c.image);
		return 0;
	}
	json_object_put(changes);
	if (zns_uuid_generate(uuid))
		return zns_fail(err, -EAGAIN, "no random numbers for the image's tag");
	snprintf(out, len, CLONE_REPO ":%.100s-%.8s", name, zns_uuid_format(uuid, text));
	snprintf(path, sizeof(path), "/commit?container=%s&repo=" CLONE_REPO "&tag=%s", t->c.id,
		 out + strlen(CLONE_REPO) + 1);
	ret = docker_api_call(&d->api, "POST", path, NULL, &o, err);
	json_object_put(o);
	return ret;
}

/* Sends POST /containers/create with the settings from inspect. Returns the new id. */
static int create(const struct docker_daemon *d, const struct docker_target *t, const char *image,
		  const char *name, char *id, size_t len, struct zns_err *err)
{
	struct json_object *body = NULL, *host = zns_json_get(t->json, "HostConfig"), *o = NULL,
			   *copy = NULL;
	char path[512];
	const char *s;
	int ret;

	if (json_object_deep_copy(zns_json_get(t->json, "Config"), &body, NULL) ||
	    json_object_deep_copy(host, &copy, NULL)) {
		json_object_put(body);
		return zns_fail(err, -ENOMEM, "the container's description cannot be copied");
	}
	json_object_object_add(body, "Image", ctl_j_text(image));
	/*
	 * Remove the host name, which is in the checkpoint, and the ports: a port can be bound only
	 * once, so the clone publishes none.
	 */
	json_object_object_del(copy, "PortBindings");
	json_object_object_add(copy, "ContainerIDFile", json_object_new_string(""));
	json_object_object_add(body, "HostConfig", copy);
	snprintf(path, sizeof(path), "/containers/create?name=%s", name);
	ret = docker_api_call(&d->api, "POST", path, body, &o, err);
	json_object_put(body);
	if (ret)
		return ret;
	s = zns_json_str(o, "Id");
	snprintf(id, len, "%s", s ? s : "");
	json_object_put(o);
	return *id ? 0 : zns_fail(err, -EPROTO, "docker: the new container has no id");
}

static int start_clone(const struct docker_daemon *d, const struct docker_target *t, const char *id,
		       const struct docker_entry *e, struct zns_err *err)
{
	char path[PATH_MAX + 512], text[ZNS_UUID_STR];
	int ret;

	snprintf(path, sizeof(path), "%s/containers/%s/checkpoints", d->root, id);
	if (mkdir(path, 0700) && errno != EEXIST)
		return zns_fail_sys(err, -errno, "cannot make %s", path);
	snprintf(path, sizeof(path), "%s/containers/%s/checkpoints/%s", d->root, id, e->name);
	ret = copy_dir(e->dir, path, err);
	if (ret)
		return ret;
	/*
	 * zns-runc refuses another container's checkpoint unless root allows it. This file allows
	 * it, and is in a directory where only dockerd can write.
	 */
	snprintf(path, sizeof(path), "%s/containers/%s/" DOCKER_CLONE_FILE, d->root, id);
	ret = zns_replace_file(AT_FDCWD, path, zns_uuid_format(e->id, text), ZNS_UUID_STR - 1,
			       0600);
	if (ret)
		return zns_fail_sys(err, ret, "cannot write %s", path);
	snprintf(path, sizeof(path), "%s/containers/%s/checkpoints/%s", d->root, id, e->name);
	/* The clone's archive must differ from the original's, which containerd may still have. */
	strncat(path, "/descriptors.json", sizeof(path) - strlen(path) - 1);
	utimensat(AT_FDCWD, path, NULL, 0);
	return docker_start_from(d, t, id, e->name, err);
}

static int clone_it(const struct docker_daemon *d, const struct docker_target *t,
		    const char *checkpoint, const char *name, const char *image, char *id,
		    size_t len, struct zns_err *err)
{
	cleanup_free struct docker_entry *list = NULL;
	cleanup_close int lock = -1;
	struct zns_err ignored;
	char own[512] = "", path[256];
	size_t nr, i;
	int ret;

	if (!docker_good_name(name))
		return zns_fail(err, -EINVAL, "\"%.60s\" cannot be a container's name", name);
	ret = name_is_free(d, name, err); /* check this before anything is created */
	if (ret)
		return ret;
	ret = docker_entries(&t->c, &list, &nr, err);
	if (ret)
		return ret;
	for (i = 0; i < nr && strcmp(list[i].name, checkpoint); i++)
		;
	if (i == nr)
		return zns_fail(err, -ENOENT, "container %s has no checkpoint %s on zones",
				t->c.name, checkpoint);
	ret = docker_entry_check(&list[i], err);
	lock = ret ? -1 : lock_images(err);
	if (!ret && lock < 0)
		ret = lock;
	if (!ret)
		prune_images(d);
	if (!ret && !image) {
		ret = image_of(d, t, name, own, sizeof(own), err);
		image = own;
	}
	if (!ret)
		ret = create(d, t, image, name, id, len, err);
	if (!ret) {
		ret = start_clone(d, t, id, &list[i], err);
		if (ret) { /* remove the incomplete clone */
			snprintf(path, sizeof(path), "/containers/%s?force=1", id);
			docker_api_call(&d->api, "DELETE", path, NULL, NULL, &ignored);
		}
	}
	if (ret && *own)
		prune_images(d);
	return ret;
}

int docker_clone(const struct ctl_cmd *cmd, int argc, char **argv)
{
	const char *host = NULL, *image = NULL;
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	struct docker_daemon d = { 0 };
	struct docker_target t = { 0 };
	char id[128];
	int ret;
	const struct ctl_opt opts[] = { CTL_TEXT("image", &image), CTL_TEXT("host", &host),
					CTL_OPTS_END };

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (args.argc != 3)
		return ctl_usage(
			cmd,
			"a container, one of its checkpoints and the new container's name are wanted");
	ret = docker_open(&d, host, args.argv[0], &t, &err);
	if (!ret)
		ret = clone_it(&d, &t, args.argv[1], args.argv[2], image, id, sizeof(id), &err);
	if (!ret && args.json) {
		ctl_print_json(ctl_obj(J("container_id", id), J("name", args.argv[2]),
				       J("from", t.c.name)));
	} else if (!ret) {
		printf("%s (%.12s) runs from checkpoint %s of %s\n", args.argv[2], id, args.argv[1],
		       t.c.name);
	}
	docker_close(&d, &t);
	return ret ? ctl_fail(cmd, &err) : CTL_OK;
}
