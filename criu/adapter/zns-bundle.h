/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_BUNDLE_H__
#define __CR_ZNS_BUNDLE_H__
/* The helper sends all small images of a restore at once: see struct zw_bundle. */
#include <stdbool.h>

/* @fd: from the answer to the first request; this function closes it */
extern int zns_bundle_take(int fd);
/* Returns a new descriptor with the image. -ENOENT: the checkpoint has no image of this name;
 * -EAGAIN: ask the helper. */
extern int zns_bundle_open(const char *name, bool pages);
extern void zns_bundle_drop(void);

#endif
