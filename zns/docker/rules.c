/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reads docker.rules in the configuration directory. Each line is a rule: "name=PATTERN" and
 * "image=PATTERN" (shell patterns; if both are given, both must match), then settings such as
 * "qos=500". Each setting is taken from the first matching rule that has it.
 */
#include <fcntl.h>
#include <fnmatch.h>
#include <string.h>
#include "docker.h"
#include "zns/config.h"

#define RULES_MAX 65536

struct rule {
	const char *path;
	unsigned int line;
	bool fits, conditions;
};

/*
 * A pattern without a slash, such as "worker-*", is meant for containers of Docker. So it does not
 * match NAMESPACE/POD/CONTAINER or podman/NAME, unless it is only a star.
 */
static bool name_fits(const char *pattern, const char *name)
{
	return (!strchr(name, '/') || strchr(pattern, '/') || !strcmp(pattern, "*")) &&
	       !fnmatch(pattern, name, 0);
}

static int word(const struct docker_container *c, struct docker_settings *s, struct rule *r,
		char *w, struct zns_err *err)
{
	char *value = strchr(w, '='), where[PATH_MAX + 64];
	int key, ret;

	if (!value)
		return zns_fail(err, -EINVAL, "%s:%u: \"%.60s\" is not KEY=VALUE", r->path, r->line,
				w);
	*value++ = 0;
	if (!strcmp(w, "name") || !strcmp(w, "image")) {
		if (!*value)
			return zns_fail(err, -EINVAL, "%s:%u: %s= wants a pattern", r->path,
					r->line, w);
		r->conditions = true;
		r->fits &= *w == 'n' ? name_fits(value, c->name) : docker_image_fits(c, value);
		return 0;
	}
	for (key = 0; key < DOCKER_NR_KEYS; key++)
		if (!strcmp(w, docker_key_name[key]))
			break;
	if (key == DOCKER_NR_KEYS)
		return zns_fail(
			err, -EINVAL,
			"%s:%u: \"%.60s\" is not known: name, image, qos, admission, alloc, stripe, dev, weight, cgroup, live, network-lock, criu, memory, memory-predict, memory-min, ghost-limit, suspend, stop, resume, resume-else, from, from-allow, from-image, tcp, stop-order or restore-qos",
			r->path, r->line, w);
	if (!r->conditions)
		return zns_fail(err, -EINVAL, "%s:%u: name=PATTERN or image=PATTERN comes first",
				r->path, r->line);
	/* check a rule that does not match too, so that mistakes are reported at once */
	snprintf(where, sizeof(where), "%s:%u: %s", r->path, r->line, w);
	ret = docker_setting_check(key, value, where, err);
	if (ret)
		return ret;
	if (r->fits && key == DOCKER_MEMORY && !strcmp(value, DOCKER_MEMORY_NEVER) &&
	    s->source[key] && strcmp(s->source[key], "rule") && strcmp(s->value[key], "no"))
		return zns_fail(err, -EPERM, "%s:%u: this container may not have zns.memory",
				r->path, r->line);
	if (r->fits && !s->source[key]) {
		snprintf(s->value[key], sizeof(s->value[key]), "%s", value);
		s->source[key] = "rule";
	}
	return 0;
}

int docker_rules(const struct docker_container *c, struct docker_settings *s, struct zns_err *err)
{
	cleanup_free uint8_t *text = NULL;
	char path[PATH_MAX], *line, *next, *w, *save, *hash;
	struct rule r = { .path = path };
	size_t len;
	int ret;

	if ((size_t)snprintf(path, sizeof(path), "%s/docker.rules", zns_config_dir()) >=
	    sizeof(path))
		return zns_fail(err, -ENAMETOOLONG, "configuration directory name is too long");
	ret = zns_read_file(AT_FDCWD, path, RULES_MAX, &text, &len);
	if (ret == -ENOENT)
		return 0;
	if (ret)
		return zns_fail_sys(err, ret, "cannot read %s", path);
	for (line = (char *)text; line; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = 0;
		hash = strchr(line, '#');
		if (hash)
			*hash = 0;
		r.line++;
		r.fits = true;
		r.conditions = false;
		for (w = strtok_r(line, " \t\r", &save); w; w = strtok_r(NULL, " \t\r", &save)) {
			ret = word(c, s, &r, w, err);
			if (ret)
				return ret;
		}
	}
	return 0;
}
