/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_OCI_H
#define ZNS_CTL_OCI_H
/*
 * Checkpoints as OCI images, in an image layout: a directory that skopeo, Podman and others know as
 * oci:DIR:TAG (OCI image specification 1.1). A layer is a plain tar
 * of one checkpoint, in checkpoints/ID, whose link `parent` leads to its parent's directory. So a
 * parent's layer is the same in each image, and a registry has it once. The last layer is a link,
 * `checkpoint`, to the newest. The directory may be anybody's.
 *
 * An encrypted checkpoint has a sealed layer, in sealed/ID: its record (zns/sealed.h), then the
 * images that have units, in the order of the record and as they are on the device. Its wrapped key
 * is a note of the layer. So the layer stays the same when the master key is rotated, and other
 * tools see that there is no plain checkpoint.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include "zns/err.h"

#define CTL_OCI_CHECKPOINTS "checkpoints"
#define CTL_OCI_SEALED "sealed"
#define CTL_OCI_RECORD "record" /* the first file of a sealed layer */
#define CTL_OCI_LINK "checkpoint"
#define CTL_OCI_ID "org.zns-criu.checkpoint" /* annotation of a layer: the id of its checkpoint */
#define CTL_OCI_KEY "org.zns-criu.key" /* of a sealed layer: fingerprint, wrapped key */
#define CTL_OCI_SEAL "org.zns-criu.seal" /* seal in its record */
#define CTL_OCI_KEY_BYTES 68
#define CTL_OCI_SEAL_BYTES 16
#define CTL_OCI_NAME "org.criu.checkpoint.container.name" /* annotation, as of checkpointctl */
#define CTL_OCI_ENGINE "org.criu.checkpoint.engine.name"
#define CTL_OCI_DIGEST 72 /* "sha256:", 64 digits, NUL */
#define CTL_OCI_SHA_BYTES 32

struct ctl_oci_ref {
	char *dir; /* the part before the tag */
	const char *tag; /* points into the text that was given; default "latest" */
};
/* Parses DIR or DIR:TAG. The caller frees dir. */
int ctl_oci_parse(const char *where, struct ctl_oci_ref *out, struct zns_err *err);

/* ---- oci_write.c: adds one image to a layout; other images stay, except one with the same tag
 * ---- */
struct ctl_oci;
/* The directory is new, empty, or a layout. @elsewhere: layers are links to files with their digits
 * there, and not kept; NULL: they are in the layout. */
int ctl_oci_open(const char *where, const char *elsewhere, struct ctl_oci **out,
		 struct zns_err *err);
/* Begins a new layer; an uncompressed tar is written to @fd, unless that is -1, and to
 * ctl_oci_seen. */
int ctl_oci_layer(struct ctl_oci *o, int *fd, struct zns_err *err);
int ctl_oci_seen(void *oci, const void *buf, size_t len); /* 0 */
/* Ends the layer. @id: id of its checkpoint, or NULL. @key, @seal: of a sealed layer, else NULL. */
int ctl_oci_layer_end(struct ctl_oci *o, const char *id, const uint8_t *key, const uint8_t *seal,
		      struct zns_err *err);
/* Size and digest of the layer that was ended last. */
uint64_t ctl_oci_last(const struct ctl_oci *o, char digest[CTL_OCI_DIGEST]);
/* The image is whole and durable. @name of the container; @digest of the manifest. */
int ctl_oci_publish(struct ctl_oci *o, const char *name, const char *engine, int64_t created_ns,
		    char digest[CTL_OCI_DIGEST], struct zns_err *err);
/* Frees @o. Removes what was not published. */
void ctl_oci_close(struct ctl_oci *o);

/* ---- oci_read.c ---- */
struct ctl_oci_layer {
	char digest[CTL_OCI_DIGEST];
	uint64_t size;
	char id[40]; /* id of its checkpoint; "": not given */
	bool sealed;
	uint8_t key[CTL_OCI_KEY_BYTES], seal[CTL_OCI_SEAL_BYTES]; /* set if the layer is sealed */
};
struct ctl_oci_image {
	int blobs; /* the directory */
	struct ctl_oci_layer *layers; /* the oldest first */
	size_t nr;
	char name[256]; /* the container's name; "": the image does not name one */
};
#define CTL_OCI_IMAGE_INIT  \
	{                   \
		.blobs = -1 \
	}
/* The image of a tag in a layout; without a tag, the only one. */
int ctl_oci_read(const char *where, struct ctl_oci_image *out, struct zns_err *err);
/* Parses a manifest from elsewhere, without its blobs. */
int ctl_oci_of_manifest(const char *text, size_t len, struct ctl_oci_image *out,
			struct zns_err *err);
/* Opens a blob, reads it once, and compares it with its digest. Returns the descriptor. */
int ctl_oci_blob(const struct ctl_oci_image *i, const struct ctl_oci_layer *l, struct stat *st,
		 struct zns_err *err);
/* Opens a blob, without comparing it with its digest. */
int ctl_oci_blob_open(const struct ctl_oci_image *i, const struct ctl_oci_layer *l, struct stat *st,
		      struct zns_err *err);
void ctl_oci_image_close(struct ctl_oci_image *i);

/* A source of layers, which are read one after the other. */
struct ctl_oci_source {
	/* A descriptor to read the layer from; the caller closes it. */
	int (*open)(void *arg, const struct ctl_oci_layer *l, struct zns_err *err);
	/* called after all of it was read; NULL: not needed */
	int (*end)(void *arg, struct zns_err *err);
	void *arg;
	struct ctl_patience *patience; /* a time limit for the sender; NULL: none is needed */
};

/*
 * A layer that is read once, from front to back, and compared with its digest in
 * the end. */
struct ctl_oci_check {
	const struct ctl_oci_layer *layer;
	struct ctl_sha *sha;
	uint64_t bytes;
};
int ctl_oci_check_begin(struct ctl_oci_check *c, const struct ctl_oci_layer *l,
			struct zns_err *err);
void ctl_oci_check_add(void *check, const void *buf, size_t len);
int ctl_oci_check_end(struct ctl_oci_check *c, struct zns_err *err); /* -EBADMSG */
void ctl_oci_check_drop(struct ctl_oci_check *c); /* may be called in any state */

/* ---- sha.c: a digest; a thread hashes large inputs while the caller continues ---- */
struct ctl_sha;
struct ctl_sha *ctl_sha_new(void); /* NULL: no memory */
/* @buf is the caller's again. A failure shows in the end. */
void ctl_sha_add(struct ctl_sha *s, const void *buf, size_t len);
/* Ends and frees. @digest is "sha256:…"; "": out of memory, or libcrypto does not have the hash. */
void ctl_sha_end(struct ctl_sha *s, char digest[CTL_OCI_DIGEST]);

/* ---- oci.c: what both use ---- */
/* Is it a digest that we can check? Its digits are then a plain name. */
bool ctl_oci_digest(const char *digest);
/* Bytes as hexadecimal digits, and back. @text: 2 * len + 1 bytes. */
void ctl_oci_hex(const uint8_t *bytes, size_t len, char *text);
bool ctl_oci_unhex(const char *text, uint8_t *bytes, size_t len);
static inline const char *ctl_oci_digits(const char *digest)
{
	return digest + 7;
}

#endif
