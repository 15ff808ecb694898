/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The metadata log. First byte even: the rest is what metadata zone 0 holds. Odd: the rest are
 * records (type, length of two bytes, payload), each put into a good frame behind a good snapshot,
 * since no fuzzer finds a hash. What opens must survive a look at everything, a commit, a removal
 * and a roll-over.
 */
#include <stdlib.h>
#include <string.h>
#include "zns/frame.h"
#include "zns/store.h"
#include "../unit/memdev.h"

#define ZONES 8
#define CAP KIB(128)
#define BLOCK 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct memdev *formatted(uint64_t *generation, uint64_t *seq)
{
	static uint32_t of[ZONES] = { 0, 1, 0, 1, 0, 1, 0, 1 };
	ZnsPb__DieGroup g[2], *list[2] = { &g[0], &g[1] };
	ZnsPb__Profile p = ZNS_PB__PROFILE__INIT;
	struct memdev *m = memdev_new(ZONES, CAP, BLOCK);

	zns_pb__die_group__init(&g[0]);
	zns_pb__die_group__init(&g[1]);
	g[1].id = 1;
	p.source = (char *)"vendor";
	p.zone_write_mibps = 100;
	p.zone_read_mibps = 400;
	p.confidence = 1;
	p.groups = list;
	p.n_groups = 2;
	p.zone_group = of;
	p.n_zone_group = ZONES;
	if (zns_store_format(&m->dev, NULL, &p, false, NULL, NULL))
		abort();
	*generation = 1;
	*seq = 3; /* superblock, profile, end of the snapshot */
	return m;
}

static void put_records(struct memdev *m, const uint8_t *data, size_t size, uint64_t generation,
			uint64_t seq)
{
	while (size >= 3) {
		struct zns_frame f = { .type = data[0], .generation = generation, .seq = seq };
		size_t len = (size_t)(data[1] | data[2] << 8), room = CAP - m->z[0].wp;

		data += 3;
		size -= 3;
		f.len = (uint32_t)zns_min(len, size);
		if (zns_frame_size(f.len, BLOCK) > room)
			break;
		f.payload = data;
		zns_frame_pack(&f, BLOCK, m->z[0].data + m->z[0].wp);
		m->z[0].wp += zns_frame_size(f.len, BLOCK);
		data += f.len;
		size -= f.len;
		seq++;
	}
}

static void look(struct zns_store *s, struct memdev *m)
{
	for (size_t i = 0; i < zns_store_nr_checkpoints(s); i++) {
		const ZnsPb__Checkpoint *c = zns_store_checkpoint(s, i);
		ZnsPb__Manifest *man;

		if (zns_store_find(s, c->id.data) != c)
			abort();
		for (size_t z = 0; z < c->n_zones; z++)
			if (c->zones[z]->zone >= ZONES ||
			    !zns_store_zone_live(s, c->zones[z]->zone))
				abort();
		if (!zns_manifest_read(&m->dev, c, &man, NULL))
			zns_pb__manifest__free_unpacked(man, NULL);
	}
	for (uint32_t z = 0; z < ZONES; z++)
		if (zns_store_zone_live(s, z) > CAP)
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint64_t generation, seq, before;
	struct zns_store *s;
	struct memdev *m;

	if (size < 2)
		return 0;
	m = formatted(&generation, &seq);
	if (data[0] & 1) {
		put_records(m, data + 1, size - 1, generation, seq);
	} else {
		size_t n = zns_min(size - 1, CAP);

		memcpy(m->z[0].data, data + 1, n);
		m->z[0].wp = zns_align_up(n, BLOCK);
	}
	if (!zns_store_open(&m->dev, 0, &s, NULL)) {
		look(s, m);
		before = zns_store_nr_checkpoints(s);
		for (int i = 0; i < 3; i++)
			if (zns_store_nr_checkpoints(s))
				zns_store_remove(s, zns_store_checkpoint(s, 0)->id.data, "fuzz",
						 NULL);
		look(s, m);
		if (zns_store_nr_checkpoints(s) > before)
			abort();
		zns_store_close(s);
		/* What it wrote, it must read. */
		if (zns_store_open(&m->dev, ZNS_STORE_RDONLY, &s, NULL))
			abort();
		zns_store_close(s);
	}
	memdev_close(&m->dev);
	return 0;
}
