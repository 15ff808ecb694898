/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_EXPORT_OCI_H
#define ZNS_CTL_EXPORT_OCI_H
/*
 * Exports a checkpoint as an OCI image. Shared by export --oci and push, which serves the layers
 * (export_serve.h).
 */
#include "../transfer/images/export.h"
#include "oci.h"

/* A layer that is in no file: export_layer() makes its bytes when they are needed. */
struct export_layer {
	char digest[CTL_OCI_DIGEST];
	uint64_t size;
	uint32_t level;
	bool link; /* the layer contains only a link to the newest checkpoint */
};

struct export_oci {
	struct export x; /* must be the first member */
	char digest[CTL_OCI_DIGEST]; /* digest of the image */
	/*
	 * Not NULL: layers are not written, but become links to this directory; @layers describes
	 * them.
	 */
	const char *elsewhere;
	struct export_layer *layers;
	size_t nr_layers, max_layers;
};
extern const struct export_form export_oci_form;
#define EXPORT_OCI_INIT                                                  \
	{                                                                \
		.x = {.out = CTL_OUTDIR_INIT, .form = &export_oci_form } \
	}
void export_oci_end(struct export_oci *e); /* may be called in any state */

/*
 * export_sealed.c: is the checkpoint encrypted, so that its whole chain can be exported as it is?
 */
int export_is_sealed(struct export *x, struct zns_err *err);
/* Writes a level's layer, without the directories at its start. */
int export_sealed_level(struct export *x, struct ctl_pack *p, uint32_t level, uint8_t *buf,
			struct zns_err *err);
int export_sealed_end(const struct export *x, struct ctl_oci *o, uint32_t level,
		      struct zns_err *err);

/* export_oci.c */
int export_to_oci(struct export_oci *e, struct zns_err *err);
/*
 * Writes the tar archive of a layer to @fd, unless that is -1, and to @tee. The bytes are the same
 * each time. @buf: EXPORT_CHUNK bytes.
 */
int export_layer(struct export *x, int fd, uint32_t level, bool link,
		 int (*tee)(void *arg, const void *buf, size_t len), void *arg, uint8_t *buf,
		 struct zns_err *err);

/* The commands of znsctl-oci. */
extern const struct ctl_cmd oci_cmd_push, oci_cmd_pull;

#endif
