/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_SEALED_H
#define ZNS_SEALED_H
/*
 * The manifest of a checkpoint that leaves a device without being decrypted: of an encrypted one in
 * a layer of an OCI image (Documentation/inside/format.md, "Sealed layers"), or of any one in a
 * stream (zns/stream.h). It contains no places, times, names of containers or keys, so it is the
 * same whichever device it comes from. The units follow it in the layer. It is untrusted: it may
 * come from anybody.
 */
#include "zns/dev.h"
#include "zns/err.h"
#include "zns-record.pb-c.h"

#define ZNS_SEALED_MAX MIB(64)
/*
 * The most bytes that such a manifest may have for a checkpoint of @bytes. Decoded, it takes up to
 * some twenty times its size in memory; the limit means that a sender must send a large checkpoint
 * to use much memory. An image has 1 KiB or more of data and takes some 100 bytes of the manifest;
 * a unit takes much less.
 */
static inline uint64_t zns_sealed_most(uint64_t bytes)
{
	return zns_min((uint64_t)ZNS_SEALED_MAX, MIB(1) + bytes / 8);
}

/* Can the checkpoint, encrypted or not, be exported without decryption? -EOPNOTSUPP: no; the
 * message says what can be done. -ENOKEY: its key is gone. @m: as zns_manifest_read returns it. */
int zns_sealed_may(const ZnsPb__Manifest *m, struct zns_err *err);
/* The stripe unit of all images of the manifest; 0: they have different ones. */
uint32_t zns_sealed_unit(const ZnsPb__Manifest *m);
/* Packs the manifest; free *out with free(). */
int zns_sealed_pack(const ZnsPb__Manifest *m, uint8_t **out, size_t *len, struct zns_err *err);
/*
 * Decodes and checks such a manifest. @plain: that of an unencrypted checkpoint is accepted too.
 * After the check, everything that a writer or reader computes from it fits a device of @geo. Free
 * with zns_pb__manifest__free_unpacked. -EBADMSG: it cannot come from zns_sealed_pack.
 */
int zns_sealed_parse(const uint8_t *buf, size_t len, const struct zns_geometry *geo, bool plain,
		     ZnsPb__Manifest **out, struct zns_err *err);

#endif
