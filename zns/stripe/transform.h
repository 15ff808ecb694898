/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_STRIPE_TRANSFORM_H
#define ZNS_STRIPE_TRANSFORM_H
/*
 * What happens to a unit between memory and device: nothing, or encryption. Writer and reader call only this, with no
 * lock held but where it says so; a unit keeps its length. What checksums and places are about is the unit as it is on
 * the device, so whatever moves or checks units without a key is not concerned.
 */
#include "zns/crypt.h"
#include "zns/reader.h"
#include "zns/writer.h"

/*
 * Before a unit is hashed and written, in place; once for each: a unit that is written again somewhere else is written
 * as it is. @tag is filled in if there is a key.
 */
int transform_out(const struct zns_crypt *c, uint32_t image, const char *name, uint64_t unit, uint8_t *buf, size_t len,
		  uint8_t tag[ZNS_TAG_BYTES], struct zns_err *err);
/* Keep the tag for the manifest. With the writer's lock. 0 or -ENOMEM. */
int transform_keep(ZnsPb__Image *pb, size_t *max, uint64_t unit, const uint8_t tag[ZNS_TAG_BYTES]);
/* The writer's end: what the manifest and its record say of the key. */
int transform_seal(const struct zns_crypt *c, ZnsPb__Manifest *m, uint8_t seal[ZNS_TAG_BYTES], struct zns_err *err);

/*
 * A unit as it came from the device: with a key checked by its tag and turned into what it was, in place; else compared
 * with its checksum. -EBADMSG: it is another one, and @buf may hold anything. Of an encrypted image nothing may leave
 * without a key: may_deliver.
 */
int transform_in(const struct zns_crypt *c, const ZnsPb__Image *pb, uint32_t image, uint64_t unit, uint8_t *buf, size_t len,
		 struct zns_err *err);
int may_deliver(const struct zns_crypt *c, const ZnsPb__Image *pb, struct zns_err *err);

#endif
