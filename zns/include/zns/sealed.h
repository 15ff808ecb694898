/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_SEALED_H
#define ZNS_SEALED_H
/*
 * The manifest of a checkpoint that leaves a device as it is: of an encrypted one in a layer of an
 * OCI image (Documentation/inside/format.md, "Sealed layers"), of any one in a stream
 * (zns/stream.h). It is without places, times, names of containers and keys, so that it is the same
 * from any device. The units stand behind it in the layer. It may come from anybody.
 */
#include "zns/dev.h"
#include "zns/err.h"
#include "zns-record.pb-c.h"

#define ZNS_SEALED_MAX MIB(64)
/*
 * How long that of a checkpoint of @bytes may be. Decoded, it takes up to some twenty times its
 * size in memory: who wants that has to send a checkpoint. An image has 1 KiB or more of data, and
 * some 100 bytes of the manifest; a unit much less.
 */
static inline uint64_t zns_sealed_most(uint64_t bytes)
{
	return zns_min((uint64_t)ZNS_SEALED_MAX, MIB(1) + bytes / 8);
}

/* Can the checkpoint, encrypted or not, leave as it is? -EOPNOTSUPP: it cannot, and what can be
 * done. -ENOKEY: its key is gone. @m: as zns_manifest_read gives it. */
int zns_sealed_may(const ZnsPb__Manifest *m, struct zns_err *err);
/* The stripe unit of all its images; 0: they have different ones. */
uint32_t zns_sealed_unit(const ZnsPb__Manifest *m);
/* *out ends with free(). */
int zns_sealed_pack(const ZnsPb__Manifest *m, uint8_t **out, size_t *len, struct zns_err *err);
/*
 * Decode and check. @plain: it may also be that of an unencrypted one. Whatever a writer or reader computes from a checked one fits a device of @geo.
 * Free with zns_pb__manifest__free_unpacked. -EBADMSG: zns_sealed_pack never makes such a thing.
 */
int zns_sealed_parse(const uint8_t *buf, size_t len, const struct zns_geometry *geo, bool plain,
		     ZnsPb__Manifest **out, struct zns_err *err);

#endif
