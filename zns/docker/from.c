/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * zns.from: a new container begins with the memory of another container's checkpoint. The creator
 * of a container may request that, but only the administrator's rules say which checkpoints are
 * allowed. A checkpoint is named as CONTAINER/NAME or by its id in the catalogue, never by a path.
 */
#include <fnmatch.h>
#include <string.h>
#include "docker.h"

/*
 * Does a pattern of the comma-separated list @patterns match @name? A star does not match a slash:
 * a pattern for Docker's containers, such as "warm/" and a star, must not match names in a
 * namespace of Kubernetes.
 */
static bool allows(const char *patterns, const char *name)
{
	char list[DOCKER_SETTING_MAX], *save;

	snprintf(list, sizeof(list), "%s", patterns);
	for (char *p = strtok_r(list, ",", &save); p; p = strtok_r(NULL, ",", &save))
		if (!fnmatch(p, name, FNM_PATHNAME))
			return true;
	return false;
}

bool docker_from_allowed(const struct docker_settings *s, const char *name)
{
	const char *source = s->source[DOCKER_FROM];

	return !strcmp(source, "rule") || !strcmp(source, "default") ||
	       (s->source[DOCKER_FROM_ALLOW] && allows(s->value[DOCKER_FROM_ALLOW], name));
}

struct search {
	const struct docker_container *c;
	const struct docker_settings *s;
	struct docker_resume *r;
	/* the property in which @c differs from the owner of a checkpoint that would be allowed */
	const char *differs;
	char owner[sizeof(((struct docker_container *)0)->name)];
};

/*
 * Compares the engine's descriptions of both containers. Another image would combine the memory
 * with other files, which the image's creator chose.
 */
static const char *difference(const struct docker_container *was,
			      const struct docker_container *now)
{
	static const struct {
		const char *key, *what;
	} same[] = { { "Image", "image" },
		     { "Path", "program" },
		     { "Args", "program's arguments" } };

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(same); i++) {
		struct json_object *a = zns_json_get(was->config, same[i].key);

		if (!a || !json_object_equal(a, zns_json_get(now->config, same[i].key)))
			return same[i].what;
	}
	return NULL;
}

/*
 * Several containers may have the handle, since clones have a copy. One of them must be allowed and
 * match; the search ends at the first.
 */
static int is_wanted(void *arg, const char *container_id, const char *name, const char *dir,
		     const uint8_t id[ZNS_UUID_LEN])
{
	const char *wanted = ((struct search *)arg)->s->value[DOCKER_FROM];
	char full[sizeof(((struct docker_resume *)0)->name)], text[ZNS_UUID_STR];
	struct search *f = arg;
	struct docker_container c;
	bool found = false;

	/* skip a container whose description cannot be trusted */
	if (!docker_container_read_root(f->c->root, container_id, &c, NULL)) {
		snprintf(full, sizeof(full), "%s/%s", c.name, name);
		if ((!strcmp(wanted, full) || !strcmp(wanted, zns_uuid_format(id, text))) &&
		    docker_from_allowed(f->s, full)) {
			f->differs = difference(&c, f->c);
			found = !f->differs;
			snprintf(f->owner, sizeof(f->owner), "%s", c.name);
		}
	}
	docker_container_fini(&c);
	if (!found)
		return 0;
	snprintf(f->r->name, sizeof(f->r->name), "%s", full);
	snprintf(f->r->dir, sizeof(f->r->dir), "%s", dir);
	zns_uuid_format(id, f->r->from);
	return 1;
}

int docker_from_refused(const struct docker_settings *s, struct zns_err *err)
{
	return zns_fail(err, -EPERM,
			"zns.from=%s: there is no such checkpoint, or no from-allow=PATTERN of "
			"docker.rules allows it",
			s->value[DOCKER_FROM]);
}

int docker_from(const struct docker_container *c, const struct docker_settings *s,
		struct docker_resume *r, struct zns_err *err)
{
	struct search f = { .c = c, .s = s, .r = r };
	int ret;

	ret = docker_each_handle(c->root, is_wanted, &f);
	if (ret < 0)
		return zns_fail_sys(err, ret, "cannot look for checkpoints in %s", c->root);
	if (ret)
		return 0;
	*r->dir = *r->name = *r->from = 0;
	if (f.differs)
		return zns_fail(err, -EPERM, "zns.from=%s: the container differs from %s in its %s",
				s->value[DOCKER_FROM], f.owner, f.differs);
	return docker_from_refused(s, err);
}
