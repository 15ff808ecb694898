/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * May this checkpoint be restored into this container? A checkpoint contains its own user,
 * capabilities, filters and mounts, while the container's config.json says which of these the
 * container should have. criu does not compare them, so a container that was started with fewer
 * rights would run with those of the dump. This file compares the config.json at the dump with that
 * of the new container. Limits of cgroups, sources of mounts, the host name and the paths of joined
 * namespaces may differ.
 */
#include <string.h>
#include <sys/stat.h>
#include "docker.h"

/*
 * member that is added to a namespace: is it the namespace of this process, that is, of the host?
 */
#define HOST "zns-host"

/*
 * These members must be equal in both. A missing member is equal to an empty one, 0 or false. The
 * order in an array is ignored, since engines write some arrays in random order.
 */
static const struct {
	const char *path, *what;
} members[] = {
	{ "process.user.uid", "user" },
	{ "process.user.gid", "group" },
	{ "process.user.additionalGids", "additional groups" },
	{ "process.user.umask", "umask" },
	{ "process.capabilities.bounding", "bounding capabilities" },
	{ "process.capabilities.effective", "effective capabilities" },
	{ "process.capabilities.inheritable", "inheritable capabilities" },
	{ "process.capabilities.permitted", "permitted capabilities" },
	{ "process.capabilities.ambient", "ambient capabilities" },
	{ "process.noNewPrivileges", "no_new_privs" },
	{ "linux.seccomp", "seccomp filter" },
	{ "process.apparmorProfile", "AppArmor profile" },
	{ "process.selinuxLabel", "SELinux label" },
	{ "linux.mountLabel", "SELinux label of mounts" },
	{ "process.oomScoreAdj", "OOM score" },
	{ "process.terminal", "terminal" },
	{ "process.rlimits", "resource limits" },
	{ "linux.uidMappings", "user ids of its user namespace" },
	{ "linux.gidMappings", "group ids of its user namespace" },
	{ "root.readonly", "read-only root" },
	{ "linux.rootfsPropagation", "propagation of mounts" },
	{ "linux.maskedPaths", "masked paths" },
	{ "linux.readonlyPaths", "read-only paths" },
	{ "linux.sysctl", "sysctls" },
	{ "linux.devices", "devices" },
	{ "linux.resources.devices", "access to devices" },
	{ "linux.personality", "personality" },
};

static struct json_object *at(struct json_object *o, const char *path)
{
	char key[32];

	for (size_t n; o && *path; path += n + (path[n] == '.')) {
		n = strcspn(path, ".");
		snprintf(key, sizeof(key), "%.*s", (int)n, path);
		o = zns_json_get(o, key);
	}
	return o;
}

static bool is_empty(struct json_object *o)
{
	switch (json_object_get_type(o)) {
	case json_type_array:
		return !json_object_array_length(o);
	case json_type_object:
		return !json_object_object_length(o);
	case json_type_string:
		return !json_object_get_string_len(o);
	case json_type_boolean:
		return !json_object_get_boolean(o);
	case json_type_int:
		return !json_object_get_int64(o);
	default:
		return !o;
	}
}

static size_t count(struct json_object *array, struct json_object *element)
{
	size_t n = 0;

	for (size_t i = 0; i < zns_json_len(array); i++)
		n += json_object_equal(json_object_array_get_idx(array, i), element) != 0;
	return n;
}

static bool same(struct json_object *a, struct json_object *b)
{
	if (is_empty(a) || is_empty(b))
		return is_empty(a) && is_empty(b);
	if (!json_object_is_type(a, json_type_array) || !json_object_is_type(b, json_type_array))
		return json_object_equal(a, b);
	if (zns_json_len(a) != zns_json_len(b))
		return false;
	for (size_t i = 0; i < zns_json_len(a); i++) {
		struct json_object *e = json_object_array_get_idx(a, i);

		if (count(a, e) != count(b, e))
			return false;
	}
	return true;
}

/*
 * Finds the element of @array whose member @key has the value @value. NULL: there is none, or more
 * than one.
 */
static struct json_object *find(struct json_object *array, const char *key, const char *value)
{
	struct json_object *found = NULL;

	for (size_t i = 0; i < zns_json_len(array); i++) {
		struct json_object *e = json_object_array_get_idx(array, i);
		const char *v = zns_json_str(e, key);

		if (!v || strcmp(v, value))
			continue;
		if (found)
			return NULL;
		found = e;
	}
	return found;
}

static int differs(struct zns_err *err, const char *what, const char *which)
{
	char name[128];

	return zns_fail(err, -EPERM,
			"the container differs from the one that was dumped in its %s%s%s", what,
			*which ? " " : "", zns_escape(which, name, sizeof(name)));
}

/* Is this namespace the host's? criu does not dump a namespace that is equal to its own. */
static bool is_host(const char *type, const char *path, bool *host)
{
	char own[64];
	struct stat a, b;

	snprintf(own, sizeof(own), "/proc/self/ns/%.30s",
		 !strcmp(type, "network") ? "net" :
		 !strcmp(type, "mount")   ? "mnt" :
					    type);
	if (strchr(type, '/') || stat(path, &a) || stat(own, &b))
		return false;
	*host = a.st_dev == b.st_dev && a.st_ino == b.st_ino;
	return true;
}

void docker_mark_namespaces(struct json_object *spec)
{
	struct json_object *all = at(spec, "linux.namespaces");

	for (size_t i = 0; i < zns_json_len(all); i++) {
		struct json_object *one = json_object_array_get_idx(all, i);
		const char *type = zns_json_str(one, "type"), *path = zns_json_str(one, "path");
		bool host;

		if (!type || !path)
			continue;
		json_object_object_del(one, HOST);
		if (is_host(type, path, &host))
			json_object_object_add(one, HOST, json_object_new_boolean(host));
	}
}

/*
 * A joined namespace must be the host's in both, or in none. Checkpoints of earlier releases do not
 * say this: then it is an error only if @strict.
 */
static int compare_host(struct json_object *a, struct json_object *b, bool strict,
			struct zns_err *err)
{
	for (size_t i = 0; i < zns_json_len(b); i++) {
		struct json_object *now = json_object_array_get_idx(b, i), *was, *is;
		const char *type = zns_json_str(now, "type");

		if (!type || !zns_json_str(now, "path"))
			continue;
		was = zns_json_get(find(a, "type", type), HOST);
		is = zns_json_get(now, HOST);
		if ((was || strict) && (!was || !is || !json_object_equal(was, is)))
			return differs(err, "namespace", type);
	}
	return 0;
}

static int compare_namespaces(struct json_object *a, struct json_object *b, struct zns_err *err)
{
	for (size_t i = 0; i < zns_json_len(a); i++) {
		struct json_object *one = json_object_array_get_idx(a, i), *other;
		const char *type = zns_json_str(one, "type");

		other = type ? find(b, "type", type) : NULL;
		/* Both must be new, or both joined by path; the path itself may differ. */
		if (!other || !zns_json_str(one, "path") != !zns_json_str(other, "path"))
			return differs(err, "namespace", type ? type : "");
	}
	return 0;
}

static int compare_mounts(struct json_object *a, struct json_object *b, struct zns_err *err)
{
	static const char *const keys[] = { "type", "options", "uidMappings", "gidMappings" };

	for (size_t i = 0; i < zns_json_len(a); i++) {
		struct json_object *one = json_object_array_get_idx(a, i), *other;
		const char *to = zns_json_str(one, "destination");

		other = to ? find(b, "destination", to) : NULL;
		if (!other)
			return differs(err, "mount", to ? to : "");
		for (size_t k = 0; k < ZNS_ARRAY_SIZE(keys); k++)
			if (!same(zns_json_get(one, keys[k]), zns_json_get(other, keys[k])))
				return differs(err, "mount", to);
	}
	return 0;
}

int docker_compare(struct json_object *was, struct json_object *now, bool strict,
		   struct zns_err *err)
{
	int ret;

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(members); i++)
		if (!same(at(was, members[i].path), at(now, members[i].path)))
			return differs(err, members[i].what, "");
	ret = compare_namespaces(at(was, "linux.namespaces"), at(now, "linux.namespaces"), err);
	/* the same check in the other direction, for elements that only the new container has */
	if (!ret)
		ret = compare_namespaces(at(now, "linux.namespaces"), at(was, "linux.namespaces"),
					 err);
	if (!ret)
		ret = compare_host(at(was, "linux.namespaces"), at(now, "linux.namespaces"), strict,
				   err);
	if (!ret)
		ret = compare_mounts(at(was, "mounts"), at(now, "mounts"), err);
	return ret ? ret : compare_mounts(at(now, "mounts"), at(was, "mounts"), err);
}
