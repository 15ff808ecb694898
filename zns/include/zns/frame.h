/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_FRAME_H
#define ZNS_FRAME_H
/*
 * The frame around every stored payload (log records, manifest, handle): a 48-byte little-endian
 * header with magic, lengths and a hash over header and payload. A reader checks each length
 * against the bytes it has before it uses it. Layout: Documentation/inside/format.md, "Frames".
 */
#include <stddef.h>
#include <stdint.h>
#include "zns/err.h"

#define ZNS_FRAME_MAGIC 0x3155495243534e5aull /* "ZNSCRIU1" as bytes on the device */
#define ZNS_FRAME_VERSION 1
/* version of a manifest whose images have checksums of pieces (ZnsPb__Image.piece) */
#define ZNS_MANIFEST_VERSION 2
#define ZNS_FRAME_HDR 48
/* no real device gets this far, so incrementing a valid generation never overflows */
#define ZNS_GENERATION_MAX (1ull << 56)

enum zns_frame_type {
	ZNS_FRAME_SUPERBLOCK = 1,
	ZNS_FRAME_PROFILE,
	ZNS_FRAME_CHECKPOINT,
	ZNS_FRAME_TOMBSTONE,
	ZNS_FRAME_RESERVATION,
	ZNS_FRAME_RELEASE,
	ZNS_FRAME_SNAPSHOT_END,
	ZNS_FRAME_MANIFEST,
	ZNS_FRAME_FOOTER,
	ZNS_FRAME_HANDLE,
	ZNS_FRAME_RETENTION = 32,
	ZNS_FRAME_MARK,
	ZNS_FRAME_MOUNT = 44,
	ZNS_FRAME_ENCRYPTION = 70,
	ZNS_FRAME_KEY,
	ZNS_FRAME_MOVED = 80,
	ZNS_FRAME_FIRST = 190,
	ZNS_FRAME_SEALED = 220, /* the manifest in a layer of an OCI image (zns/sealed.h) */
	/* frames of a stream of checkpoints (zns/stream.h) begin here */
	ZNS_FRAME_STREAM_BEGIN = 230,
	ZNS_FRAME_STREAM_ITEM,
	ZNS_FRAME_STREAM_IMAGES,
	ZNS_FRAME_STREAM_DATA,
	ZNS_FRAME_STREAM_DONE,
	ZNS_FRAME_STREAM_DROP,
	ZNS_FRAME_STREAM_END,
};

struct zns_frame {
	uint16_t type;
	uint16_t version; /* when packing, 0 means ZNS_FRAME_VERSION */
	uint64_t generation; /* log generation, 0 outside the log */
	uint64_t seq; /* position within that generation, 0 outside the log */
	const uint8_t *payload; /* points into the buffer given to zns_frame_parse */
	uint32_t len; /* payload bytes */
};

/* Bytes that a frame takes: header and payload, rounded up to @align (the block size, or 1). */
size_t zns_frame_size(size_t payload_len, size_t align);

/* Writes header, payload and zero padding to @out, which has zns_frame_size(len, align) bytes. */
void zns_frame_pack(const struct zns_frame *f, size_t align, uint8_t *out);

/*
 * Checks and splits the frame at the start of @buf. -ENODATA: no frame is here (another magic): the
 * clean end of a log. -EBADMSG: the frame is torn or damaged (length, hash). -EPROTONOSUPPORT: its
 * version is newer than ours. Never reads beyond @len.
 */
int zns_frame_parse(const uint8_t *buf, size_t len, struct zns_frame *f, struct zns_err *err);

#endif
