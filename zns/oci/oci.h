/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_OCI_H
#define ZNS_CTL_OCI_H
/*
 * Checkpoints as OCI images in an image layout: a directory that skopeo, Podman and others know as
 * oci:DIR:TAG (OCI image specification 1.1). A layer is a plain tar of one checkpoint, in the
 * directory checkpoints/ID, whose link `parent` leads to the directory of its parent. So the layer
 * of a parent is the same in each image, and a registry stores it once. The last layer is a link,
 * `checkpoint`, to the newest one. The directory may belong to any user.
 *
 * An encrypted checkpoint has a sealed layer, in the directory sealed/ID: its record
 * (zns/sealed.h), followed by the images that have units, in the order of the record and in the
 * form in which they are on the device. Its wrapped key is an annotation of the layer. So the layer
 * does not change when the master key is rotated, and other tools see that it is no plain
 * checkpoint.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include "zns/err.h"

#define CTL_OCI_CHECKPOINTS "checkpoints"
#define CTL_OCI_SEALED "sealed"
#define CTL_OCI_RECORD "record" /* name of the first file of a sealed layer */
#define CTL_OCI_LINK "checkpoint"
#define CTL_OCI_ID "org.zns-criu.checkpoint" /* annotation of a layer: the id of its checkpoint */
/* annotation of a sealed layer: fingerprint of the master key, wrapped key */
#define CTL_OCI_KEY "org.zns-criu.key"
#define CTL_OCI_SEAL "org.zns-criu.seal" /* annotation of a sealed layer: the seal in its record */
#define CTL_OCI_KEY_BYTES 68
#define CTL_OCI_SEAL_BYTES 16
/* annotation that checkpointctl also uses */
#define CTL_OCI_NAME "org.criu.checkpoint.container.name"
#define CTL_OCI_ENGINE "org.criu.checkpoint.engine.name"
#define CTL_OCI_DIGEST 72 /* "sha256:", 64 digits, NUL */
#define CTL_OCI_SHA_BYTES 32

struct ctl_oci_ref {
	char *dir; /* the part before the tag */
	const char *tag; /* points into the parsed text; default "latest" */
};
/* Parses DIR or DIR:TAG. The caller frees out->dir. */
int ctl_oci_parse(const char *where, struct ctl_oci_ref *out, struct zns_err *err);

/* ---- oci_write.c: adds one image to a layout; other images stay, except one with the same tag
 * ---- */
struct ctl_oci;
/*
 * Opens a layout. The directory is new, empty, or a layout. @elsewhere: layers are not stored, but
 * become links to files in this directory, named by their digits; NULL: layers are stored in the
 * layout.
 */
int ctl_oci_open(const char *where, const char *elsewhere, struct ctl_oci **out,
		 struct zns_err *err);
/*
 * Begins a layer. The caller writes an uncompressed tar archive to *@fd, unless that is -1, and
 * passes the same bytes to ctl_oci_seen().
 */
int ctl_oci_layer(struct ctl_oci *o, int *fd, struct zns_err *err);
int ctl_oci_seen(void *oci, const void *buf, size_t len); /* returns 0 */
/*
 * Ends the layer. @id: id of its checkpoint, or NULL. @key, @seal: for a sealed layer, else NULL.
 */
int ctl_oci_layer_end(struct ctl_oci *o, const char *id, const uint8_t *key, const uint8_t *seal,
		      struct zns_err *err);
/* Size and digest of the layer that was ended last. */
uint64_t ctl_oci_last(const struct ctl_oci *o, char digest[CTL_OCI_DIGEST]);
/*
 * Completes the image and makes it durable. @name: the container's name. @digest: receives the
 * manifest's digest.
 */
int ctl_oci_publish(struct ctl_oci *o, const char *name, const char *engine, int64_t created_ns,
		    char digest[CTL_OCI_DIGEST], struct zns_err *err);
/* Frees @o. Removes all that was not published. */
void ctl_oci_close(struct ctl_oci *o);

/* ---- oci_read.c ---- */
struct ctl_oci_layer {
	char digest[CTL_OCI_DIGEST];
	uint64_t size;
	char id[40]; /* id of its checkpoint; empty: not given */
	bool sealed;
	uint8_t key[CTL_OCI_KEY_BYTES], seal[CTL_OCI_SEAL_BYTES]; /* set if the layer is sealed */
};
struct ctl_oci_image {
	int blobs; /* descriptor of the directory with the blobs */
	struct ctl_oci_layer *layers; /* the oldest first */
	size_t nr;
	char name[256]; /* the container's name; empty: the image does not name one */
};
#define CTL_OCI_IMAGE_INIT  \
	{                   \
		.blobs = -1 \
	}
/* Reads the image with this tag from a layout; without a tag, the only image. */
int ctl_oci_read(const char *where, struct ctl_oci_image *out, struct zns_err *err);
/* Parses a manifest that is not in a layout. */
int ctl_oci_of_manifest(const char *text, size_t len, struct ctl_oci_image *out,
			struct zns_err *err);
/* Opens a blob, reads it once and compares its digest. Returns a descriptor. */
int ctl_oci_blob(const struct ctl_oci_image *i, const struct ctl_oci_layer *l, struct stat *st,
		 struct zns_err *err);
/* Opens a blob, without comparing it with its digest. */
int ctl_oci_blob_open(const struct ctl_oci_image *i, const struct ctl_oci_layer *l, struct stat *st,
		      struct zns_err *err);
void ctl_oci_image_close(struct ctl_oci_image *i);

/* A source of layers, which are read one after the other. */
struct ctl_oci_source {
	/* Returns a descriptor from which the layer is read; the caller closes it. */
	int (*open)(void *arg, const struct ctl_oci_layer *l, struct zns_err *err);
	/* called after the whole layer was read; may be NULL */
	int (*end)(void *arg, struct zns_err *err);
	void *arg;
	struct ctl_patience *patience; /* limits the waiting for the sender; NULL: no limit */
};

/* A layer that is read once, from start to end; its digest is compared at the end. */
struct ctl_oci_check {
	const struct ctl_oci_layer *layer;
	struct ctl_sha *sha;
	uint64_t bytes;
};
int ctl_oci_check_begin(struct ctl_oci_check *c, const struct ctl_oci_layer *l,
			struct zns_err *err);
void ctl_oci_check_add(void *check, const void *buf, size_t len);
/* -EBADMSG: the digest differs */
int ctl_oci_check_end(struct ctl_oci_check *c, struct zns_err *err);
void ctl_oci_check_drop(struct ctl_oci_check *c); /* may be called in any state */

/*
 * ---- sha.c: computes a digest; for a large input a thread hashes while the caller continues ----
 */
struct ctl_sha;
struct ctl_sha *ctl_sha_new(void); /* NULL: no memory */
/* After the call @buf may be changed. An error is reported by ctl_sha_end(). */
void ctl_sha_add(struct ctl_sha *s, const void *buf, size_t len);
/*
 * Ends the computation and frees @s. @digest: "sha256:…"; "" if there was no memory or libcrypto
 * does not have the hash.
 */
void ctl_sha_end(struct ctl_sha *s, char digest[CTL_OCI_DIGEST]);

/* ---- oci.c: used by both ---- */
/* Is it a digest of the kind that we can compute? Then its digits are safe as a file name. */
bool ctl_oci_digest(const char *digest);
/* Converts bytes to hexadecimal digits, and back. @text: 2 * len + 1 bytes. */
void ctl_oci_hex(const uint8_t *bytes, size_t len, char *text);
bool ctl_oci_unhex(const char *text, uint8_t *bytes, size_t len);
static inline const char *ctl_oci_digits(const char *digest)
{
	return digest + 7;
}

#endif
