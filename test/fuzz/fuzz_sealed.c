/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The record of an encrypted checkpoint that comes in a layer of an OCI image: decoded, checked,
 * and what an import computes from an accepted one must fit the device. The input is tried as a
 * frame and as the payload of a good one.
 */
#include <stdlib.h>
#include <string.h>
#include "zns/crypt.h"
#include "zns/frame.h"
#include "zns/image_map.h"
#include "zns/layout.h"
#include "zns/sealed.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct zns_geometry geo = {
	.nr_zones = 64, .block_size = 4096, .zone_size = MIB(64), .zone_capacity = MIB(48)
};

static void look(const ZnsPb__Manifest *m)
{
	uint32_t unit = zns_sealed_unit(m);
	uint64_t bytes = 0;

	if (unit < ZNS_UNIT_LEAST || unit > ZNS_STRIPE_UNIT_MAX || unit % geo.block_size ||
	    m->seal.len != ZNS_TAG_BYTES || m->checkpoint->n_zones || !m->checkpoint->crypt)
		abort();
	for (size_t i = 0; i < m->n_images; i++) {
		const ZnsPb__Image *pb = m->images[i];

		if (pb->map)
			continue;
		bytes += pb->size;
		if (pb->unit != unit || pb->n_segments ||
		    pb->n_csums != (pb->size + unit - 1) / unit ||
		    (pb->size && pb->tags.len != pb->n_csums * ZNS_TAG_BYTES))
			abort();
	}
	if (bytes > geo.nr_zones * geo.zone_capacity)
		abort();
}

/* An accepted manifest is packed to the same bytes again. */
static void again(const ZnsPb__Manifest *m)
{
	ZnsPb__Manifest *other;
	uint8_t *buf;
	size_t len;

	if (zns_sealed_pack(m, &buf, &len, NULL))
		abort();
	if (zns_sealed_parse(buf, len, &geo, false, &other, NULL))
		abort();
	zns_pb__manifest__free_unpacked(other, NULL);
	free(buf);
}

static void try(const uint8_t *buf, size_t len)
{
	ZnsPb__Manifest *m;

	if (zns_sealed_parse(buf, len, &geo, false, &m, NULL))
		return;
	look(m);
	again(m);
	zns_pb__manifest__free_unpacked(m, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct zns_frame f = { .type = ZNS_FRAME_SEALED, .payload = data, .len = size };
	uint8_t *buf = malloc(zns_frame_size(size, 1));

	try(data, size);
	zns_frame_pack(&f, 1, buf);
	try(buf, zns_frame_size(size, 1));
	free(buf);
	return 0;
}
