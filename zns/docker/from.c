/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * zns.from: a new container begins with the memory of another one's checkpoint. Whoever creates a
 * container may ask for it, and only the administrator's rules say which ones it may have. A
 * checkpoint is named as CONTAINER/NAME or by its id in the catalogue, never by a path.
 */
#include <fnmatch.h>
#include <string.h>
#include "docker.h"

struct search {
	const char *root, *wanted;
	struct docker_resume *r;
	bool found;
};

static int is_wanted(void *arg, const char *container_id, const char *name, const char *dir,
		     const uint8_t id[ZNS_UUID_LEN])
{
	struct search *f = arg;
	struct docker_container c;
	char full[sizeof(f->r->name)], text[ZNS_UUID_STR];

	/* of a container whose description cannot be trusted nothing is known */
	if (!docker_container_read_root(f->root, container_id, &c, NULL)) {
		snprintf(full, sizeof(full), "%s/%s", c.name, name);
		f->found = !strcmp(f->wanted, full) ||
			   !strcmp(f->wanted, zns_uuid_format(id, text));
	}
	docker_container_fini(&c);
	if (!f->found)
		return 0;
	snprintf(f->r->name, sizeof(f->r->name), "%s", full);
	snprintf(f->r->dir, sizeof(f->r->dir), "%s", dir);
	zns_uuid_format(id, f->r->from);
	return 1;
}

/* Patterns with commas between them. */
static bool allows(const char *patterns, const char *name)
{
	char list[DOCKER_SETTING_MAX], *save;

	snprintf(list, sizeof(list), "%s", patterns);
	for (char *p = strtok_r(list, ",", &save); p; p = strtok_r(NULL, ",", &save))
		if (!fnmatch(p, name, 0))
			return true;
	return false;
}

/* A rule or a default that says it is the administrator's own word. */
static bool may(const struct docker_settings *s, const char *name)
{
	const char *source = s->source[DOCKER_FROM];

	return !strcmp(source, "rule") || !strcmp(source, "default") ||
	       (s->source[DOCKER_FROM_ALLOW] && allows(s->value[DOCKER_FROM_ALLOW], name));
}

int docker_from(const struct docker_container *c, const struct docker_settings *s,
		struct docker_resume *r, struct zns_err *err)
{
	struct search f = { .root = c->root, .wanted = s->value[DOCKER_FROM], .r = r };
	int ret;

	ret = docker_each_handle(c->root, is_wanted, &f);
	if (ret < 0)
		return zns_fail_sys(err, ret, "%s", c->root);
	if (f.found && may(s, r->name))
		return 0;
	*r->dir = *r->name = *r->from = 0;
	return zns_fail(err, -EPERM,
			"zns.from=%s: there is no such checkpoint, or no from-allow=PATTERN of "
			"docker.rules allows it",
			f.wanted);
}
