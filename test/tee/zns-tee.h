/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_TEE_H__
#define __CR_ZNS_TEE_H__
/*
 * A test's view of the image layer: `make criu-tee` builds it into a criu of its own, by tee.patch.
 * With $ZNS_TEE=DIR, a dump into zones also stores in DIR what CRIU handed to the image layer, by
 * ways that do not touch the helper. `znsctl export` of the checkpoint must then give the same bytes.
 */
#include <sys/types.h>

extern int zns_tee_begin(void); /* opens DIR; returns 0 if $ZNS_TEE is not set */
extern int zns_tee_memfd(const char *name, int fd); /* a whole image */
extern int zns_tee_mem(const char *name, pid_t pid, void *base, unsigned long len); /* appends */
extern int zns_tee_pages(const char *name); /* creates the file, empty */
/* @fd: the stream's target. Returns the descriptor to write to instead: @fd itself without
 * $ZNS_TEE, or -1. */
extern int zns_tee_stream(const char *name, int fd);

#endif
