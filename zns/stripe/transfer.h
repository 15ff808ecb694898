/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_STRIPE_TRANSFER_H
#define ZNS_STRIPE_TRANSFER_H
/*
 * Transfer one run of bytes of one zone, in commands no larger than device and bucket want. @off
 * and @len are whole blocks. Any thread; no state. After an error of the device a part may be done.
 */
#include <stddef.h>
#include <stdint.h>
#include "zns/bucket.h"
#include "zns/dev.h"

/* @bucket: every byte pays before it moves; NULL: none does. */
int transfer_read(struct zns_dev *dev, struct zns_bucket *bucket, uint32_t zone, uint64_t off,
		  uint8_t *buf, size_t len, struct zns_err *err);
/* @most: bytes of a command, 0: whatever fits. @ns: if not NULL, the device's time is added,
 * without the bucket's. */
int transfer_write(struct zns_dev *dev, struct zns_bucket *bucket, size_t most, uint32_t zone,
		   uint64_t off, const uint8_t *buf, size_t len, uint64_t *ns, struct zns_err *err);

#endif
