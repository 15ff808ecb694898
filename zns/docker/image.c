/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The names of a container's image, for `image=` in docker.rules: the name given to `docker run`.
 * If an id or the beginning of one was given, all names that Docker has for this image are
 * compared, so that nobody can evade a rule by naming the image in another way.
 */
#include <fnmatch.h>
#include <string.h>
#include "docker.h"

#define ALGORITHM "sha256:"
#define REPOSITORIES_MAX MIB(16)

static const char *digits(const char *id)
{
	return !strncmp(id, ALGORITHM, strlen(ALGORITHM)) ? id + strlen(ALGORITHM) : id;
}

/* Returns the id of the image if the user gave an id; else NULL. */
static const char *given_by_id(const struct docker_container *c)
{
	const char *id = c->config ? zns_json_str(c->config, "Image") : NULL;
	const char *given = digits(c->image);

	return id && *given && !strncmp(digits(id), given, strlen(given)) ? id : NULL;
}

/*
 * Reads the file {"Repositories":{"nginx":{"nginx:1":"sha256:…","nginx@sha256:…":"sha256:…"},…}}.
 * NULL: this version of Docker stores its images elsewhere.
 */
static struct json_object *repositories(const struct docker_container *c)
{
	const char *driver = zns_json_str(c->config, "Driver");
	cleanup_free uint8_t *text = NULL;
	struct zns_err err = ZNS_ERR_INIT;
	struct json_object *j = NULL;
	char dir[PATH_MAX + 320];
	size_t len;

	if (!driver || strlen(driver) > 255 || !docker_good_word(driver))
		return NULL;
	snprintf(dir, sizeof(dir), "%s/image/%s", c->root, driver);
	if (docker_read_admin(dir, "repositories.json", REPOSITORIES_MAX, &text, &len, &err) ||
	    zns_json_parse(dir, text, len, &j, &err))
		return NULL;
	return j;
}

static bool one_fits(struct json_object *names, const char *id, const char *pattern)
{
	bool fits = false;

	json_object_object_foreach(names, name, of)
	{
		const char *its = json_object_is_type(of, json_type_string) ?
					  json_object_get_string(of) :
					  "";

		fits |= !strcmp(its, id) && !fnmatch(pattern, name, 0);
	}
	return fits;
}

bool docker_image_fits(const struct docker_container *c, const char *pattern)
{
	const char *id = given_by_id(c);
	struct json_object *j, *all;
	bool fits = false;

	if (!fnmatch(pattern, c->image, 0))
		return true;
	j = id ? repositories(c) : NULL;
	all = j ? zns_json_get(j, "Repositories") : NULL;
	if (all && json_object_is_type(all, json_type_object)) {
		json_object_object_foreach(all, repository, names)
		{
			if (json_object_is_type(names, json_type_object) && *repository)
				fits |= one_fits(names, id, pattern);
		}
	}
	json_object_put(j);
	return fits;
}
