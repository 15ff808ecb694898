/* SPDX-License-Identifier: GPL-2.0-only */
/* Collects the settings of a container from all places. */
#include <ctype.h>
#include <string.h>
#include <sys/stat.h>
#include "docker.h"
#include "zns/config.h"
#include "zns/layout.h"

const char *const docker_key_name[DOCKER_NR_KEYS] = {
	"qos",        "admission",   "alloc",        "stripe", "dev",        "weight",
	"cgroup",     "live",        "network-lock", "criu",   "memory",     "memory-predict",
	"memory-min", "ghost-limit", "suspend",      "stop",   "resume",     "resume-else",
	"from",       "from-allow",  "from-image",   "tcp",    "stop-order", "restore-qos"
};

const char *const docker_flags[] = { "tcp-established", "ext-unix-sk", "tcp-skip-in-flight",
				     "shell-job", NULL };

static int check_flags(const char *value, const char *where, struct zns_err *err)
{
	const char *p = value;
	size_t i, n;

	for (; *p; p += n + (p[n] == ',')) {
		n = strcspn(p, ",");
		for (i = 0; docker_flags[i]; i++)
			if (strlen(docker_flags[i]) == n && !strncmp(p, docker_flags[i], n))
				break;
		if (!docker_flags[i])
			return zns_fail(
				err, -EINVAL,
				"%s: \"%.*s\" is not known: tcp-established, ext-unix-sk, tcp-skip-in-flight or "
				"shell-job, with commas between them",
				where, (int)zns_min(n, (size_t)60), p);
	}
	return 0;
}

/*
 * Is this a valid value of zns.from? An id; CONTAINER/NAME; or for a pod NAMESPACE/POD/CONTAINER
 * and a checkpoint's id.
 */
static bool is_from(const char *value)
{
	char text[DOCKER_SETTING_MAX], *at = text, *word;
	bool good = true;
	int nr = 0;

	snprintf(text, sizeof(text), "%s", value);
	while (good && (word = strsep(&at, "/"))) {
		good = docker_good_word(word);
		nr++;
	}
	return good && (nr == 1 || nr == 2 || nr == 4);
}

int docker_setting_check(enum docker_key key, const char *value, const char *where,
			 struct zns_err *err)
{
	struct docker_memory m;
	uint64_t size;
	uint32_t mibps;
	const char *p;

	if (!*value || strlen(value) >= sizeof(((struct docker_settings *)0)->value[0]))
		return zns_fail(err, -EINVAL, "%s: a value of 1 to 255 characters is wanted",
				where);
	/*
	 * The value is written to a configuration file of criu, in which # begins a comment and a
	 * blank ends a word.
	 */
	for (p = value; *p; p++)
		if (!isalnum((unsigned char)*p) && !strchr("./:=_-+@%,", *p) &&
		    !(key == DOCKER_FROM_ALLOW && strchr("*?[]", *p)))
			return zns_fail(err, -EINVAL,
					"%s: \"%.60s\" has a character that is not allowed", where,
					value);
	switch (key) {
	case DOCKER_QOS:
	case DOCKER_RESTORE_QOS:
		if (zns_parse_mibps(value, &mibps))
			return zns_fail(
				err, -EINVAL,
				"%s: \"%.60s\" is no bandwidth; write 500, 500MiB/s or 2GiB/s",
				where, value);
		break;
	case DOCKER_ADMISSION:
		if (strcmp(value, "share") && strcmp(value, "reject") && strcmp(value, "wait") &&
		    (strncmp(value, "wait=", 5) || !value[5] ||
		     strspn(value + 5, "0123456789") != strlen(value + 5)))
			return zns_fail(
				err, -EINVAL,
				"%s: \"%.60s\" is not known: share, wait[=SECONDS] or reject",
				where, value);
		break;
	case DOCKER_ALLOC:
		if (strcmp(value, "static") && strcmp(value, "dynamic"))
			return zns_fail(err, -EINVAL,
					"%s: \"%.60s\" is not known: static or dynamic", where,
					value);
		break;
	case DOCKER_STRIPE:
		if (zns_parse_size(value, &size) || size < ZNS_STRIPE_UNIT_MIN ||
		    size > ZNS_STRIPE_UNIT_MAX || size % 4096)
			return zns_fail(
				err, -EINVAL,
				"%s: \"%.60s\" is no size of a stripe; write 64K to 4M, a multiple of 4K",
				where, value);
		break;
	/* must be absolute: a relative path would depend on the container's bundle */
	case DOCKER_DEV:
		if (*value == '.' || (zns_spec_named(value) && *zns_spec_path(value) != '/'))
			return zns_fail(err, -EINVAL, "%s: \"%.60s\": give an absolute path", where,
					value);
		break;
	case DOCKER_WEIGHT:
		if (zns_parse_number(value, ZNS_WEIGHT_MIN, ZNS_WEIGHT_MAX, &size))
			return zns_fail(err, -EINVAL, "%s: \"%.60s\" is no weight: %u to %u", where,
					value, ZNS_WEIGHT_MIN, ZNS_WEIGHT_MAX);
		break;
	case DOCKER_CGROUP:
		if (strcmp(value, "leave") && strcmp(value, "own") && strcmp(value, "container"))
			return zns_fail(err, -EINVAL,
					"%s: \"%.60s\" is not known: leave, own or container",
					where, value);
		break;
	case DOCKER_LIVE:
		if (strcmp(value, "auto") && strcmp(value, "yes") && strcmp(value, "durable") &&
		    strcmp(value, "no"))
			return zns_fail(err, -EINVAL,
					"%s: \"%.60s\" is not known: auto, yes, durable or no",
					where, value);
		break;
	case DOCKER_NETWORK_LOCK:
		if (strcmp(value, "nftables") && strcmp(value, "iptables") && strcmp(value, "skip"))
			return zns_fail(err, -EINVAL,
					"%s: \"%.60s\" is not known: nftables, iptables or skip",
					where, value);
		break;
	case DOCKER_CRIU:
		return check_flags(value, where, err);
	case DOCKER_MEMORY:
		return docker_memory_parse(value, where, &m, err);
	case DOCKER_MEMORY_MIN:
		if (zns_parse_size(value, &size) || size < MIB(1))
			return zns_fail(err, -EINVAL, "%s: \"%.60s\" is no size of 1M at least",
					where, value);
		break;
	case DOCKER_GHOST_LIMIT:
		if (zns_parse_size(value, &size) || size > INT64_MAX)
			return zns_fail(err, -EINVAL, "%s: \"%.60s\" is no size; write 64M or 2G",
					where, value);
		break;
	case DOCKER_SUSPEND:
		if (strcmp(value, "yes") && strcmp(value, "no"))
			return zns_fail(err, -EINVAL, "%s: \"%.60s\" is not known: yes or no",
					where, value);
		break;
	case DOCKER_STOP:
		if (strcmp(value, "signal") && strcmp(value, "checkpoint"))
			return zns_fail(err, -EINVAL,
					"%s: \"%.60s\" is not known: signal or checkpoint", where,
					value);
		break;
	case DOCKER_RESUME:
		if (!docker_good_word(value))
			return zns_fail(
				err, -EINVAL,
				"%s: \"%.60s\" is not known: no, ended, latest or a checkpoint's name",
				where, value);
		break;
	case DOCKER_TCP:
		if (strcmp(value, "keep") && strcmp(value, "close") && strcmp(value, "auto"))
			return zns_fail(err, -EINVAL,
					"%s: \"%.60s\" is not known: keep, close or auto", where,
					value);
		break;
	case DOCKER_FROM:
		if (!is_from(value))
			return zns_fail(
				err, -EINVAL,
				"%s: \"%.60s\" is not known: CONTAINER/CHECKPOINT, or a checkpoint's id (of a pod, NAMESPACE/POD/CONTAINER/CHECKPOINT)",
				where, value);
		break;
	case DOCKER_STOP_ORDER:
		if (zns_parse_number(value, 0, 1000000, &size))
			return zns_fail(err, -EINVAL, "%s: \"%.60s\" is no number of 0 to 1000000",
					where, value);
		break;
	case DOCKER_RESUME_ELSE:
		if (strcmp(value, "cold") && strcmp(value, "fail"))
			return zns_fail(err, -EINVAL, "%s: \"%.60s\" is not known: cold or fail",
					where, value);
		break;
	case DOCKER_FROM_IMAGE:
		if (strcmp(value, "same") && strcmp(value, "name"))
			return zns_fail(err, -EINVAL, "%s: \"%.60s\" is not known: same or name",
					where, value);
		break;
	case DOCKER_MEMORY_PREDICT:
		if (strcmp(value, "on") && strcmp(value, "off"))
			return zns_fail(err, -EINVAL, "%s: \"%.60s\" is not known: on or off",
					where, value);
		break;
	default:
		break;
	}
	return 0;
}

static int take(struct docker_settings *s, enum docker_key key, const char *value,
		const char *source, const char *where, struct zns_err *err)
{
	int ret;

	if (!value || s->source[key])
		return 0;
	ret = docker_setting_check(key, value, where, err);
	if (ret)
		return ret;
	snprintf(s->value[key], sizeof(s->value[key]), "%s", value);
	s->source[key] = source;
	return 0;
}

static const char *env_value(struct json_object *env, const char *name)
{
	size_t len = strlen(name);
	const char *found = NULL, *s;

	for (size_t i = 0; i < zns_json_len(env); i++) {
		s = json_object_get_string(json_object_array_get_idx(env, i));
		if (s && !strncmp(s, name, len) && s[len] == '=')
			/* the last assignment is used, as the process itself would */
			found = s + len + 1;
	}
	return found;
}

static bool is_admins(int key)
{
	return key == DOCKER_CGROUP || key == DOCKER_FROM_ALLOW || key == DOCKER_FROM_IMAGE;
}

static int take_own(const struct docker_container *c, struct docker_settings *s,
		    enum docker_key key, struct zns_err *err)
{
	char name[32], var[32], where[80];
	const char *v;
	size_t i;
	int ret;

	if (is_admins(key))
		return 0;
	snprintf(name, sizeof(name), "zns.%s", docker_key_name[key]);
	snprintf(var, sizeof(var), "ZNS_%s", docker_key_name[key]);
	for (i = 4; var[i]; i++)
		var[i] = (char)toupper((unsigned char)var[i]);
	snprintf(where, sizeof(where), "annotation %s", name);
	ret = take(s, key, zns_json_str(c->annotations, name), "annotation", where, err);
	snprintf(where, sizeof(where), "label %s", name);
	if (!ret)
		ret = take(s, key, zns_json_str(c->labels, name), "label", where, err);
	/*
	 * Environment variables cannot set these: an image contains variables of its own, and these
	 * settings are for the person who starts the container.
	 */
	v = key >= DOCKER_DEV ? NULL : env_value(c->env, var);
	snprintf(where, sizeof(where), "variable %s", var);
	return ret ? ret : take(s, key, v, "environment", where, err);
}

static int take_default(struct docker_settings *s, enum docker_key key, struct zns_err *err)
{
	char name[32], where[80], value[256];
	int ret;

	if (s->source[key])
		return 0;
	snprintf(name, sizeof(name), "docker-%s", docker_key_name[key]);
	ret = zns_config_get(name, value, sizeof(value), err);
	if (ret == -ENOENT)
		return 0;
	if (ret)
		return ret;
	snprintf(where, sizeof(where), "%s of zns.conf", name);
	return take(s, key, value, "default", where, err);
}

static bool in_dir(const char *file, const char *dir)
{
	size_t n = strlen(dir);

	return n && !strncmp(file, dir, n) && file[n] == '/' && file[n + 1] &&
	       !strchr(file + n + 1, '/');
}

/*
 * criu runs scripts that its configuration names, as root. A container's creator may choose one of
 * the administrator's files but must not write one, and through volumes a creator can place files
 * on the host that root owns. So the file must be in a directory of the administrator.
 */
static int admin_file(const struct docker_settings *s, uint8_t **text, size_t *len,
		      struct zns_err *err)
{
	char own[PATH_MAX] = "";
	const char *const dirs[] = { zns_config_dir(), "/etc/criu", own };
	int ret = zns_config_get("criu-config-dir", own, sizeof(own), err);

	if (ret && ret != -ENOENT)
		return ret;
	err->code = 0;
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(dirs); i++) {
		if (!in_dir(s->criu_config, dirs[i]))
			continue;
		ret = docker_read_admin(dirs[i], s->criu_config + strlen(dirs[i]) + 1, 65536, text,
					len, err);
		return ret == -ENOENT ?
			       zns_fail(err, ret, "annotation org.criu.config: there is no file %s",
					s->criu_config) :
		       ret ? zns_wrap(err, "annotation org.criu.config") :
			     0;
	}
	return zns_fail(
		err, -EINVAL,
		"annotation org.criu.config: %.200s is not in %s, nor in /etc/criu or the criu-config-dir of "
		"zns.conf, where the administrator puts such files",
		s->criu_config, zns_config_dir());
}

/* the option and its value must be one word */
static void take_live(struct docker_settings *s, const char *word)
{
	const char *value = strncmp(word, "zns-live=", 9) ? "yes" : word + 9;

	if (strncmp(word, "zns-live", 8) || (word[8] && word[8] != '='))
		return;
	snprintf(s->value[DOCKER_LIVE], sizeof(s->value[DOCKER_LIVE]), "%s", value);
	s->source[DOCKER_LIVE] = "org.criu.config";
}

/* Reads the lines "zns-KEY VALUE" of criu's own configuration file. criu reads the other lines. */
static int take_file(struct docker_settings *s, struct zns_err *err)
{
	cleanup_free uint8_t *text = NULL;
	char *line, *next, *k, *v, *save, where[PATH_MAX + 64];
	size_t len;
	int key, ret;

	ret = admin_file(s, &text, &len, err);
	if (ret)
		return ret;
	for (line = (char *)text; line; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = 0;
		line[strcspn(line, "#")] = 0;
		k = strtok_r(line, " \t\r", &save);
		v = k ? strtok_r(NULL, " \t\r\"", &save) : NULL;
		if (k)
			take_live(s, k);
		for (key = 0; v && !strncmp(k, "zns-", 4) && key < DOCKER_LIVE; key++) {
			if (strcmp(k + 4, docker_key_name[key]))
				continue;
			s->source[key] = NULL; /* the last of several lines is used */
			snprintf(where, sizeof(where), "%s: %s", s->criu_config, k);
			ret = take(s, key, v, "org.criu.config", where, err);
			if (ret)
				return ret;
		}
	}
	return 0;
}

static int check_device(const struct docker_settings *s, struct zns_err *err)
{
	const char *dev = s->source[DOCKER_DEV] ? s->value[DOCKER_DEV] : NULL;
	struct zns_registered reg;

	if (!dev || !strcmp(dev, "none") || !zns_resolve_device(dev, &reg, err))
		return 0;
	/* give no reason: it would tell the creator which paths exist on the host */
	if (strcmp(s->source[DOCKER_DEV], "rule"))
		return zns_fail(err, -ENOENT, "%s zns.dev: no device of this name is registered",
				s->source[DOCKER_DEV]);
	return zns_wrap(err, "%s zns.dev", s->source[DOCKER_DEV]);
}

bool docker_wants_live(const struct docker_settings *s)
{
	return s->source[DOCKER_LIVE] && strcmp(s->value[DOCKER_LIVE], "no") &&
	       strcmp(s->value[DOCKER_LIVE], "auto");
}

/* zns.suspend sets both zns.stop and zns.resume, unless these are set themselves. */
static void take_suspend(struct docker_settings *s)
{
	static const struct {
		enum docker_key key;
		const char *value;
	} means[] = { { DOCKER_STOP, "checkpoint" }, { DOCKER_RESUME, "ended" } };

	if (!s->source[DOCKER_SUSPEND] || strcmp(s->value[DOCKER_SUSPEND], "yes"))
		return;
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(means); i++) {
		if (s->source[means[i].key])
			continue;
		strcpy(s->value[means[i].key], means[i].value);
		s->source[means[i].key] = s->source[DOCKER_SUSPEND];
	}
}

/*
 * Refuses a live dump for a CRI. A CRI copies the root file system too, and pauses the container so
 * that files and memory are of the same moment.
 */
static int check_live(const struct docker_container *c, const struct docker_settings *s,
		      struct zns_err *err)
{
	if (strcmp(c->kind, "cri") || !docker_wants_live(s))
		return 0;
	return zns_fail(
		err, -EINVAL,
		"%s zns.live: not in Kubernetes, where the pause keeps a container's files and memory "
		"together",
		s->source[DOCKER_LIVE]);
}

int docker_settings_own(const struct docker_container *c, struct docker_settings *s,
			struct zns_err *err)
{
	const char *file = zns_json_str(c->annotations, "org.criu.config");
	int key, ret = 0;

	memset(s, 0, sizeof(*s));
	/* runc treats a missing file as an empty one. */
	if (file && *file) {
		if (strlen(file) >= sizeof(s->criu_config))
			return zns_fail(err, -ENAMETOOLONG,
					"annotation org.criu.config: the path is too long");
		snprintf(s->criu_config, sizeof(s->criu_config), "%s", file);
		ret = take_file(s, err);
	}
	for (key = 0; !ret && key < DOCKER_NR_KEYS; key++)
		ret = take_own(c, s, key, err);
	if (!ret)
		ret = check_live(c, s, err);
	return ret ? ret : check_device(s, err);
}

static int known(struct json_object *o, const char *what, struct zns_err *err)
{
	size_t i;

	if (!o || !json_object_is_type(o, json_type_object))
		return 0;
	json_object_object_foreach(o, name, value)
	{
		(void)value;
		if (strncmp(name, "zns.", 4))
			continue;
		for (i = 0; i < DOCKER_NR_KEYS; i++)
			if (!strcmp(name + 4, docker_key_name[i]))
				break;
		if (is_admins((int)i))
			return zns_fail(
				err, -EPERM,
				"%s zns.%s can be set only by the administrator, in docker.rules or zns.conf",
				what, docker_key_name[i]);
		if (i == DOCKER_NR_KEYS)
			return zns_fail(
				err, -EINVAL,
				"%s %.*s is not known: zns.qos, zns.admission, zns.alloc, zns.stripe, "
				"zns.dev, zns.weight, zns.live, zns.network-lock, zns.criu, zns.memory, zns.memory-predict, "
				"zns.memory-min, zns.ghost-limit, zns.suspend, zns.stop, zns.resume, zns.resume-else, zns.from, zns.tcp, zns.stop-order or zns.restore-qos",
				what, (int)zns_min(strcspn(name, "\n\r\t\033\"\\"), (size_t)60),
				name);
	}
	return 0;
}

int docker_settings_known(const struct docker_container *c, struct zns_err *err)
{
	int ret = known(c->annotations, "annotation", err);

	return ret ? ret : known(c->labels, "label", err);
}

int docker_settings_read(const struct docker_container *c, struct docker_settings *s,
			 struct zns_err *err)
{
	int key, ret = docker_settings_own(c, s, err);

	if (!ret)
		ret = docker_rules(c, s, err);
	for (key = 0; !ret && key < DOCKER_NR_KEYS; key++)
		ret = take_default(s, key, err);
	if (!ret)
		take_suspend(s);
	if (!strcmp(c->kind, "cri"))
		/* ignore it: a rule or default may be meant for other containers */
		s->source[DOCKER_LIVE] = NULL;
	err->code = ret; /* if there is no such default, @err has been set: restore the code */
	return ret;
}

int docker_run_path(const char *id, const char *suffix, char *out, size_t len, struct zns_err *err)
{
	char dir[PATH_MAX];

	if ((size_t)snprintf(dir, sizeof(dir), "%s/docker", zns_run_dir()) >= sizeof(dir) ||
	    (size_t)snprintf(out, len, "%s/%s.%s", dir, id, suffix) >= len)
		return zns_fail(err, -ENAMETOOLONG, "runtime directory %s: its name is too long",
				zns_run_dir());
	if ((mkdir(zns_run_dir(), 0700) && errno != EEXIST) ||
	    (mkdir(dir, 0700) && errno != EEXIST))
		return zns_fail_sys(err, -errno, "cannot make %s", dir);
	return 0;
}

void docker_run_unlink(const char *id, const char *suffix)
{
	char path[PATH_MAX];

	if (!docker_run_path(id, suffix, path, sizeof(path), NULL))
		unlink(path);
}
