/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_STRIPE_TRANSFER_H
#define ZNS_STRIPE_TRANSFER_H
/*
 * Transfers a run of bytes of one zone, in commands that are no longer than the device and the
 * token bucket allow. @off and @len are whole blocks. Stateless; may be called from any thread.
 * After a device error a part may have been transferred.
 */
#include <stddef.h>
#include <stdint.h>
#include "zns/bucket.h"
#include "zns/dev.h"

/* @bucket: every byte is taken from it before the transfer; NULL: no limit. @urgent: goes first at
 * the bucket */
int transfer_read(struct zns_dev *dev, struct zns_bucket *bucket, bool urgent, uint32_t zone,
		  uint64_t off, uint8_t *buf, size_t len, struct zns_err *err);
/* @most: bytes of one command; 0: as many as the device accepts. @ns: unless NULL, the time that
 * the device took is added to it, excluding the wait for the bucket. */
int transfer_write(struct zns_dev *dev, struct zns_bucket *bucket, size_t most, uint32_t zone,
		   uint64_t off, const uint8_t *buf, size_t len, uint64_t *ns, struct zns_err *err);

#endif
