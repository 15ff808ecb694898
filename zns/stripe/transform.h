/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_STRIPE_TRANSFORM_H
#define ZNS_STRIPE_TRANSFORM_H
/*
 * What happens to a unit between memory and the device: nothing, or encryption. Writer and reader
 * use only these functions for that, without a lock unless a comment says otherwise. The length of
 * a unit does not change. Checksums and places refer to the unit's bytes on the device, so units
 * can be moved and checked without a key.
 */
#include "zns/crypt.h"
#include "zns/crypt_memory.h"
#include "zns/reader.h"
#include "zns/writer.h"

/*
 * Encrypts a unit in place, before it is hashed and written. Must be called only once for each
 * unit: if a unit is written again elsewhere, its encrypted bytes are written again. @tag is filled
 * in if there is a key.
 */
int transform_out(const struct zns_crypt *c, uint32_t image, const char *name, uint64_t unit,
		  uint8_t *buf, size_t len, uint8_t tag[ZNS_TAG_BYTES], struct zns_err *err);
/* Stores a unit's tag for the manifest. Called with the writer's lock. 0 or -ENOMEM. */
int transform_keep(ZnsPb__Image *pb, size_t *max, uint64_t unit, const uint8_t tag[ZNS_TAG_BYTES]);
/* Called at the end of a dump: stores in the manifest and its record that they are encrypted, and
 * computes the seal. */
int transform_seal(const struct zns_crypt *c, ZnsPb__Manifest *m, uint8_t seal[ZNS_TAG_BYTES],
		   struct zns_err *err);

/*
 * Verifies a unit that was read from the device. With a key, its tag is checked and it is decrypted
 * in place. Without a key, its checksum is compared. -EBADMSG: it does not match, and the contents
 * of @buf are undefined. Without a key the reader must not deliver data of an encrypted image:
 * may_deliver. @m: the key if the units belong to an encrypted memory context, else NULL.
 */
int transform_in(const struct zns_crypt *c, const struct zns_memory_key *m, const ZnsPb__Image *pb,
		 uint32_t image, uint64_t unit, uint8_t *buf, size_t len, struct zns_err *err);
int may_deliver(const struct zns_crypt *c, const ZnsPb__Image *pb, struct zns_err *err);

#endif
