/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_IMPORT_OCI_H
#define ZNS_CTL_IMPORT_OCI_H
/* Imports the checkpoints of an OCI image: shared by import --oci and pull. */
#include "../transfer/images/import.h"
#include "oci.h"

/*
 * import_sealed.c: imports the checkpoint of a sealed layer (oci.h) from x->stream. It keeps its
 * id. @parent: the id in the layer before; NULL: none. @newest: it is the newest of the image, to
 * which alone notes refer.
 */
int import_sealed_run(struct import *x, const struct ctl_oci_layer *l, const char *parent,
		      bool newest, const char *spec, const char *handle, struct zns_err *err);
/*
 * Does the device have this checkpoint already? Returns 1 or 0; -EEXIST: it has another version of
 * it.
 */
int import_sealed_there(const struct ctl_oci_layer *l, const char *spec, struct zns_err *err);

/*
 * import_there.c: does the device have a checkpoint of this container with this parent (NULL: none)
 * that was imported from this layer? Returns 1 and sets *id, or 0.
 */
int import_there(const struct import *x, const struct ctl_oci_layer *l, const char *parent,
		 const char *spec, uint8_t id[ZNS_UUID_LEN], struct zns_err *err);

/*
 * import_oci.c: imports the checkpoints of an OCI image, parents first. @model has the options.
 * After success, import_oci_last() returns the newest.
 */
struct import_levels;
int import_oci(const struct import *model, const char *spec, const char *handle,
	       struct import_levels **out, struct zns_err *err);
/*
 * Like import_oci(), for an image whose layers come from @from. -ENODATA: no layer is a checkpoint
 * of ours.
 */
int import_oci_from(const struct import *model, const struct ctl_oci_image *i,
		    const struct ctl_oci_source *from, const char *spec, const char *handle,
		    struct import_levels **out, struct zns_err *err);
const struct import *import_oci_last(const struct import_levels *v);
bool import_oci_begun(const struct import_levels *v); /* was at least one import begun? */
void import_oci_end(struct import_levels *v);
extern const struct import_source import_oci_source;

#endif
