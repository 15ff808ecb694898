/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The frame around every stored payload; layout in Documentation/inside/format.md, "Frames". */
#include <endian.h>
#include <string.h>
#define XXH_STATIC_LINKING_ONLY /* needed to know the size of the streaming state */
#include <xxhash.h>
#include "zns/frame.h"
#include "zns/util.h"
#include "store_int.h"

enum { /* byte offsets in the header */
       OFF_MAGIC = 0,
       OFF_TYPE = 8,
       OFF_VERSION = 10,
       OFF_LEN = 12,
       OFF_GENERATION = 16,
       OFF_SEQ = 24,
       OFF_HEADER_HASH = 32,
       OFF_HASH = 40,
};

static void put16(uint8_t *p, uint16_t v)
{
	v = htole16(v);
	memcpy(p, &v, sizeof(v));
}

static void put32(uint8_t *p, uint32_t v)
{
	v = htole32(v);
	memcpy(p, &v, sizeof(v));
}

static void put64(uint8_t *p, uint64_t v)
{
	v = htole64(v);
	memcpy(p, &v, sizeof(v));
}

static uint16_t get16(const uint8_t *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return le16toh(v);
}

static uint32_t get32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return le32toh(v);
}

static uint64_t get64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return le64toh(v);
}

size_t zns_frame_size(size_t payload_len, size_t align)
{
	return zns_align_up(ZNS_FRAME_HDR + payload_len, align);
}

/* Computes the frame's hash: XXH3 of the header with a zero hash field, then of the payload. */
static uint64_t frame_hash(const uint8_t *buf, size_t payload_len)
{
	static const uint8_t zero[8];
	XXH3_state_t st;

	XXH3_64bits_reset(&st);
	XXH3_64bits_update(&st, buf, OFF_HASH);
	XXH3_64bits_update(&st, zero, sizeof(zero));
	XXH3_64bits_update(&st, buf + ZNS_FRAME_HDR, payload_len);
	return XXH3_64bits_digest(&st);
}

void zns_frame_pack(const struct zns_frame *f, size_t align, uint8_t *out)
{
	size_t end = ZNS_FRAME_HDR + (size_t)f->len;

	/* memmove, because the payload may already be at its place in the buffer. */
	if (f->len)
		memmove(out + ZNS_FRAME_HDR, f->payload, f->len);
	memset(out, 0, ZNS_FRAME_HDR);
	put64(out + OFF_MAGIC, ZNS_FRAME_MAGIC);
	put16(out + OFF_TYPE, f->type);
	put16(out + OFF_VERSION, f->version ? f->version : ZNS_FRAME_VERSION);
	put32(out + OFF_LEN, f->len);
	put64(out + OFF_GENERATION, f->generation);
	put64(out + OFF_SEQ, f->seq);
	put64(out + OFF_HEADER_HASH, zns_hash(out, OFF_HEADER_HASH));
	memset(out + end, 0, zns_frame_size(f->len, align) - end);
	put64(out + OFF_HASH, frame_hash(out, f->len));
}

uint64_t zns_frame_claim(const uint8_t *buf, size_t len, uint16_t *type)
{
	if (len < ZNS_FRAME_HDR || get64(buf + OFF_MAGIC) != ZNS_FRAME_MAGIC ||
	    get64(buf + OFF_HEADER_HASH) != zns_hash(buf, OFF_HEADER_HASH))
		return 0;
	if (type)
		*type = get16(buf + OFF_TYPE);
	return ZNS_FRAME_HDR + (uint64_t)get32(buf + OFF_LEN);
}

int zns_frame_parse(const uint8_t *buf, size_t len, struct zns_frame *f, struct zns_err *err)
{
	uint32_t n, known;

	if (len < sizeof(uint64_t) || get64(buf + OFF_MAGIC) != ZNS_FRAME_MAGIC)
		return zns_fail(err, -ENODATA, "there is no record at this place");
	if (len < ZNS_FRAME_HDR)
		return zns_fail(err, -EBADMSG, "record cut off in its header");
	/* The header has a hash of its own, so that its length can be trusted even if the rest of
	 * the frame is missing. */
	if (get64(buf + OFF_HEADER_HASH) != zns_hash(buf, OFF_HEADER_HASH))
		return zns_fail(err, -EBADMSG,
				"record damaged: the checksum of its header does not match");
	n = get32(buf + OFF_LEN);
	if (n > len - ZNS_FRAME_HDR)
		return zns_fail(err, -EBADMSG, "record of %u bytes cut off after %zu", n,
				len - ZNS_FRAME_HDR);
	if (get64(buf + OFF_HASH) != frame_hash(buf, n))
		return zns_fail(err, -EBADMSG, "record damaged: checksum does not match");
	/* Check the hash before the version, so that a flipped bit is reported as damage, not as a
	 * newer version. */
	f->version = get16(buf + OFF_VERSION);
	f->type = get16(buf + OFF_TYPE);
	known = f->type == ZNS_FRAME_MANIFEST ? ZNS_MANIFEST_VERSION : ZNS_FRAME_VERSION;
	if (f->version > known)
		return zns_fail(
			err, -EPROTONOSUPPORT,
			"record version %u is newer than this program's (%u): use a newer ZNS-CRIU",
			f->version, known);
	f->generation = get64(buf + OFF_GENERATION);
	f->seq = get64(buf + OFF_SEQ);
	if (!f->version || f->generation > ZNS_GENERATION_MAX || f->seq > ZNS_GENERATION_MAX)
		return zns_fail(err, -EBADMSG, "record header has impossible values");
	f->payload = buf + ZNS_FRAME_HDR;
	f->len = n;
	return 0;
}
