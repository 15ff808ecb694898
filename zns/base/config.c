/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Finds the configuration directory and reads zns.conf. */
#include <ctype.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "config_priv.h"

#define CONF_MAX 65536

static const char *env_or(const char *name, const char *fallback)
{
	/* secure_getenv: a setuid binary must not take its devices from the caller's environment */
	const char *v = secure_getenv(name);

	return v && *v ? v : fallback;
}

const char *zns_config_dir(void)
{
	return env_or("ZNS_CONFIG", "/etc/zns-criu");
}

const char *zns_run_dir(void)
{
	return env_or("ZNS_RUN", "/run/zns-criu");
}

int conf_mkdirs(const char *dir, struct zns_err *err)
{
	char path[PATH_MAX];
	size_t len = strlen(dir);

	if (!len || len >= sizeof(path))
		return zns_fail(
			err, -ENAMETOOLONG,
			"the name of the configuration directory is empty or too long: set ZNS_CONFIG to another one");
	memcpy(path, dir, len + 1);
	for (char *p = path + 1;; p++) {
		char c = *p;

		if (c && c != '/')
			continue;
		*p = '\0';
		if (mkdir(path, 0700) && errno != EEXIST)
			return zns_fail_sys(err, -errno, "cannot create %s", path);
		*p = c;
		if (!c)
			return 0;
	}
}

int conf_lock(struct zns_err *err)
{
	const char *dir = zns_config_dir();
	int fd, ret = conf_mkdirs(dir, err);

	if (ret)
		return ret;
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return zns_fail_sys(err, -errno, "cannot open %s", dir);
	while (flock(fd, LOCK_EX)) {
		if (errno == EINTR)
			continue;
		ret = zns_fail_sys(err, -errno, "cannot lock %s", dir);
		close(fd);
		return ret;
	}
	return fd;
}

static char *trim(char *s)
{
	char *end;

	while (isspace((unsigned char)*s))
		s++;
	end = s + strlen(s);
	while (end > s && isspace((unsigned char)end[-1]))
		*--end = '\0';
	return s;
}

static bool good_key(const char *key)
{
	if (!islower((unsigned char)*key))
		return false;
	for (; *key; key++)
		if (!islower((unsigned char)*key) && !isdigit((unsigned char)*key) && *key != '-' &&
		    *key != '_' && *key != '.')
			return false;
	return true;
}

static bool good_value(const char *value)
{
	size_t len = strlen(value);

	if (!len || len > 4096 || isspace((unsigned char)value[0]) ||
	    isspace((unsigned char)value[len - 1]))
		return false;
	for (; *value; value++)
		if ((unsigned char)*value < 0x20 || *value == 0x7f)
			return false;
	return true;
}

int conf_next(struct conf_iter *it, char **key, char **value)
{
	while (it->next) {
		char *line = it->next, *eol = strchr(line, '\n'), *eq;

		if (eol)
			*eol = '\0';
		it->next = eol ? eol + 1 : NULL;
		it->line++;
		line = trim(line);
		if (!*line || *line == '#') {
			if (eol)
				continue;
			break;
		}
		eq = strchr(line, '=');
		if (!eq)
			return -EINVAL;
		*eq = '\0';
		*key = trim(line);
		*value = trim(eq + 1);
		return good_key(*key) && good_value(*value) ? 1 : -EINVAL;
	}
	it->next = NULL;
	return 0;
}

static int conf_path(char *out, size_t len, struct zns_err *err)
{
	int n = snprintf(out, len, "%s/zns.conf", zns_config_dir());

	if (n < 0 || (size_t)n >= len)
		return zns_fail(
			err, -ENAMETOOLONG,
			"the name of the configuration directory is too long: set ZNS_CONFIG to another one");
	return 0;
}

/* Reads the file; if there is none, *text is NULL. */
static int conf_load(const char *path, uint8_t **text, size_t *len, struct zns_err *err)
{
	int ret = zns_read_file(AT_FDCWD, path, CONF_MAX, text, len);

	if (ret == -ENOENT) {
		*text = NULL;
		*len = 0;
		return 0;
	}
	if (ret)
		return zns_fail_sys(err, ret, "cannot read %s", path);
	if (memchr(*text, 0, *len)) {
		free(*text);
		*text = NULL;
		return zns_fail(err, -EINVAL,
				"%s is not a text file: it has a byte 0, so write it anew", path);
	}
	return 0;
}

/* All known keys. A misspelled key is refused, since it would otherwise be ignored silently. */
static const char *const known_keys[] = { "default-device",
					  "deadline",
					  "encrypt-key",
					  "docker-qos",
					  "docker-admission",
					  "docker-alloc",
					  "docker-stripe",
					  "docker-dev",
					  "docker-live",
					  "docker-criu",
					  "docker-memory",
					  "docker-memory-predict",
					  "cri-o-names",
					  "criu-config-dir",
					  "restore-others",
					  "keep-tracking",
					  "memory-dram",
					  "docker-memory-min",
					  "docker-cgroup",
					  "docker-weight",
					  "restore-cache",
					  "docker-network-lock",
					  "docker-ghost-limit",
					  "docker-suspend",
					  "docker-stop",
					  "docker-resume",
					  "docker-resume-else",
					  "docker-from",
					  "docker-from-allow",
					  "docker-from-image",
					  "docker-tcp",
					  "docker-stop-order",
					  "docker-restore-qos",
					  "live",
					  "sweep" };

static int unknown(const char *key, const char *path, unsigned line, struct zns_err *err)
{
	char list[480] = "";
	size_t n = 0;

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(known_keys); i++)
		if (!strcmp(key, known_keys[i]))
			return 0;
	/* The keys for containers (docker-KEY) are left out of the message: there are too many. */
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(known_keys) && n < sizeof(list); i++)
		if (strncmp(known_keys[i], "docker-", 7))
			n += (size_t)snprintf(list + n, sizeof(list) - n, "%s, ", known_keys[i]);
	return zns_fail(
		err, -EINVAL,
		"%.160s:%u: \"%.40s\" is not known; keys are %sand docker-KEY of znsctl-docker(8)",
		path, line, key, list);
}

int zns_config_get(const char *key, char *out, size_t len, struct zns_err *err)
{
	cleanup_free uint8_t *text = NULL;
	struct conf_iter it = { 0 };
	char path[PATH_MAX], *k, *v;
	const char *found = NULL;
	size_t size;
	int ret;

	ret = conf_path(path, sizeof(path), err);
	if (!ret)
		ret = conf_load(path, &text, &size, err);
	if (ret)
		return ret;
	it.next = (char *)text;
	/* Reads to the end of the file, so that a bad line is reported whichever key is looked up.
	 * If a key has several lines, the last one counts. */
	while ((ret = conf_next(&it, &k, &v)) > 0) {
		ret = unknown(k, path, it.line, err);
		if (ret)
			return ret;
		if (!strcmp(k, key))
			found = v;
	}
	if (ret)
		return zns_fail(err, ret,
				"%s:%u: not a \"key = value\" line: correct it or put a # in front",
				path, it.line);
	if (!found)
		return zns_fail(err, -ENOENT, "%s: \"%s\" is not set", path, key);
	if (strlen(found) >= len)
		return zns_fail(err, -ENAMETOOLONG, "%s: the value of \"%s\" is too long", path,
				key);
	memcpy(out, found, strlen(found) + 1);
	return 0;
}

int zns_config_deadline(uint32_t *seconds, struct zns_err *err)
{
	struct zns_err local = ZNS_ERR_INIT;
	char text[32] = "";
	uint64_t v;
	int ret = zns_config_get("deadline", text, sizeof(text), err ? err : &local);

	*seconds = ZNS_DEADLINE_S;
	if (ret == -ENOENT) {
		if (err)
			memset(err, 0, sizeof(*err));
		return 0;
	}
	if (ret)
		return ret;
	if (zns_parse_number(text, 0, 3600, &v))
		return zns_fail(err, -EINVAL,
				"zns.conf: deadline = %s: give seconds, 1 to 3600, or 0 for never",
				text);
	*seconds = (uint32_t)v;
	return 0;
}

static int duration_of(const char *key, uint64_t usual, const char *never, uint64_t *seconds,
		       struct zns_err *err)
{
	char text[32] = "";
	struct zns_err local = ZNS_ERR_INIT;
	int ret = zns_config_get(key, text, sizeof(text), &local);

	*seconds = usual;
	if (ret == -ENOENT)
		return 0;
	if (ret) {
		*err = local;
		return ret;
	}
	if (zns_parse_duration(text, seconds))
		return zns_fail(err, -EINVAL,
				"zns.conf: %s = %s: give a duration, e.g. 6h, or 0 for %s", key,
				text, never);
	return 0;
}

int zns_config_keep_tracking(uint64_t *seconds, struct zns_err *err)
{
	return duration_of("keep-tracking", ZNS_KEEP_TRACKING_S, "not at all", seconds, err);
}

int zns_config_sweep(uint64_t *seconds, struct zns_err *err)
{
	return duration_of("sweep", ZNS_SWEEP_S, "never", seconds, err);
}

int zns_config_restore_cache(uint64_t *bytes, struct zns_err *err)
{
	uint64_t all = (uint64_t)zns_max(sysconf(_SC_PHYS_PAGES), 0L) *
		       (uint64_t)sysconf(_SC_PAGESIZE);
	struct zns_err local = ZNS_ERR_INIT;
	char text[32] = "";
	int ret = zns_config_get("restore-cache", text, sizeof(text), &local);

	*bytes = zns_min(MIB(256), all / 16);
	if (ret == -ENOENT)
		return 0;
	if (ret) {
		*err = local;
		return ret;
	}
	*bytes = 0;
	if (strcmp(text, "0") && zns_parse_size(text, bytes))
		return zns_fail(
			err, -EINVAL,
			"zns.conf: restore-cache = %s: give a size, e.g. 256M, or 0 for none",
			text);
	return 0;
}

/* Does this raw line set @key? The line is not changed. */
static bool line_sets(const char *line, size_t len, const char *key)
{
	size_t klen = strlen(key);

	while (len && isspace((unsigned char)*line)) {
		line++;
		len--;
	}
	if (len < klen || memcmp(line, key, klen))
		return false;
	for (line += klen, len -= klen; len && isspace((unsigned char)*line); len--)
		line++;
	return len && *line == '=';
}

int zns_config_set(const char *key, const char *value, struct zns_err *err)
{
	cleanup_close int lock = -1;
	cleanup_free uint8_t *text = NULL;
	cleanup_free char *edited = NULL;
	char path[PATH_MAX];
	size_t size, used = 0, room;
	bool done = false;
	int ret;

	if (!good_key(key))
		return zns_fail(
			err, -EINVAL,
			"\"%s\" is not a configuration key: use lower-case letters, digits and -",
			key);
	if (value && !good_value(value))
		return zns_fail(
			err, -EINVAL,
			"the value of \"%s\" is empty, too long, or has blanks at its ends or control characters",
			key);
	ret = conf_path(path, sizeof(path), err);
	if (ret)
		return ret;
	lock = conf_lock(err);
	if (lock < 0)
		return lock;
	ret = conf_load(path, &text, &size, err);
	if (ret)
		return ret;
	room = size + strlen(key) + (value ? strlen(value) : 0) + 8;
	edited = malloc(room);
	if (!edited)
		return zns_fail(err, -ENOMEM, "out of memory");
	/* All other lines, also comments, stay as the administrator wrote them. */
	for (const char *p = (char *)text, *end = p ? p + size : p; p && p < end;) {
		const char *eol = memchr(p, '\n', end - p);
		size_t n = (eol ? eol : end) - p;

		if (!line_sets(p, n, key)) {
			memcpy(edited + used, p, n);
			used += n;
			edited[used++] = '\n';
		} else if (value && !done) {
			used += sprintf(edited + used, "%s = %s\n", key, value);
			done = true;
		}
		p += n + 1;
	}
	if (value && !done)
		used += sprintf(edited + used, "%s = %s\n", key, value);
	if (used > CONF_MAX)
		return zns_fail(err, -EFBIG, "%s would grow beyond %d bytes", path, CONF_MAX);
	ret = zns_replace_file(AT_FDCWD, path, edited, used, 0600);
	if (ret)
		return zns_fail_sys(err, ret, "cannot write %s", path);
	return 0;
}
