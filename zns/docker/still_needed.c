/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Is a checkpoint of Docker or Podman still needed? Neither engine reports when a container is
 * removed, but their directories show it.
 */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include "docker.h"
#include "zns/handle.h"

static int one_handle(int at, const char *name, uint8_t id[ZNS_UUID_LEN])
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), ret;
	ZnsPb__Handle *h;

	if (fd < 0)
		return -errno;
	ret = zns_handle_read(fd, &h, NULL);
	close(fd);
	if (ret)
		return ret;
	ret = h->checkpoint.len == ZNS_UUID_LEN ? 0 : -EBADMSG;
	if (!ret)
		memcpy(id, h->checkpoint.data, ZNS_UUID_LEN);
	zns_pb__handle__free_unpacked(h, NULL);
	return ret;
}

/*
 * Calls @fn for the handle in each directory right below @dir. @damaged: number of handles that
 * cannot be read, which may name any checkpoint. @shared: containers can write some of these
 * directories, so only those of root are read.
 */
static int each_in(const char *dir, bool shared, const char *container, docker_handle_fn fn,
		   void *arg, unsigned *damaged)
{
	char path[PATH_MAX + 512];
	uint8_t id[ZNS_UUID_LEN];
	struct dirent *e;
	int ret = 0;
	DIR *d;

	d = opendir(dir);
	if (!d)
		return errno == ENOENT || errno == ENOTDIR ? 0 : -errno;
	while (!ret && (e = readdir(d))) {
		if (e->d_name[0] == '.' || (shared && !docker_only_roots(dirfd(d), e->d_name)))
			continue;
		switch (one_handle(dirfd(d), e->d_name, id)) {
		case 0:
			snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
			ret = fn(arg, container, e->d_name, path, id);
			break;
		case -ENOENT: /* no handle: a plain checkpoint, or one that is being made */
		case -ENOTDIR:
			break;
		default:
			++*damaged;
		}
	}
	closedir(d);
	return ret;
}

/*
 * Calls @fn for the handles of all containers. @dir contains a directory for each container, and
 * handles are in its subdirectory @sub, where Podman keeps other files too.
 */
static int each(const char *dir, const char *sub, docker_handle_fn fn, void *arg, unsigned *damaged)
{
	char path[PATH_MAX + 512];
	struct dirent *e;
	int ret = 0;
	DIR *d;

	d = opendir(dir);
	if (!d)
		return -errno;
	while (!ret && (e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s/%s", dir, e->d_name, sub);
		ret = each_in(path, !strcmp(sub, "userdata"), e->d_name, fn, arg, damaged);
	}
	closedir(d);
	return ret;
}

int docker_each_handle(const char *root, docker_handle_fn fn, void *arg)
{
	unsigned damaged = 0;
	char dir[PATH_MAX];

	if ((size_t)snprintf(dir, sizeof(dir), "%s/containers", root) >= sizeof(dir))
		return -ENAMETOOLONG;
	return each(dir, "checkpoints", fn, arg, &damaged);
}

static int is_it(void *arg, const char *container, const char *name, const char *dir,
		 const uint8_t id[ZNS_UUID_LEN])
{
	return !memcmp(arg, id, ZNS_UUID_LEN);
}

static enum docker_life say(enum docker_life l, char *why, size_t len, const char *fmt,
			    const char *a, const char *b)
{
	if (why && len)
		snprintf(why, len, fmt, a, b);
	return l;
}

/*
 * Looks for the checkpoint in all containers below @dir, whose handles are in @sub. False: not
 * decided, since the container @container_id exists and no container has the checkpoint @id.
 */
static bool decided(const char *root, const char *dir, const char *sub, const char *container_id,
		    const uint8_t id[ZNS_UUID_LEN], enum docker_life *life, char *why, size_t len)
{
	char path[PATH_MAX + 80];
	unsigned damaged = 0;
	struct stat st;
	int ret = each(dir, sub, is_it, (void *)(uintptr_t)id, &damaged);

	snprintf(path, sizeof(path), "%s/%.64s", dir, container_id);
	if (ret == 1)
		*life = say(DOCKER_NEEDED, why, len, "a container below %s has it%s", root, "");
	else if (ret) /* the directory is not mounted or not readable, so the result is unknown */
		*life = say(DOCKER_UNKNOWN, why, len, "%s cannot be read: %s", dir, strerror(-ret));
	else if (damaged)
		*life = say(DOCKER_UNKNOWN, why, len,
			    "some handle below %s is damaged and may be this one%s", root, "");
	else if (!lstat(path, &st))
		return false;
	else if (errno == ENOENT)
		*life = say(DOCKER_GONE, why, len, "container %.12s was removed%s", container_id,
			    "");
	else
		*life = say(DOCKER_UNKNOWN, why, len, "%s: %s", path, strerror(errno));
	return true;
}

bool docker_started_since(struct json_object *config, int64_t since_ns)
{
	const char *at = zns_json_str(zns_json_get(config, "State"), "StartedAt");
	struct tm tm = { 0 };

	/*
	 * Compares whole seconds: a start in the same second as the dump is taken for the start
	 * before the dump.
	 */
	return at && strptime(at, "%Y-%m-%dT%H:%M:%S", &tm) && timegm(&tm) > since_ns / 1000000000;
}

static bool started_since(const char *root, const char *container_id, int64_t since_ns)
{
	cleanup_free uint8_t *text = NULL;
	struct json_object *o = NULL;
	bool since;
	size_t len;

	if (docker_read_own(root, container_id, "config.v2.json", &text, &len, NULL) ||
	    zns_json_parse("", text, len, &o, NULL))
		return false;
	since = docker_started_since(o, since_ns);
	json_object_put(o);
	return since;
}

struct docker_made docker_made_of(const ZnsPb__Checkpoint *c)
{
	const ZnsPb__Origin *o = c->origin;

	return (struct docker_made){ .root = o->root,
				     .container_id = o->container_id,
				     .checkpoint_name = o->checkpoint_name,
				     .id = c->id.data,
				     .ended = o->ended,
				     .created_ns = c->created_ns };
}

enum docker_life docker_checkpoint_life(const struct docker_made *m, char *why, size_t len)
{
	enum docker_life life;
	char dir[PATH_MAX];

	if (!m->root || *m->root != '/' || !m->container_id || !docker_full_id(m->container_id))
		return say(DOCKER_UNKNOWN, why, len,
			   "it does not say which container of which daemon it is of%s%s", "", "");
	if ((size_t)snprintf(dir, sizeof(dir), "%s/containers", m->root) >= sizeof(dir))
		return say(DOCKER_UNKNOWN, why, len, "%s/containers cannot be read: %s", m->root,
			   strerror(ENAMETOOLONG));
	if (decided(m->root, dir, "checkpoints", m->container_id, m->id, &life, why, len))
		return life;
	if (m->ended && !started_since(m->root, m->container_id, m->created_ns))
		return say(
			DOCKER_NEEDED, why, len,
			"container %.12s ended with it and was not started since, but Docker does not "
			"have it: znsctl docker recover%s",
			m->container_id, "");
	/*
	 * Made with --checkpoint-dir, or moved by hand: its handle was never below the data root.
	 */
	if (!m->checkpoint_name || !*m->checkpoint_name)
		return say(DOCKER_UNKNOWN, why, len,
			   "container %.12s is there, and its checkpoint was put elsewhere%s",
			   m->container_id, "");
	return say(DOCKER_GONE, why, len, "checkpoint %s of container %.12s was removed",
		   m->checkpoint_name, m->container_id);
}

enum docker_life podman_checkpoint_life(const char *root, const char *container_id,
					const uint8_t id[ZNS_UUID_LEN], char *why, size_t len)
{
	enum docker_life life;
	char path[PATH_MAX];
	struct stat st;

	if (!root || *root != '/' || strlen(root) > PATH_MAX / 2 || !container_id ||
	    strlen(container_id) != DOCKER_ID_LEN)
		return say(DOCKER_UNKNOWN, why, len,
			   "it may have been exported, or its container is not known%s%s", "", "");
	/*
	 * Podman creates this file with its first container. If it exists, the directory is no
	 * empty mount point.
	 */
	snprintf(path, sizeof(path), "%s/containers.lock", root);
	if (lstat(path, &st) || !S_ISREG(st.st_mode))
		return say(DOCKER_UNKNOWN, why, len, "%s is not there as Podman leaves it%s", root,
			   "");
	if (decided(root, root, "userdata", container_id, id, &life, why, len))
		return life;
	return say(DOCKER_GONE, why, len,
		   "container %.12s has another checkpoint by now, or none%s", container_id, "");
}

int docker_remove_dir(const char *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), ret = 0;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!d) {
		ret = -errno;
		if (fd >= 0)
			close(fd);
		return ret;
	}
	while (!ret && (e = readdir(d)))
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") &&
		    unlinkat(dirfd(d), e->d_name, 0) && errno != ENOENT)
			ret = -errno;
	closedir(d);
	return ret ? ret : rmdir(dir) ? -errno : 0;
}
