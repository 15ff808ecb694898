/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_STRIPE_TRANSFER_H
#define ZNS_STRIPE_TRANSFER_H
/*
 * Moves a run of bytes of one zone, in commands that are no longer than the device and the token
 * bucket allow. @off and @len are whole blocks. Any thread may call it; it keeps no state. After
 * an error of the device a part may have been moved.
 */
#include <stddef.h>
#include <stdint.h>
#include "zns/bucket.h"
#include "zns/dev.h"

/* @bucket: pays for every byte before it moves; NULL: no rate. @urgent: goes before others there */
int transfer_read(struct zns_dev *dev, struct zns_bucket *bucket, bool urgent, uint32_t zone,
		  uint64_t off, uint8_t *buf, size_t len, struct zns_err *err);
/* @most: bytes of one command; 0: as many as the device takes. @ns: unless NULL, the time that
 * the device took is added to it, without the time that the bucket waited. */
int transfer_write(struct zns_dev *dev, struct zns_bucket *bucket, size_t most, uint32_t zone,
		   uint64_t off, const uint8_t *buf, size_t len, uint64_t *ns, struct zns_err *err);

#endif
