/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_PROXY_H
#define ZNS_CTL_PROXY_H
/*
 * An image of a registry, by `skopeo experimental-image-proxy` (its protocol 0.2: a request and an
 * answer of JSON in one packet each, bytes through pipes). It speaks with the registry, and checks
 * what it gets. It ends when the connection does. One thread.
 */
#include "oci.h"
#include "../transfer/patience.h"

struct ctl_proxy;

/*
 * @name as skopeo has it: docker://REGISTRY/NAME:TAG. @options of skopeo copy, which may begin with
 * --src-. @patience is borrowed until the end. -ENOTSUP: skopeo cannot do this, try another way.
 * Other errors name what skopeo said.
 */
int ctl_proxy_open(const char *name, char *const *options, int nr, struct ctl_patience *patience,
		   struct ctl_proxy **out, struct zns_err *err);
/* The manifest's layers. */
int ctl_proxy_image(struct ctl_proxy *p, struct ctl_oci_image *out, struct zns_err *err);
/* A source that delivers the layers one after the other. */
struct ctl_oci_source ctl_proxy_source(struct ctl_proxy *p);
void ctl_proxy_close(struct ctl_proxy *p); /* NULL is fine */

#endif
