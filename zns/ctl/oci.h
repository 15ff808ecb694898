/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_OCI_H
#define ZNS_CTL_OCI_H
/*
 * Checkpoints as OCI images, in an image layout: a directory that skopeo, Podman and others know as
 * oci:DIR:TAG (OCI image specification 1.1). A layer is a plain tar
 * of one checkpoint, in checkpoints/ID, whose link `parent` leads to its parent's directory. So a
 * parent's layer is the same in each image, and a registry has it once. The last layer is a link,
 * `checkpoint`, to the newest. The directory may be anybody's.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include "zns/err.h"

#define CTL_OCI_CHECKPOINTS "checkpoints"
#define CTL_OCI_LINK "checkpoint"
#define CTL_OCI_ID "org.zns-criu.checkpoint" /* annotation of a layer: whose it is */
#define CTL_OCI_NAME "org.criu.checkpoint.container.name" /* of the image, as checkpointctl has it */
#define CTL_OCI_ENGINE "org.criu.checkpoint.engine.name"
#define CTL_OCI_DIGEST 72 /* "sha256:", 64 digits, NUL */

struct ctl_oci_ref {
	char *dir; /* before the tag */
	const char *tag; /* in the text that was given; "latest" */
};
/* Of DIR or DIR:TAG. The caller frees dir. */
int ctl_oci_parse(const char *where, struct ctl_oci_ref *out, struct zns_err *err);

/* ---- oci_write.c: one image is added; others in the layout stay, but one with the same tag ---- */
struct ctl_oci;
/* The directory is new, empty, or a layout. */
int ctl_oci_open(const char *where, struct ctl_oci **out, struct zns_err *err);
/* A new layer; an uncompressed tar goes to the descriptor that is returned, and to ctl_oci_seen. */
int ctl_oci_layer(struct ctl_oci *o, struct zns_err *err);
void ctl_oci_seen(void *oci, const void *buf, size_t len);
/* It is whole. @id: whose it is, or NULL. */
int ctl_oci_layer_end(struct ctl_oci *o, const char *id, struct zns_err *err);
/* The image is whole and durable. @name of the container; @digest of the manifest. */
int ctl_oci_publish(struct ctl_oci *o, const char *name, const char *engine, int64_t created_ns,
		    char digest[CTL_OCI_DIGEST], struct zns_err *err);
/* Frees. Takes back what was not published. */
void ctl_oci_close(struct ctl_oci *o);

/* ---- oci_read.c ---- */
struct ctl_oci_layer {
	char digest[CTL_OCI_DIGEST];
	uint64_t size;
	char id[40]; /* whose it is; "": not said */
};
struct ctl_oci_image {
	int blobs; /* the directory */
	struct ctl_oci_layer *layers; /* the oldest first */
	size_t nr;
	char name[256]; /* of the container; "": not said */
};
#define CTL_OCI_IMAGE_INIT  \
	{                   \
		.blobs = -1 \
	}
/* The image of a tag in a layout; without a tag, the only one. */
int ctl_oci_read(const char *where, struct ctl_oci_image *out, struct zns_err *err);
/* Opens a blob, reads it once, and compares it with its digest. Returns the descriptor. */
int ctl_oci_blob(const struct ctl_oci_image *i, const struct ctl_oci_layer *l, struct stat *st,
		 struct zns_err *err);
void ctl_oci_image_close(struct ctl_oci_image *i);

/* ---- oci.c: what both use ---- */
struct ctl_sha;
struct ctl_sha *ctl_sha_new(void); /* NULL: no memory */
void ctl_sha_add(struct ctl_sha *s, const void *buf, size_t len);
/* Ends and frees. @digest as "sha256:…". */
void ctl_sha_end(struct ctl_sha *s, char digest[CTL_OCI_DIGEST]);
/* Is it a digest that we can check? Its digits are then a plain name. */
bool ctl_oci_digest(const char *digest);
static inline const char *ctl_oci_digits(const char *digest)
{
	return digest + 7;
}

#endif
