/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* devices.d: the devices that this machine may use, by UUID. A restore opens no others. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "config_priv.h"
#include "zns/grow.h"

#define ENTRY_MAX 4096
#define SUCCESSORS 16 /* longest chain of successors */

static int entry_path(const char *uuid, char *out, struct zns_err *err)
{
	int n = snprintf(out, PATH_MAX, "%s/devices.d%s%s", zns_config_dir(), *uuid ? "/" : "",
			 uuid);

	if (n < 0 || n >= PATH_MAX)
		return zns_fail(
			err, -ENAMETOOLONG,
			"the name of the configuration directory is too long: set ZNS_CONFIG to another one");
	return 0;
}

/* Has the value the form that zns_register writes, absolute and canonical? */
static bool good_path(const char *value)
{
	size_t size = sizeof(((struct zns_registered *)0)->path);

	return *zns_spec_path(value) == '/' && strlen(value) < size;
}

static int read_entry_at(const uint8_t uuid[ZNS_UUID_LEN], struct zns_registered *out, char **key,
			 unsigned depth, struct zns_err *err);

/* Reads the entry of a device. Returns -ENOENT without a message, since the caller knows better
 * what to say. *key is malloc'ed, or NULL if there is none. If the store has a successor, that
 * one's entry is returned. */
static int read_entry_key(const uint8_t uuid[ZNS_UUID_LEN], struct zns_registered *out, char **key,
			  struct zns_err *err)
{
	return read_entry_at(uuid, out, key, 0, err);
}

static int read_entry_at(const uint8_t uuid[ZNS_UUID_LEN], struct zns_registered *out, char **key,
			 unsigned depth, struct zns_err *err)
{
	char name[ZNS_UUID_STR], path[PATH_MAX], *k, *v, *found = NULL, *spec = NULL;
	const char *encrypted = NULL, *plain = NULL, *successor = NULL;
	uint8_t next[ZNS_UUID_LEN];
	cleanup_free uint8_t *text = NULL;
	struct conf_iter it = { 0 };
	size_t len;
	int ret;

	ret = entry_path(zns_uuid_format(uuid, name), path, err);
	if (ret)
		return ret;
	ret = zns_read_file(AT_FDCWD, path, ENTRY_MAX, &text, &len);
	if (ret == -ENOENT)
		return ret;
	if (ret)
		return zns_fail_sys(err, ret, "cannot read %s", path);
	if (memchr(text, 0, len))
		goto bad;
	it.next = (char *)text;
	while ((ret = conf_next(&it, &k, &v)) > 0)
		if (!strcmp(k, "path"))
			found = v;
		else if (!strcmp(k, "key"))
			spec = v;
		else if (!strcmp(k, "encrypted"))
			encrypted = v;
		else if (!strcmp(k, "plain"))
			plain = v;
		else if (!strcmp(k, "successor"))
			successor = v;
	if (!ret && successor && depth < SUCCESSORS && !zns_uuid_parse(successor, next))
		return read_entry_at(next, out, key, depth + 1, err);
	if (ret || !found || !good_path(found) || (encrypted && strcmp(encrypted, "only")) ||
	    (plain && strcmp(plain, "accept")))
		goto bad;
	/* memmove: source and destination may be the same */
	memmove(out->uuid, uuid, ZNS_UUID_LEN);
	memset(out->path, 0, sizeof(out->path));
	out->encrypted = encrypted;
	out->plain_ok = plain;
	memcpy(out->path, found, strlen(found));
	if (!key)
		return 0;
	*key = spec ? strdup(spec) : NULL;
	return spec && !*key ? zns_fail(err, -ENOMEM, "out of memory") : 0;
bad:
	return zns_fail(
		err, -EINVAL,
		"%s is damaged, it should read \"path = DEV\": run `znsctl unregister %s`, then `znsctl register DEV`",
		path, name);
}

static int read_entry(const uint8_t uuid[ZNS_UUID_LEN], struct zns_registered *out,
		      struct zns_err *err)
{
	return read_entry_key(uuid, out, NULL, err);
}

static int write_entry(const struct zns_registered *r, const char *key, struct zns_err *err)
{
	char name[ZNS_UUID_STR], path[PATH_MAX], text[ENTRY_MAX];
	int ret = entry_path(zns_uuid_format(r->uuid, name), path, err);

	if (ret)
		return ret;
	ret = snprintf(text, sizeof(text), "path = %s\n%s%s%s%s%s", r->path, key ? "key = " : "",
		       key ? key : "", key ? "\n" : "", r->encrypted ? "encrypted = only\n" : "",
		       r->plain_ok ? "plain = accept\n" : "");
	if (ret < 0 || (size_t)ret >= sizeof(text))
		return zns_fail(
			err, -ENAMETOOLONG,
			"the name of the key is too long: use a shorter path or description");
	ret = zns_replace_file(AT_FDCWD, path, text, ret, 0600);
	return ret ? zns_fail_sys(err, ret, "cannot write %s", path) : 0;
}

int zns_registered_list(struct zns_registered **out, size_t *nr, struct zns_err *err)
{
	cleanup_free struct zns_registered *list = NULL;
	char dir[PATH_MAX], canon[ZNS_UUID_STR];
	struct dirent *de;
	size_t n = 0;
	DIR *d;
	int ret;

	*out = NULL;
	*nr = 0;
	ret = entry_path("", dir, err);
	if (ret)
		return ret;
	d = opendir(dir);
	if (!d)
		return errno == ENOENT ? 0 : zns_fail_sys(err, -errno, "cannot open %s", dir);
	for (;;) {
		uint8_t uuid[ZNS_UUID_LEN];

		errno = 0;
		de = readdir(d);
		if (!de) {
			ret = errno ? zns_fail_sys(err, -errno, "cannot read %s", dir) : 0;
			break;
		}
		/* skips temporary files, copies of editors and the like */
		if (zns_uuid_parse(de->d_name, uuid) ||
		    strcmp(zns_uuid_format(uuid, canon), de->d_name))
			continue;
		if (zns_grow_by_one(list, n)) {
			ret = zns_fail(err, -ENOMEM, "out of memory");
			break;
		}
		ret = read_entry(uuid, &list[n], err);
		if (ret && ret != -ENOENT) /* -ENOENT: the entry was removed meanwhile */
			break;
		/* skip a store that was handed over to its successor */
		n += !ret && !memcmp(list[n].uuid, uuid, ZNS_UUID_LEN);
	}
	closedir(d);
	if (ret)
		return ret;
	if (n) {
		*out = list;
		list = NULL;
	}
	*nr = n;
	return 0;
}

/* Do two paths refer to one device? They are equal, or are two names of one device node. */
static bool same_device(const char *a, const char *b)
{
	struct stat sa, sb;

	if (!strcmp(a, b))
		return true;
	if (zns_spec_path(a) - a != zns_spec_path(b) - b ||
	    strncmp(a, b, (size_t)(zns_spec_path(a) - a)))
		return false;
	if (stat(zns_spec_path(a), &sa) || stat(zns_spec_path(b), &sb))
		return false;
	if (S_ISBLK(sa.st_mode) || S_ISCHR(sa.st_mode))
		return (sa.st_mode & S_IFMT) == (sb.st_mode & S_IFMT) && sa.st_rdev == sb.st_rdev;
	return sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino;
}

static int remove_entry(const uint8_t uuid[ZNS_UUID_LEN], struct zns_err *err)
{
	char name[ZNS_UUID_STR], path[PATH_MAX];
	int ret = entry_path(zns_uuid_format(uuid, name), path, err);

	if (ret)
		return ret;
	if (unlink(path))
		return errno == ENOENT ? -ENOENT :
					 zns_fail_sys(err, -errno, "cannot remove %s", path);
	return 0;
}

int zns_register(const uint8_t uuid[ZNS_UUID_LEN], const char *dev, struct zns_err *err)
{
	struct zns_registered r = { 0 }, old = { 0 };
	cleanup_free struct zns_registered *list = NULL;
	cleanup_free char *key = NULL;
	cleanup_close int lock = -1;
	char path[PATH_MAX];
	size_t nr;
	int ret;

	ret = zns_canonical_spec(dev, r.path, sizeof(r.path), err);
	if (ret)
		return ret;
	lock = conf_lock(err);
	if (lock < 0)
		return lock;
	ret = entry_path("", path, err);
	if (!ret)
		ret = conf_mkdirs(path, err);
	if (!ret)
		ret = zns_registered_list(&list, &nr, err);
	if (ret)
		return ret;
	/* Remove other entries of this path first: the device now has another UUID, and the path
	 * must have one entry only. */
	for (size_t i = 0; i < nr; i++) {
		if (!memcmp(list[i].uuid, uuid, ZNS_UUID_LEN) || !same_device(list[i].path, r.path))
			continue;
		ret = remove_entry(list[i].uuid, err);
		if (ret && ret != -ENOENT)
			return ret;
	}
	/* a new entry of the same device keeps the old entry's key */
	ret = read_entry_key(uuid, &old, &key, err);
	if (ret && ret != -ENOENT)
		return ret;
	memcpy(r.uuid, uuid, ZNS_UUID_LEN);
	r.encrypted = old.encrypted;
	r.plain_ok = old.plain_ok;
	return write_entry(&r, key, err);
}

int zns_registered_key(const uint8_t uuid[ZNS_UUID_LEN], char *out, size_t len, struct zns_err *err)
{
	cleanup_free char *key = NULL;
	struct zns_registered reg;
	int ret = read_entry_key(uuid, &reg, &key, err);

	if (ret || !key)
		return ret ? ret : -ENOENT;
	if (strlen(key) >= len)
		return zns_fail(
			err, -ENAMETOOLONG,
			"the name of the key is too long: use a shorter path or description");
	memcpy(out, key, strlen(key) + 1);
	return 0;
}

static int not_registered(const char *what, struct zns_err *err)
{
	return zns_fail(
		err, -ENOENT,
		"device %s is not registered on this machine: run `znsctl register DEV` (or `znsctl format DEV` for a new one)",
		what);
}

int zns_register_key(const uint8_t uuid[ZNS_UUID_LEN], const char *spec, struct zns_err *err)
{
	cleanup_close int lock = conf_lock(err);
	struct zns_registered reg;
	char name[ZNS_UUID_STR];
	int ret;

	if (lock < 0)
		return lock;
	ret = read_entry(uuid, &reg, err);
	if (ret)
		return ret == -ENOENT ? not_registered(zns_uuid_format(uuid, name), err) : ret;
	return write_entry(&reg, spec, err);
}

int zns_register_flags(const uint8_t uuid[ZNS_UUID_LEN], int encrypted, int plain_ok,
		       struct zns_err *err)
{
	cleanup_close int lock = conf_lock(err);
	cleanup_free char *key = NULL;
	struct zns_registered reg;
	char name[ZNS_UUID_STR];
	int ret;

	if (lock < 0)
		return lock;
	ret = read_entry_key(uuid, &reg, &key, err);
	if (ret)
		return ret == -ENOENT ? not_registered(zns_uuid_format(uuid, name), err) : ret;
	if (encrypted >= 0)
		reg.encrypted = encrypted;
	if (plain_ok >= 0)
		reg.plain_ok = plain_ok;
	return write_entry(&reg, key, err);
}

int zns_register_successor(const uint8_t uuid[ZNS_UUID_LEN], const uint8_t successor[ZNS_UUID_LEN],
			   struct zns_err *err)
{
	cleanup_close int lock = conf_lock(err);
	char name[ZNS_UUID_STR], path[PATH_MAX], text[64];
	struct zns_registered reg;
	int ret;

	if (lock < 0)
		return lock;
	ret = read_entry(successor, &reg, err);
	if (ret)
		return ret == -ENOENT ? not_registered(zns_uuid_format(successor, name), err) : ret;
	if (!memcmp(reg.uuid, uuid, ZNS_UUID_LEN))
		return zns_fail(err, -EINVAL, "a store cannot be its own successor");
	ret = entry_path(zns_uuid_format(uuid, name), path, err);
	if (ret)
		return ret;
	snprintf(text, sizeof(text), "successor = %s\n", zns_uuid_format(successor, name));
	ret = zns_replace_file(AT_FDCWD, path, text, strlen(text), 0600);
	return ret ? zns_fail_sys(err, ret, "cannot write %s", path) : 0;
}

bool zns_is_store(const uint8_t uuid[ZNS_UUID_LEN], const struct zns_registered *reg)
{
	struct zns_registered now;

	return !memcmp(uuid, reg->uuid, ZNS_UUID_LEN) ||
	       (!read_entry(uuid, &now, NULL) && !memcmp(now.uuid, reg->uuid, ZNS_UUID_LEN));
}

int zns_unregister(const uint8_t uuid[ZNS_UUID_LEN], struct zns_err *err)
{
	cleanup_close int lock = conf_lock(err);
	char name[ZNS_UUID_STR];
	int ret;

	if (lock < 0)
		return lock;
	ret = remove_entry(uuid, err);
	return ret == -ENOENT ? not_registered(zns_uuid_format(uuid, name), err) : ret;
}

int zns_registered_by_uuid(const uint8_t uuid[ZNS_UUID_LEN], struct zns_registered *out,
			   struct zns_err *err)
{
	char name[ZNS_UUID_STR];
	int ret = read_entry(uuid, out, err);

	return ret == -ENOENT ? not_registered(zns_uuid_format(uuid, name), err) : ret;
}

/* Fails with advice that depends on what exists at the path: a missing path cannot be registered or
 * formatted. */
static int unknown_path(const char *spec, const char *canon, struct zns_err *err)
{
	bool emu = zns_spec_in_file(canon), node = zns_spec_named(canon) && !emu;
	struct stat st;
	bool there = !stat(zns_spec_path(canon), &st);

	if (!emu && !node && there && S_ISREG(st.st_mode))
		return zns_fail(err, -ENOENT,
				"%s is a file, not a device: a store in it is file:%s", spec,
				canon);
	if (!emu && !node)
		return zns_fail(
			err, -ENOENT,
			"%s is not a device: give file:PATH, emu:PATH, zonefs:DIR, /dev/… or the UUID of a registered one; `znsctl status "
			"--all` lists them",
			spec);
	if (!there && emu)
		return zns_fail(
			err, -ENOENT,
			"%s is not registered on this machine, and nothing is there: `znsctl create %s` makes a "
			"new one",
			canon, canon);
	if (!there)
		return zns_fail(err, -ENOENT,
				"%s is not registered on this machine, and there is no such %s",
				canon, strncmp(canon, "/dev/", 5) ? "directory" : "device node");
	return zns_fail(
		err, -ENOENT,
		"%s is not registered on this machine: run `znsctl register %s` (or `znsctl format %s` for a new one)",
		canon, canon, canon);
}

int zns_registered_by_path(const char *path, struct zns_registered *out, struct zns_err *err)
{
	cleanup_free struct zns_registered *list = NULL;
	char canon[sizeof(out->path)];
	size_t nr;
	int ret;

	ret = zns_canonical_spec(path, canon, sizeof(canon), err);
	if (!ret)
		ret = zns_registered_list(&list, &nr, err);
	if (ret)
		return ret;
	for (size_t i = 0; i < nr; i++)
		if (same_device(list[i].path, canon)) {
			*out = list[i];
			return 0;
		}
	return unknown_path(path, canon, err);
}

static int by_spec(const char *spec, const char *origin, struct zns_registered *out,
		   struct zns_err *err)
{
	uint8_t uuid[ZNS_UUID_LEN];
	int ret;

	if (!zns_uuid_parse(spec, uuid))
		ret = zns_registered_by_uuid(uuid, out, err);
	else
		ret = zns_registered_by_path(spec, out, err);
	if (ret && origin)
		zns_wrap(err, "%s", origin);
	if (ret == -ENOENT) {
		if (err)
			err->code = -ENODEV;
		ret = -ENODEV;
	}
	return ret;
}

int zns_resolve_device(const char *spec, struct zns_registered *out, struct zns_err *err)
{
	cleanup_free struct zns_registered *list = NULL;
	struct zns_err quiet = ZNS_ERR_INIT;
	char value[PATH_MAX];
	const char *env;
	size_t nr, at = 0;
	int ret;

	/* An empty argument comes from "$DEV" with DEV unset. That is a mistake; it does not mean
	 * the default device. */
	if (spec && !*spec)
		return zns_fail(
			err, -ENODEV,
			"the name of the device is empty: give file:PATH, emu:PATH, zonefs:DIR, /dev/… or a UUID, or leave it out");
	if (spec)
		return by_spec(spec, NULL, out, err);
	env = secure_getenv("ZNS_DEV");
	if (env && *env)
		return by_spec(env, "ZNS_DEV", out, err);
	ret = zns_config_get("default-device", value, sizeof(value), &quiet);
	if (!ret)
		return by_spec(value, "default-device in zns.conf", out, err);
	if (ret != -ENOENT)
		return zns_fail(err, ret, "%s", quiet.msg);
	ret = zns_registered_list(&list, &nr, err);
	if (ret)
		return ret;
	if (nr == 1) {
		*out = list[0];
		return 0;
	}
	if (!nr)
		return zns_fail(
			err, -ENODEV,
			"no device is registered on this machine: run `znsctl create file:PATH --size SIZE`, `znsctl format DEV` or `znsctl register DEV`");
	for (size_t i = 0; i < nr && at < sizeof(value) - 1; i++) {
		int n = snprintf(value + at, sizeof(value) - at, "%s%s", i ? ", " : "",
				 list[i].path);

		at += n > 0 ? (size_t)n : 0;
	}
	return zns_fail(
		err, -ENODEV,
		"%zu devices are registered, and none is the default: name one (znsctl status --all shows their space), set ZNS_DEV, or `znsctl register --default DEV`; they are %s",
		nr, value);
}
