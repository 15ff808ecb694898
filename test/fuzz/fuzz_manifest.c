/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Manifests: decoded, checked, and every place that a reader would compute from an accepted one
 * must lie in a data zone; composed images must add up, of bytes that other images have. The input
 * is tried as a frame and, since no fuzzer finds a hash, as the payload of a good one.
 */
#include <stdlib.h>
#include <string.h>
#include "zns/frame.h"
#include "zns/image_map.h"
#include "zns/store.h"
#include "zns/layout.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct zns_geometry geo = {
	.nr_zones = 64, .block_size = 4096, .zone_size = MIB(64), .zone_capacity = MIB(48)
};

static void walk(const ZnsPb__Image *img)
{
	for (size_t i = 0; i < img->n_segments; i++) {
		const ZnsPb__Segment *pb = img->segments[i];
		uint64_t units = (pb->len + img->unit - 1) / img->unit;
		struct zns_place p;
		struct zns_seg seg;

		if (zns_seg_init(&seg, pb, img->unit, NULL))
			abort();
		for (uint64_t k = 0; k < units; k++) {
			uint64_t len = k + 1 < units ? img->unit : pb->len - k * img->unit;

			zns_seg_place(&seg, k, &p);
			if (p.zone < zns_store_meta_zones(&geo) || p.zone >= geo.nr_zones ||
			    p.off + len > geo.zone_capacity)
				abort();
		}
		zns_seg_fini(&seg);
	}
}

static uint64_t walk_map(const ZnsPb__Manifest *m, const ZnsPb__Image *img)
{
	struct zns_map_reader r;
	struct zns_image_run run;
	uint64_t size = 0, runs = 0;

	if (zns_map_open(&r, img->map, NULL))
		return 0;
	for (; zns_map_next(&r, &run) > 0; size += run.len, runs++) {
		const ZnsPb__Image *of = m->images[img->map->from[run.source]];

		if (!of->part || of->map || run.at > of->size || run.len > of->size - run.at ||
		    !run.len)
			abort();
	}
	zns_map_close(&r);
	if (size != img->size || img->n_segments || img->n_csums)
		abort();
	return runs;
}

static void try(const uint8_t *buf, size_t len)
{
	ZnsPb__Manifest *m;
	uint64_t runs = 0;

	if (zns_manifest_parse(buf, len, &geo, &m, NULL))
		return;
	for (size_t i = 0; i < m->n_images; i++)
		if (m->images[i]->map)
			runs += walk_map(m, m->images[i]);
		else
			walk(m->images[i]);
	if (runs > ZNS_MAP_RUNS_MAX)
		abort();
	zns_pb__manifest__free_unpacked(m, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct zns_frame f = { .type = ZNS_FRAME_MANIFEST, .payload = data, .len = size };
	uint8_t *buf = malloc(zns_frame_size(size, 1));

	try(data, size);
	zns_frame_pack(&f, 1, buf);
	try(buf, zns_frame_size(size, 1));
	free(buf);
	return 0;
}
