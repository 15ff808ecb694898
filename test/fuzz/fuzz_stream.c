/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A stream that anybody sent to `znsctl receive`. The first byte says what the input is: a stream
 * as it comes (0), or payloads of its frames, each behind a byte for its type and two for its
 * length, which get right headers here (1).
 */
#include <stdlib.h>
#include <string.h>
#include "zns/image_map.h"
#include "zns/layout.h"
#include "zns/stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct zns_geometry geo = {
	.nr_zones = 64, .block_size = 4096, .zone_size = MIB(64), .zone_capacity = MIB(48)
};

struct bytes {
	uint8_t *p;
	size_t len, at;
};

static int take(void *arg, void *buf, size_t len, struct zns_err *err)
{
	struct bytes *b = arg;

	if (len > b->len - b->at)
		return -ENODATA;
	memcpy(buf, b->p + b->at, len);
	b->at += len;
	return 0;
}

/* What receive computes from it fits the device. */
static void look(struct zns_stream *s)
{
	const ZnsPb__Checkpoint *c = s->item->record;
	ZnsPb__Manifest *m;
	uint64_t bytes = 0;
	uint32_t unit;

	if (zns_stream_images(s, &geo, &m, NULL))
		return;
	unit = zns_sealed_unit(m);
	if (unit < ZNS_UNIT_LEAST || unit > ZNS_STRIPE_UNIT_MAX || unit % geo.block_size ||
	    c->id.len != ZNS_UUID_LEN || c->n_zones || c->manifest || !c->crypt != !m->seal.len ||
	    memcmp(c->id.data, m->checkpoint->id.data, ZNS_UUID_LEN) != 0)
		abort();
	for (size_t i = 0; i < m->n_images; i++) {
		if (m->images[i]->map)
			continue;
		bytes += m->images[i]->size;
		if (m->images[i]->n_segments ||
		    m->images[i]->n_csums != (m->images[i]->size + unit - 1) / unit)
			abort();
	}
	if (bytes > geo.nr_zones * geo.zone_capacity)
		abort();
	zns_pb__manifest__free_unpacked(m, NULL);
}

static void read_all(struct bytes *b)
{
	struct zns_stream s = { .io = take, .arg = b };
	int type;

	while ((type = zns_stream_next(&s, NULL)) > 0) {
		if (type == ZNS_FRAME_STREAM_IMAGES)
			look(&s);
		if (type == ZNS_FRAME_STREAM_DATA && s.f.len > ZNS_STREAM_DATA)
			abort();
		if (type == ZNS_FRAME_STREAM_END)
			break;
	}
	zns_stream_fini(&s);
}

static uint64_t add_up(uint64_t hash, const uint8_t *header)
{
	uint8_t both[8 + ZNS_FRAME_HDR];

	memcpy(both, &hash, 8);
	memcpy(both + 8, header, ZNS_FRAME_HDR);
	return zns_hash(both, sizeof(both));
}

/* The end of the stream has the right checksum and number. */
static size_t end_of(const uint8_t *data, size_t len, uint64_t hash, uint32_t items, uint8_t **out)
{
	ZnsPb__StreamEnd *e = zns_pb__stream_end__unpack(NULL, len, data);

	*out = NULL;
	if (!e)
		return 0;
	e->hash = hash;
	e->items = items;
	len = zns_pb__stream_end__get_packed_size(e);
	*out = malloc(len + 1);
	zns_pb__stream_end__pack(e, *out);
	zns_pb__stream_end__free_unpacked(e, NULL);
	return len;
}

static void put_frames(struct bytes *b, const uint8_t *data, size_t size)
{
	struct zns_frame f = { .generation = 5 };
	uint64_t hash = 0;
	uint32_t items = 0;

	while (size > 3) {
		uint8_t *end = NULL;

		f.type = ZNS_FRAME_STREAM_BEGIN + data[0] % 8;
		f.len = (uint32_t)zns_min(size - 3, (size_t)(data[1] | data[2] << 8));
		f.payload = data + 3;
		data += 3 + f.len;
		size -= 3 + f.len;
		items += f.type == ZNS_FRAME_STREAM_ITEM;
		if (f.type == ZNS_FRAME_STREAM_END) {
			f.len = (uint32_t)end_of(f.payload, f.len, hash, items, &end);
			f.payload = end;
		}
		b->p = realloc(b->p, b->len + zns_frame_size(f.len, 1));
		zns_frame_pack(&f, 1, b->p + b->len);
		hash = add_up(hash, b->p + b->len);
		b->len += zns_frame_size(f.len, 1);
		f.seq++;
		free(end);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bytes b = { 0 };

	if (!size)
		return 0;
	if (data[0]) {
		put_frames(&b, data + 1, size - 1);
	} else {
		b.p = malloc(size);
		memcpy(b.p, data + 1, size - 1);
		b.len = size - 1;
	}
	read_all(&b);
	free(b.p);
	return 0;
}
