/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * See oci.h. A blob gets its name when it is complete, and the index is replaced last. So a program
 * that reads the layout meanwhile, or after a crash, finds the images that were there before, with
 * or without the new one.
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/utsname.h>
#include "../ctl/lib/ctl.h"
#include "oci.h"
#include "../transfer/images/outdir.h"
#include "zns/grow.h"
#include "zns/json.h"
#include "zns/safeopen.h"

#define INDEX "index.json"
#define LAYOUT "oci-layout"
#define INDEX_MAX MIB(1)
#define LOCK_MS 5000
#define MEDIA "application/vnd.oci.image."

struct ctl_oci {
	struct ctl_oci_ref ref;
	char base[ZNS_BASE_MAX];
	int parent, dir, blobs;
	bool made_dir, made_blobs, published;
	/* borrowed; the directory with the layers; NULL: they are in this layout */
	const char *elsewhere;
	char last[CTL_OCI_DIGEST];
	/* the blob that is being written */
	int fd;
	char temp[ZNS_BASE_MAX];
	struct ctl_sha *sha;
	uint64_t size;
	struct json_object *layers, *diff_ids;
	/* digests of blobs that this image has added */
	char (*fresh)[CTL_OCI_DIGEST];
	size_t nr_fresh, max_fresh;
};

static int failed(const struct ctl_oci *o, int ret, struct zns_err *err)
{
	return zns_fail_sys(err, ret, "cannot write to %s", o->ref.dir);
}

static bool is_there(int dir, const char *name)
{
	return !faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW);
}

/* Opens a directory of a layout, and creates it durably if it does not exist. */
static int enter(struct ctl_oci *o, int at, const char *name, bool *made, struct zns_err *err)
{
	int fd, ret = 0;

	if (!mkdirat(at, name, 0700)) {
		*made = true;
		ret = zns_sync_dir(at);
	} else if (errno != EEXIST) {
		ret = -errno;
	}
	if (ret)
		return failed(o, ret, err);
	fd = zns_open_subdir(at, name);
	return fd < 0 ? zns_fail(err, fd, "%s: %s is a link or no directory", o->ref.dir, name) :
			fd;
}

static int open_blobs(struct ctl_oci *o, struct zns_err *err)
{
	cleanup_close int blobs = enter(o, o->dir, "blobs", &o->made_blobs, err);

	if (blobs < 0)
		return blobs;
	o->blobs = enter(o, blobs, "sha256", &o->made_blobs, err);
	return o->blobs < 0 ? o->blobs : 0;
}

static int open_dir(struct ctl_oci *o, struct zns_err *err)
{
	int ret;

	o->parent = zns_open_parent(o->ref.dir, o->base, err);
	if (o->parent < 0)
		return o->parent;
	o->dir = enter(o, o->parent, o->base, &o->made_dir, err);
	if (o->dir < 0)
		return o->dir;
	ret = ctl_dir_empty(o->dir);
	if (ret < 0)
		return failed(o, ret, err);
	if (!ret && !is_there(o->dir, LAYOUT))
		return zns_fail(err, -ENOTEMPTY,
				"%s is not empty and no OCI layout: name a new directory",
				o->ref.dir);
	return open_blobs(o, err);
}

int ctl_oci_open(const char *where, const char *elsewhere, struct ctl_oci **out,
		 struct zns_err *err)
{
	struct ctl_oci *o = calloc(1, sizeof(*o));
	int ret;

	*out = o;
	if (!o)
		return zns_fail(err, -ENOMEM, "no memory for the OCI image");
	o->parent = o->dir = o->blobs = o->fd = -1;
	o->elsewhere = elsewhere;
	o->layers = json_object_new_array();
	o->diff_ids = json_object_new_array();
	if (!o->layers || !o->diff_ids)
		return zns_fail(err, -ENOMEM, "no memory for the OCI image");
	ret = ctl_oci_parse(where, &o->ref, err);
	return ret ? ret : open_dir(o, err);
}

/* ---- blobs ---- */

/* @kept: the blob is written to the layout; otherwise only its digest and size are computed. */
static int blob_begin(struct ctl_oci *o, bool kept, struct zns_err *err)
{
	o->size = 0;
	o->sha = ctl_sha_new();
	if (!o->sha)
		return zns_fail(err, -ENOMEM, "no memory for a digest");
	if (!kept)
		return 0;
	o->fd = zns_make_temp(o->blobs, "blob", o->temp);
	return o->fd < 0 ? failed(o, o->fd, err) : 0;
}

int ctl_oci_layer(struct ctl_oci *o, int *fd, struct zns_err *err)
{
	int ret = blob_begin(o, !o->elsewhere, err);

	*fd = o->fd;
	return ret;
}

int ctl_oci_seen(void *oci, const void *buf, size_t len)
{
	struct ctl_oci *o = oci;

	ctl_sha_add(o->sha, buf, len);
	o->size += len;
	return 0;
}

static int note_fresh(struct ctl_oci *o, const char *digest, struct zns_err *err)
{
	if (is_there(o->blobs, ctl_oci_digits(digest)))
		return 0;
	if (zns_grow(o->fresh, o->nr_fresh, o->max_fresh))
		return zns_fail(err, -ENOMEM, "no memory for the OCI image");
	strcpy(o->fresh[o->nr_fresh++], digest);
	return 0;
}

/* Makes a link, named by the digest, to where the layer really is. */
static int blob_link(const struct ctl_oci *o, const char *digest, struct zns_err *err)
{
	char to[PATH_MAX];

	if (snprintf(to, sizeof(to), "%s/%s", o->elsewhere, ctl_oci_digits(digest)) >=
	    (int)sizeof(to))
		return failed(o, -ENAMETOOLONG, err);
	/* not an error: two layers without any content of their own are the same blob */
	return symlinkat(to, o->blobs, ctl_oci_digits(digest)) && errno != EEXIST ?
		       failed(o, -errno, err) :
		       0;
}

/*
 * Makes the blob durable, and renames it to its digest. A file that has this name already may be
 * torn, so it is replaced.
 */
static int blob_end(struct ctl_oci *o, char digest[CTL_OCI_DIGEST], struct zns_err *err)
{
	bool kept = *o->temp;
	int ret;

	ctl_sha_end(o->sha, digest);
	o->sha = NULL;
	if (!*digest)
		return zns_fail(err, -EIO, "libcrypto has no SHA-256");
	if (kept && fsync(o->fd))
		return failed(o, -errno, err);
	ret = note_fresh(o, digest, err);
	if (!ret && !kept)
		ret = blob_link(o, digest, err);
	if (ret)
		return ret;
	if (kept && renameat(o->blobs, o->temp, o->blobs, ctl_oci_digits(digest)))
		return failed(o, -errno, err);
	*o->temp = 0;
	if (kept)
		close(o->fd);
	o->fd = -1;
	return 0;
}

static struct json_object *descriptor(const char *media, const char *digest, uint64_t size)
{
	char type[128];

	snprintf(type, sizeof(type), MEDIA "%s", media);
	return ctl_obj(J("mediaType", type), J("digest", digest), J("size", size));
}

static void add_note(struct json_object *notes, const char *name, const uint8_t *bytes, size_t len)
{
	char text[2 * CTL_OCI_KEY_BYTES + 1];

	ctl_oci_hex(bytes, len, text);
	json_object_object_add(notes, name, json_object_new_string(text));
}

int ctl_oci_layer_end(struct ctl_oci *o, const char *id, const uint8_t *key, const uint8_t *seal,
		      struct zns_err *err)
{
	char digest[CTL_OCI_DIGEST];
	struct json_object *d, *notes;
	int ret = blob_end(o, digest, err);

	if (ret)
		return ret;
	strcpy(o->last, digest);
	d = descriptor("layer.v1.tar", digest, o->size);
	notes = id ? ctl_obj(J(CTL_OCI_ID, id)) : NULL;
	if (notes && key) {
		add_note(notes, CTL_OCI_KEY, key, CTL_OCI_KEY_BYTES);
		add_note(notes, CTL_OCI_SEAL, seal, CTL_OCI_SEAL_BYTES);
	}
	if (notes)
		json_object_object_add(d, "annotations", notes);
	json_object_array_add(o->layers, d);
	json_object_array_add(o->diff_ids, json_object_new_string(digest));
	return 0;
}

uint64_t ctl_oci_last(const struct ctl_oci *o, char digest[CTL_OCI_DIGEST])
{
	strcpy(digest, o->last);
	return o->size;
}

/* Writes @j as a blob. *out: its descriptor, which the caller frees. */
static int put_json(struct ctl_oci *o, struct json_object *j, const char *media,
		    char digest[CTL_OCI_DIGEST], struct json_object **out, struct zns_err *err)
{
	const char *text = json_object_to_json_string_ext(
		j, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);
	int ret = text ? blob_begin(o, true, err) :
			 zns_fail(err, -ENOMEM, "no memory for the OCI image");

	if (!ret) {
		ret = zns_write_all(o->fd, text, strlen(text));
		if (ret)
			failed(o, ret, err);
	}
	if (!ret) {
		ctl_oci_seen(o, text, strlen(text));
		ret = blob_end(o, digest, err);
	}
	if (!ret)
		*out = descriptor(media, digest, o->size);
	json_object_put(j);
	return ret;
}

/* ---- the image ---- */

static const char *architecture(void)
{
	static struct utsname u;

	if (uname(&u))
		return "unknown";
	return !strcmp(u.machine, "x86_64")  ? "amd64" :
	       !strcmp(u.machine, "aarch64") ? "arm64" :
					       u.machine;
}

static struct json_object *config(const struct ctl_oci *o, const char *created)
{
	return ctl_obj(J("created", created), J("architecture", architecture()), J("os", "linux"),
		       J("config", json_object_new_object()),
		       J("rootfs", ctl_obj(J("type", "layers"),
					   J("diff_ids", json_object_get(o->diff_ids)))));
}

static const char *tag_of(struct json_object *manifest)
{
	return zns_json_str(zns_json_get(manifest, "annotations"),
			    "org.opencontainers.image.ref.name");
}

/* Gets the present index, without an image that has our tag. */
static int old_index(const struct ctl_oci *o, struct json_object **out, struct zns_err *err)
{
	cleanup_free uint8_t *text = NULL;
	struct json_object *all, *keep = json_object_new_array();
	size_t len;
	int ret = zns_read_plain(o->dir, INDEX, INDEX_MAX, &text, &len);

	if (ret && ret != -ENOENT)
		zns_fail_sys(err, ret, "cannot read %s/" INDEX, o->ref.dir);
	else if (ret)
		ret = 0,
		*out = ctl_obj(J("schemaVersion", 2), J("mediaType", MEDIA "index.v1+json"));
	else
		ret = zns_json_parse(INDEX, text, len, out, err);
	all = ret ? NULL : zns_json_get(*out, "manifests");
	for (size_t i = 0; i < zns_json_len(all); i++) {
		struct json_object *m = json_object_array_get_idx(all, i);
		const char *tag = tag_of(m);

		if (!tag || strcmp(tag, o->ref.tag) != 0)
			json_object_array_add(keep, json_object_get(m));
	}
	if (!ret && !json_object_is_type(*out, json_type_object))
		ret = zns_fail(err, -EBADMSG, "%s/" INDEX " is no index of images", o->ref.dir);
	if (ret)
		json_object_put(keep);
	else
		json_object_object_add(*out, "manifests", keep);
	return ret;
}

static int put_index(const struct ctl_oci *o, struct json_object *manifest, struct zns_err *err)
{
	static const char layout[] = "{\"imageLayoutVersion\":\"1.0.0\"}";
	struct json_object *index = NULL;
	const char *text;
	int ret = old_index(o, &index, err);

	if (!ret) {
		json_object_array_add(zns_json_get(index, "manifests"), json_object_get(manifest));
		text = json_object_to_json_string_ext(
			index, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);
		if (!is_there(o->dir, LAYOUT))
			ret = zns_replace_file(o->dir, LAYOUT, layout, strlen(layout), 0600);
		if (!ret)
			ret = text ? zns_replace_file(o->dir, INDEX, text, strlen(text), 0600) :
				     -ENOMEM;
		if (ret)
			failed(o, ret, err);
	}
	json_object_put(index);
	return ret;
}

/*
 * Adds the image to the index, under a lock: if there are two exports into one layout, each adds to
 * the other's index.
 */
static int publish(struct ctl_oci *o, struct json_object *manifest, struct zns_err *err)
{
	int ret = zns_flock(o->dir, LOCK_EX, LOCK_MS);

	if (ret)
		return zns_fail(err, ret,
				"%s: another process keeps it locked (`lslocks` tells which)",
				o->ref.dir);
	ret = put_index(o, manifest, err);
	flock(o->dir, LOCK_UN);
	return ret;
}

int ctl_oci_publish(struct ctl_oci *o, const char *name, const char *engine, int64_t created_ns,
		    char digest[CTL_OCI_DIGEST], struct zns_err *err)
{
	char created[32], unused[CTL_OCI_DIGEST];
	struct json_object *of_config = NULL, *manifest = NULL, *notes;
	int ret;

	zns_format_time(created_ns, created, sizeof(created));
	ret = put_json(o, config(o, created), "config.v1+json", unused, &of_config, err);
	if (ret)
		return ret;
	notes = ctl_obj(J("org.opencontainers.image.created", created), J(CTL_OCI_NAME, name));
	if (engine)
		json_object_object_add(notes, CTL_OCI_ENGINE, json_object_new_string(engine));
	ret = put_json(o,
		       ctl_obj(J("schemaVersion", 2), J("mediaType", MEDIA "manifest.v1+json"),
			       J("config", of_config), J("layers", json_object_get(o->layers)),
			       J("annotations", notes)),
		       "manifest.v1+json", digest, &manifest, err);
	if (ret)
		return ret;
	json_object_object_add(manifest, "annotations",
			       ctl_obj(J("org.opencontainers.image.ref.name", o->ref.tag)));
	ret = zns_sync_dir(o->blobs);
	ret = ret ? failed(o, ret, err) : publish(o, manifest, err);
	json_object_put(manifest);
	o->published = !ret;
	return ret;
}

static void take_back(const struct ctl_oci *o)
{
	if (o->blobs >= 0)
		for (size_t i = 0; i < o->nr_fresh; i++)
			unlinkat(o->blobs, ctl_oci_digits(o->fresh[i]), 0);
	if (o->made_blobs) {
		cleanup_close int blobs = zns_open_subdir(o->dir, "blobs");

		if (blobs >= 0)
			unlinkat(blobs, "sha256", AT_REMOVEDIR);
		unlinkat(o->dir, "blobs", AT_REMOVEDIR);
	}
	if (o->made_dir && o->dir >= 0)
		unlinkat(o->dir, "oci-layout", 0);
	if (o->made_dir)
		unlinkat(o->parent, o->base, AT_REMOVEDIR);
}

void ctl_oci_close(struct ctl_oci *o)
{
	char unused[CTL_OCI_DIGEST];

	if (!o)
		return;
	if (o->sha)
		ctl_sha_end(o->sha, unused);
	if (o->fd >= 0)
		close(o->fd);
	if (*o->temp)
		unlinkat(o->blobs, o->temp, 0);
	if (!o->published)
		take_back(o);
	for (int *fd = (int[]){ o->blobs, o->dir, o->parent }, i = 0; i < 3; i++)
		if (fd[i] >= 0)
			close(fd[i]);
	json_object_put(o->layers);
	json_object_put(o->diff_ids);
	free(o->fresh);
	free(o->ref.dir);
	free(o);
}
