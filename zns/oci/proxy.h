/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_PROXY_H
#define ZNS_CTL_PROXY_H
/*
 * Reads an image of a registry by `skopeo experimental-image-proxy` (its protocol 0.2: request and
 * answer are JSON in one packet each; bytes come through pipes). skopeo talks to the registry, and
 * checks what it receives. It exits when the connection is closed. For use by one thread.
 */
#include "oci.h"
#include "../transfer/patience.h"

struct ctl_proxy;

/*
 * @name: in skopeo's form docker://REGISTRY/NAME:TAG. @options: of skopeo copy, which may begin
 * with --src-. @patience is borrowed until ctl_proxy_close(). -ENOTSUP: this skopeo has no such
 * proxy, so use a layout. Other errors contain skopeo's message.
 */
int ctl_proxy_open(const char *name, char *const *options, int nr, struct ctl_patience *patience,
		   struct ctl_proxy **out, struct zns_err *err);
/* Gets the layers of the manifest. */
int ctl_proxy_image(struct ctl_proxy *p, struct ctl_oci_image *out, struct zns_err *err);
/* A source that delivers the layers one after the other. */
struct ctl_oci_source ctl_proxy_source(struct ctl_proxy *p);
void ctl_proxy_close(struct ctl_proxy *p); /* @p may be NULL */

#endif
