/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_STRIPE_TRANSFORM_H
#define ZNS_STRIPE_TRANSFORM_H
/*
 * What happens to a unit between memory and the device: nothing, or encryption. Writer and
 * reader call these functions and no others for it, without a lock except where said. A unit
 * keeps its length. Checksums and places describe the unit's bytes on the device, so units can
 * be moved and checked without a key.
 */
#include "zns/crypt.h"
#include "zns/crypt_memory.h"
#include "zns/reader.h"
#include "zns/writer.h"

/*
 * Encrypts a unit in place, before it is hashed and written. Called once for each unit: a unit
 * that is written again elsewhere is written in the form it has. @tag is filled in if there is a
 * key.
 */
int transform_out(const struct zns_crypt *c, uint32_t image, const char *name, uint64_t unit,
		  uint8_t *buf, size_t len, uint8_t tag[ZNS_TAG_BYTES], struct zns_err *err);
/* Keeps a unit's tag for the manifest. Call with the writer's lock. 0 or -ENOMEM. */
int transform_keep(ZnsPb__Image *pb, size_t *max, uint64_t unit, const uint8_t tag[ZNS_TAG_BYTES]);
/* Called when the writer ends: puts information about the key into the manifest and its record. */
int transform_seal(const struct zns_crypt *c, ZnsPb__Manifest *m, uint8_t seal[ZNS_TAG_BYTES],
		   struct zns_err *err);

/*
 * Called with a unit that was read from the device. With a key its tag is checked and it is
 * decrypted in place. Without a key it is compared with its checksum. -EBADMSG: it does not match,
 * and the contents of @buf are undefined. Without a key the reader must not deliver data of an
 * encrypted image: may_deliver. @m: the key if these are units of an encrypted memory context,
 * else NULL.
 */
int transform_in(const struct zns_crypt *c, const struct zns_memory_key *m, const ZnsPb__Image *pb,
		 uint32_t image, uint64_t unit, uint8_t *buf, size_t len, struct zns_err *err);
int may_deliver(const struct zns_crypt *c, const ZnsPb__Image *pb, struct zns_err *err);

#endif
