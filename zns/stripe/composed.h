/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_STRIPE_COMPOSED_H
#define ZNS_STRIPE_COMPOSED_H
/* Reads of images that are composed of several others. The functions work like those with similar
 * names in zns/reader.h. */
#include "runs.h"
#include "zns/reader.h"

void runs_read_task(const struct runs *r, uint64_t off, struct zns_task task,
		    const struct iovec *iov, uint32_t nr, zns_read_done done, void *arg);
void runs_read_lazy(const struct runs *r, uint64_t off, struct zns_task task,
		    const struct iovec *iov, enum zns_read_how how, zns_read_done done, void *arg);
int runs_read(const struct runs *r, uint64_t off, void *buf, size_t len, struct zns_err *err);

#endif
