/* SPDX-License-Identifier: GPL-2.0-only */
/* See oci.h. The layout may come from any user, so everything in it is checked. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include "../ctl/lib/ctl.h"
#include "oci.h"
#include "zns/json.h"
#include "zns/safeopen.h"

#define INDEX_MAX MIB(1)
#define MANIFEST_MAX MIB(4) /* most bytes of a manifest; registries have the same limit */
#define LAYERS_MAX 1000
#define CHUNK MIB(1)
#define MEDIA "application/vnd.oci.image."
#define DOCKER_MANIFEST "application/vnd.docker.distribution.manifest.v2+json"

static const char *note(struct json_object *o, const char *key)
{
	return zns_json_str(zns_json_get(o, "annotations"), key);
}

static bool is_manifest(struct json_object *m)
{
	const char *type = zns_json_str(m, "mediaType");

	return type && (!strcmp(type, MEDIA "manifest.v1+json") || !strcmp(type, DOCKER_MANIFEST));
}

/* Reads the digest and the size from a descriptor. */
static int take(struct json_object *d, struct ctl_oci_layer *out, struct zns_err *err)
{
	const char *digest = zns_json_str(d, "digest");
	struct json_object *size = zns_json_get(d, "size");

	if (!ctl_oci_digest(digest))
		return zns_fail(err, -EBADMSG, "a digest in it is not sha256 and 64 digits");
	if (!json_object_is_type(size, json_type_int) || json_object_get_int64(size) < 0)
		return zns_fail(err, -EBADMSG, "%s: its size is not given", digest);
	strcpy(out->digest, digest);
	out->size = (uint64_t)json_object_get_int64(size);
	return 0;
}

int ctl_oci_blob_open(const struct ctl_oci_image *i, const struct ctl_oci_layer *l, struct stat *st,
		      struct zns_err *err)
{
	int fd = zns_open_file(i->blobs, ctl_oci_digits(l->digest), st), ret = 0;

	if (fd < 0)
		return zns_fail(err, fd, "%s: %s", l->digest, zns_open_why(fd));
	if (zns_planted(i->blobs, st))
		ret = zns_fail(err, -EPERM, "%s is a hard link to a file of another user: copy it",
			       l->digest);
	else if ((uint64_t)st->st_size != l->size)
		ret = zns_fail(err, -EBADMSG,
			       "%s has %lld bytes instead of %llu: copy the image anew", l->digest,
			       (long long)st->st_size, (unsigned long long)l->size);
	if (ret)
		close(fd);
	return ret ? ret : fd;
}

int ctl_oci_check_begin(struct ctl_oci_check *c, const struct ctl_oci_layer *l, struct zns_err *err)
{
	*c = (struct ctl_oci_check){ .layer = l, .sha = ctl_sha_new() };
	return c->sha ? 0 : zns_fail(err, -ENOMEM, "no memory for a digest");
}

void ctl_oci_check_add(void *check, const void *buf, size_t len)
{
	struct ctl_oci_check *c = check;

	c->bytes += len;
	ctl_sha_add(c->sha, buf, len);
}

int ctl_oci_check_end(struct ctl_oci_check *c, struct zns_err *err)
{
	char digest[CTL_OCI_DIGEST];

	ctl_sha_end(c->sha, digest);
	c->sha = NULL;
	if (c->bytes == c->layer->size && !strcmp(digest, c->layer->digest))
		return 0;
	return zns_fail(err, -EBADMSG, "%s does not match its digest: copy the image anew",
			c->layer->digest);
}

void ctl_oci_check_drop(struct ctl_oci_check *c)
{
	char digest[CTL_OCI_DIGEST];

	if (c->sha)
		ctl_sha_end(c->sha, digest);
	c->sha = NULL;
}

int ctl_oci_blob(const struct ctl_oci_image *i, const struct ctl_oci_layer *l, struct stat *st,
		 struct zns_err *err)
{
	int fd = ctl_oci_blob_open(i, l, st, err), ret;
	cleanup_free uint8_t *buf = malloc(CHUNK);
	struct ctl_oci_check check = { .sha = NULL };

	if (fd < 0)
		return fd;
	ret = buf ? ctl_oci_check_begin(&check, l, err) :
		    zns_fail(err, -ENOMEM, "no memory for a digest");
	for (uint64_t off = 0; !ret && off < l->size; off += CHUNK) {
		size_t len = zns_min(CHUNK, l->size - off);

		ret = zns_pread_all(fd, buf, len, (off_t)off);
		if (ret)
			zns_fail_sys(err, ret, "cannot read blob %s", l->digest);
		else
			ctl_oci_check_add(&check, buf, len);
	}
	if (!ret)
		ret = ctl_oci_check_end(&check, err);
	ctl_oci_check_drop(&check);
	if (ret)
		close(fd);
	return ret ? ret : fd;
}

/* Reads a small blob as JSON. */
static int read_json(const struct ctl_oci_image *i, const struct ctl_oci_layer *l,
		     struct json_object **out, struct zns_err *err)
{
	cleanup_free uint8_t *text = NULL;
	cleanup_close int fd = -1;
	struct stat st;
	size_t len;
	int ret;

	if (l->size > MANIFEST_MAX)
		return zns_fail(err, -EFBIG, "%s is no manifest: it is too long", l->digest);
	fd = ctl_oci_blob(i, l, &st, err);
	if (fd < 0)
		return fd;
	ret = zns_read_fd(fd, MANIFEST_MAX, &text, &len);
	return ret ? zns_fail_sys(err, ret, "cannot read blob %s", l->digest) :
		     zns_json_parse(l->digest, text, len, out, err);
}

/* Chooses the image in the index. */
static struct json_object *choose(struct json_object *all, const char *tag, bool given)
{
	size_t nr = zns_json_len(all);

	for (size_t k = 0; k < nr; k++) {
		struct json_object *m = json_object_array_get_idx(all, k);
		const char *name = note(m, "org.opencontainers.image.ref.name");

		if (is_manifest(m) && ((name && !strcmp(name, tag)) || (!given && nr == 1)))
			return m;
	}
	return NULL;
}

/* Parses the annotations of a sealed layer. */
static int take_key(struct json_object *d, struct ctl_oci_layer *out, struct zns_err *err)
{
	const char *key = note(d, CTL_OCI_KEY), *seal = note(d, CTL_OCI_SEAL);

	out->sealed = key || seal;
	if (!out->sealed ||
	    (key && seal && *out->id && ctl_oci_unhex(key, out->key, sizeof(out->key)) &&
	     ctl_oci_unhex(seal, out->seal, sizeof(out->seal))))
		return 0;
	return zns_fail(err, -EBADMSG, "%s is said to be encrypted, but not how", out->digest);
}

static int take_layers(struct ctl_oci_image *i, struct json_object *manifest, struct zns_err *err)
{
	struct json_object *all = zns_json_get(manifest, "layers");
	const char *name = note(manifest, CTL_OCI_NAME);
	size_t nr = zns_json_len(all);
	int ret = 0;

	if (!nr || nr > LAYERS_MAX)
		return zns_fail(err, -EBADMSG, "its manifest has no layers, or more than %d",
				LAYERS_MAX);
	i->layers = calloc(nr, sizeof(*i->layers));
	if (!i->layers)
		return zns_fail(err, -ENOMEM, "no memory for a list of layers");
	for (size_t k = 0; k < nr && !ret; k++) {
		struct json_object *d = json_object_array_get_idx(all, k);
		const char *id = note(d, CTL_OCI_ID);
		uint8_t uuid[ZNS_UUID_LEN];

		ret = take(d, &i->layers[k], err);
		if (!ret && id && zns_uuid_parse(id, uuid))
			ret = zns_fail(err, -EBADMSG,
				       "%s is said to be of a checkpoint, but not of which",
				       i->layers[k].digest);
		else if (!ret && id)
			zns_uuid_format(uuid, i->layers[k].id);
		if (!ret)
			ret = take_key(d, &i->layers[k], err);
		i->nr += !ret;
	}
	if (!ret && name && strlen(name) < sizeof(i->name))
		strcpy(i->name, name);
	return ret;
}

static int read_image(const struct ctl_oci_ref *ref, bool given, struct ctl_oci_image *out,
		      struct zns_err *err)
{
	cleanup_close int dir = zns_open_dir(ref->dir, err), blobs = -1;
	cleanup_free uint8_t *text = NULL;
	struct json_object *index = NULL, *manifest = NULL, *m;
	struct ctl_oci_layer at = { .size = 0 };
	size_t len;
	int ret;

	if (dir < 0)
		return dir;
	ret = zns_read_plain(dir, "index.json", INDEX_MAX, &text, &len);
	if (ret)
		return zns_fail_sys(err, ret, "it is no OCI layout: index.json");
	blobs = zns_open_subdir(dir, "blobs");
	out->blobs = blobs < 0 ? blobs : zns_open_subdir(blobs, "sha256");
	if (out->blobs < 0)
		return zns_fail_sys(err, out->blobs, "it is no OCI layout: blobs/sha256");
	ret = zns_json_parse("index.json", text, len, &index, err);
	m = ret ? NULL : choose(zns_json_get(index, "manifests"), ref->tag, given);
	if (!ret && !m)
		ret = zns_fail(err, -ENOENT, "it has no image with the tag %s", ref->tag);
	if (!ret)
		ret = take(m, &at, err);
	if (!ret)
		ret = read_json(out, &at, &manifest, err);
	if (!ret)
		ret = take_layers(out, manifest, err);
	json_object_put(manifest);
	json_object_put(index);
	return ret;
}

int ctl_oci_of_manifest(const char *text, size_t len, struct ctl_oci_image *out,
			struct zns_err *err)
{
	struct json_object *manifest = NULL;
	int ret;

	*out = (struct ctl_oci_image)CTL_OCI_IMAGE_INIT;
	if (len > MANIFEST_MAX)
		return zns_fail(err, -EFBIG, "its manifest is too long to be one");
	ret = zns_json_parse("its manifest", (const uint8_t *)text, len, &manifest, err);
	if (!ret)
		ret = take_layers(out, manifest, err);
	json_object_put(manifest);
	return ret;
}

int ctl_oci_read(const char *where, struct ctl_oci_image *out, struct zns_err *err)
{
	struct ctl_oci_ref ref;
	int ret = ctl_oci_parse(where, &ref, err);

	*out = (struct ctl_oci_image)CTL_OCI_IMAGE_INIT;
	if (ret)
		return ret;
	ret = read_image(&ref, strchr(where, ':'), out, err);
	free(ref.dir);
	return ret ? zns_wrap(err, "%s", where) : 0;
}

void ctl_oci_image_close(struct ctl_oci_image *i)
{
	if (i->blobs >= 0)
		close(i->blobs);
	free(i->layers);
	*i = (struct ctl_oci_image)CTL_OCI_IMAGE_INIT;
}
