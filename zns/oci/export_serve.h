/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_EXPORT_SERVE_H
#define ZNS_CTL_EXPORT_SERVE_H
/*
 * The layers of an OCI image as files that are made while somebody reads them: nothing of them is
 * written anywhere. They are in a mount of FUSE in a mount namespace of our own, so only this
 * process and those that it starts see it, and it ends with them, however they end.
 */
#include "export_oci.h"

struct export_serve;

/*
 * @x->layers, each under the digits of its digest, below @dir, an empty directory. They may come
 * later than this call, but before anybody looks for them. Reads go on from front to back; whoever
 * goes back has a layer made from its beginning. -ENOTSUP: this process may not mount here.
 */
int export_serve_begin(struct export_oci *x, const char *dir, struct export_serve **out,
		       struct zns_err *err);
/* To be called when there are no more readers. Returns why a reader got an error, if one did. Frees
 * @s; NULL is fine. */
int export_serve_end(struct export_serve *s, struct zns_err *err);

#endif
