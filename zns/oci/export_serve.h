/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_EXPORT_SERVE_H
#define ZNS_CTL_EXPORT_SERVE_H
/*
 * Serves the layers of an OCI image as files whose bytes are made while they are read: nothing is
 * stored. The files are in a FUSE mount in a mount namespace of our own. So only this process and
 * its children see them, and the mount disappears when these processes end, in whatever way.
 */
#include "export_oci.h"

struct export_serve;

/*
 * Serves @x->layers below @dir, an empty directory, each with the digits of its digest as its name.
 * The layers may be added after this call, but before they are read. A file is read from begin to
 * end; if a reader goes back, the layer is made again from its start. -ENOTSUP: this process may
 * not mount here.
 */
int export_serve_begin(struct export_oci *x, const char *dir, struct export_serve **out,
		       struct zns_err *err);
/*
 * Call it when there are no more readers. Returns the error that a reader got, if any. Frees @s,
 * which may be NULL.
 */
int export_serve_end(struct export_serve *s, struct zns_err *err);

#endif
