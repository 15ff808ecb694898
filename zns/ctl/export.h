/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_EXPORT_H
#define ZNS_CTL_EXPORT_H
/* Shared by cmd_export.c (the command, a directory), export_pack.c (an archive, an OCI image) and
 * push (an image whose layers are served, export_serve.h). */
#include "archive.h"
#include "ctl.h"
#include "oci.h"
#include "outdir.h"
#include "zns/flat.h"

#define EXPORT_CHUNK MIB(16) /* between two progress reports; also an archive's buffer */
#define EXPORT_PARENTS "parents" /* in it a directory for each parent of an exported chain */

/* A layer that is in no file: whoever wants its bytes has export_layer() make them. */
struct export_layer {
	char digest[CTL_OCI_DIGEST];
	uint64_t size;
	uint32_t level;
	bool link; /* to the newest checkpoint, and nothing else */
};

struct export
{
	struct ctl_hold h;
	ZnsPb__Response *answer; /* the records of the chain */
	struct zns_chain *chain;
	struct zns_flat *flat; /* not NULL: the chain is merged into one checkpoint */
	struct ctl_progress prog;
	const char *target;
	struct ctl_outdir out;
	bool packed, to_stdout, oci, flatten, metadata_only, decrypt;
	bool sealed; /* encrypted, and stays so: as it is on the device */
	uint32_t done; /* images written so far */
	uint64_t bytes; /* bytes of these images */
	char digest[CTL_OCI_DIGEST]; /* of the OCI image */
	/* Not NULL: the layers of the OCI image are links to files of this directory, which are
	 * not written; @layers says what they are. */
	const char *elsewhere;
	struct export_layer *layers;
	size_t nr_layers, max_layers;
};

/* The chain of a checkpoint that is held, and all that its options want. */
int export_begin(struct export *x, struct zns_err *err);
void export_end(struct export *x); /* in any state */

void export_id(const struct export *x, uint32_t level, char id[ZNS_UUID_STR]);
/* The number of directories to write. */
uint32_t export_levels(const struct export *x);
const ZnsPb__Manifest *export_level(const struct export *x, uint32_t level);
uint64_t export_size(const struct export *x, uint32_t level, uint32_t image);
int export_read(struct export *x, uint32_t level, uint32_t image, uint64_t off, uint8_t *buf,
		size_t len, struct zns_err *err);
/* What composed images consist of is theirs. --metadata-only leaves memory pages out: crit and
 * checkpointctl only read the pagemaps. */
bool export_leaves_out(const struct export *x, uint32_t level, uint32_t image);
/*
 * Where the images of a level go, with a slash at the end. In an OCI image each level has a
 * directory of its own, whatever it is exported with: its layer is then always the same.
 */
void export_prefix(const struct export *x, uint32_t level, char *out, size_t len);
/* Text of the link `parent` in a level's directory. false: the level has no parent. */
bool export_link(const struct export *x, uint32_t level, char *out, size_t len);

/* export_sealed.c: is it one, and can all of its chain be sent as it is? */
int export_is_sealed(struct export *x, struct zns_err *err);
/* The layer of a level, but for its directories. */
int export_sealed_level(struct export *x, struct ctl_pack *p, uint32_t level, uint8_t *buf,
			struct zns_err *err);
int export_sealed_end(const struct export *x, struct ctl_oci *o, uint32_t level,
		      struct zns_err *err);

/* export_pack.c */
int export_to_archive(struct export *x, struct zns_err *err);
int export_to_oci(struct export *x, struct zns_err *err);
/* The tar of a layer of an OCI image to @fd, unless that is -1, and to @tee. The same bytes each
 * time. @buf: of EXPORT_CHUNK. */
int export_layer(struct export *x, int fd, uint32_t level, bool link,
		 int (*tee)(void *arg, const void *buf, size_t len), void *arg, uint8_t *buf,
		 struct zns_err *err);

#endif
