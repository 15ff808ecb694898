/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Rebuilding a catalogue: random histories of commits, removals, dead bytes and resets, then the metadata zones are wiped
 * or damaged, and what comes back must be what was there.
 */
#include "store_fixture.h"
#include "memdev.h"
#include "zns/fsck.h"

#define NZ 14
#define BLOCKS 24		/* of a zone */
#define HISTORY 60		/* steps */

struct world {
	struct memdev *m;
	struct zns_store *s;
	uint32_t block, nr_meta;
	unsigned seed, next_id;
};

static unsigned rnd(struct world *w, unsigned below)
{
	return (unsigned)rand_r(&w->seed) % below;
}

static void world_open(struct world *w, uint32_t block, unsigned seed)
{
	ZnsPb__Profile *p = make_profile(NZ, 4);

	*w = (struct world){ .m = memdev_new(NZ, BLOCKS * block, block), .block = block, .seed = seed };
	OK(zns_store_format(&w->m->dev, NULL, p, false, NULL, NULL));
	profile_free(p);
	OK(zns_store_open(&w->m->dev, 0, &w->s, NULL));
	w->nr_meta = zns_store_nr_meta(w->s);
}

static void world_close(struct world *w)
{
	if (w->s)
		zns_store_close(w->s);
	memdev_close(&w->m->dev);
}

static uint64_t room(const struct world *w, uint32_t zone)
{
	return w->m->dev.geo.zone_capacity - w->m->z[zone].wp;
}

static void put(struct world *w, uint32_t zone, const void *buf, size_t len)
{
	OK(zns_dev_write(&w->m->dev, zone, w->m->z[zone].wp, buf, len, NULL));
}

/* Anything but a frame. */
static void put_noise(struct world *w, uint32_t zone, unsigned blocks)
{
	uint8_t *buf = aligned_alloc(4096, zns_align_up(blocks * w->block, 4096));

	for (size_t i = 0; i < blocks * w->block; i++)
		buf[i] = rnd(w, 255) + 1;
	put(w, zone, buf, blocks * w->block);
	free(buf);
}

static uint32_t pick_zone(struct world *w, uint64_t need)
{
	for (int tries = 0; tries < 40; tries++) {
		uint32_t z = w->nr_meta + rnd(w, NZ - w->nr_meta);

		/* What holds nothing live is reset before anybody gets it. */
		if (room(w, z) >= need && (!w->m->z[z].wp || zns_store_zone_live(w->s, z)))
			return z;
	}
	return UINT32_MAX;
}

/* Data in up to three zones, manifest and footer behind the last or in a zone of its own. */
static void commit(struct world *w)
{
	ZnsPb__Checkpoint c = ZNS_PB__CHECKPOINT__INIT;
	ZnsPb__Manifest m = ZNS_PB__MANIFEST__INIT;
	ZnsPb__ZoneUse use[4], *up[4] = { &use[0], &use[1], &use[2], &use[3] };
	ZnsPb__ExtentRef ref;
	uint8_t id[ZNS_UUID_LEN], *buf;
	unsigned n = 1 + rnd(w, 3), k = 0;
	struct zns_err err = ZNS_ERR_INIT;
	uint64_t start;
	uint32_t zone;
	size_t len;

	id_of(w->next_id++, id);
	c.id = (ProtobufCBinaryData){ ZNS_UUID_LEN, id };
	c.container = (char *)(w->next_id % 3 ? "web" : "db");
	c.created_ns = w->next_id * 1000;
	c.zones = up;
	while (k < n) {
		unsigned blocks = 1 + rnd(w, 5), i;

		zone = pick_zone(w, blocks * w->block);
		for (i = 0; i < k && use[i].zone != zone; i++)
			;
		if (zone == UINT32_MAX || i < k)
			break;
		zns_pb__zone_use__init(&use[k]);
		use[k].zone = zone;
		use[k].start = w->m->z[zone].wp;
		use[k++].len = blocks * w->block;
		put_noise(w, zone, blocks);
	}
	c.n_zones = k;
	m.device = (ProtobufCBinaryData){ ZNS_UUID_LEN, (uint8_t *)zns_store_uuid(w->s) };
	m.checkpoint = &c;
	zone = k && rnd(w, 2) && room(w, use[0].zone) >= 4 * w->block ? use[0].zone : pick_zone(w, 4 * w->block);
	if (!k || zone == UINT32_MAX)
		return;		/* a dump that failed */
	for (k = 0; k < c.n_zones && use[k].zone != zone; k++)
		;
	start = w->m->z[zone].wp;
	OK(zns_manifest_pack(&m, w->block, zone, start, UINT64_MAX, &buf, &len, &ref, NULL));
	put(w, zone, buf, len);
	free(buf);
	if (k == c.n_zones) {
		zns_pb__zone_use__init(&use[k]);
		use[k].zone = zone;
		use[k].start = start;
		c.n_zones++;
	}
	use[k].len = start + len - use[k].start;
	c.manifest = &ref;
	if (zns_store_commit(w->s, &c, &err))
		fail_msg("%s", err.msg);
}

static void reset_dead(struct world *w)
{
	for (uint32_t z = w->nr_meta; z < NZ; z++)
		if (!zns_store_zone_live(w->s, z) && w->m->z[z].wp)
			OK(zns_dev_reset(&w->m->dev, &z, 1, NULL));
}

/* As the broker does: a copy of the tombstone behind the footer, unless the zone is reset. */
static void remove_one(struct world *w)
{
	const ZnsPb__Checkpoint *c = zns_store_checkpoint(w->s, rnd(w, zns_store_nr_checkpoints(w->s)));
	uint8_t id[ZNS_UUID_LEN], *block = aligned_alloc(4096, 4096);
	uint32_t zone = c->manifest->zone;
	uint64_t own = 0;

	memcpy(id, c->id.data, ZNS_UUID_LEN);
	for (size_t i = 0; i < c->n_zones; i++)
		own += c->zones[i]->zone == zone ? c->zones[i]->len : 0;
	if (zns_store_zone_live(w->s, zone) == own || room(w, zone) >= w->block) {
		OK(zns_store_remove(w->s, id, "test", NULL));
		if (zns_store_zone_live(w->s, zone)) {
			assert_int_equal(zns_tombstone_block(zns_store_find_tombstone(w->s, id), block, w->block), 0);
			put(w, zone, block, w->block);
		}
	}
	free(block);
	if (rnd(w, 2))
		reset_dead(w);
}

static void live(struct world *w)
{
	for (unsigned i = 0; i < HISTORY; i++) {
		uint32_t z = pick_zone(w, w->block);

		switch (rnd(w, 8)) {
		case 0:
			if (z != UINT32_MAX)
				put_noise(w, z, 1);	/* of a dump that failed */
			break;
		case 1:
		case 2:
		case 3:
			if (zns_store_nr_checkpoints(w->s))
				remove_one(w);
			break;
		default:
			if (zns_store_nr_checkpoints(w->s) < 5)
				commit(w);
		}
	}
	reset_dead(w);
	OK(zns_dev_flush(&w->m->dev, NULL));
}

static void count_lost(void *arg, const uint8_t *id, const char *container, enum zns_rebuild_source from, bool taken,
		       const char *why)
{
	unsigned *taken_nr = arg;

	*taken_nr += taken;
	assert_non_null(container);
	assert_true(taken || *why);
}

/* The store must be as @before after a rebuild. */
static struct zns_scan rebuild(struct world *w, const char *before, const char *what)
{
	ZnsPb__Profile *p = make_profile(NZ, 4);
	unsigned taken = 0;
	struct zns_rebuild_params params = { .profile = p, .tell = count_lost, .arg = &taken };
	struct zns_rebuild_result r;
	struct zns_err err = ZNS_ERR_INIT;
	char *after;

	if (zns_rebuild(&w->m->dev, &params, &r, &err))
		fail_msg("%s, seed %u: %s", what, w->seed, err.msg);
	profile_free(p);
	assert_int_equal(taken, r.checkpoints);
	if (zns_store_open(&w->m->dev, 0, &w->s, &err))
		fail_msg("%s: open after rebuild: %s", what, err.msg);
	assert_int_equal(zns_store_generation(w->s), r.generation);
	after = store_text(w->s, NZ, false);
	if (strcmp(before, after))
		fail_msg("%s: was\n%s\nis\n%s", what, before, after);
	free(after);
	return r.scan;
}

static void wipe(struct world *w)
{
	for (uint32_t z = 0; z < w->nr_meta; z++)
		for (uint64_t i = 0; i < w->m->z[z].wp; i++)
			w->m->z[z].data[i] = 0;
}

/* Without any metadata, footers and tombstones in the zones are enough; and few bytes are read for them. */
static void gone(void **state)
{
	uint64_t found = 0, read = 0, written = 0;

	for (unsigned seed = 1; seed <= 300; seed++) {
		struct world w;
		struct zns_scan sc;
		char *before;

		world_open(&w, seed % 2 ? 4096 : 512, seed);
		live(&w);
		before = store_text(w.s, NZ, false);
		if (!zns_store_nr_checkpoints(w.s)) {
			free(before);
			world_close(&w);
			continue;
		}
		zns_store_close(w.s);
		wipe(&w);
		for (uint32_t z = w.nr_meta; z < NZ; z++)
			written += w.m->z[z].wp;
		sc = rebuild(&w, before, "wiped");
		found += sc.nr;
		read += sc.bytes;
		zns_scan_free(&sc);
		free(before);
		world_close(&w);
	}
	print_message("%llu footers found\n", (unsigned long long)found);
	assert_true(found > 300 && read <= 2 * written);
}

/* One damaged byte anywhere in the metadata: opening says so or loses nothing, and a rebuild brings everything back. */
static void one_byte(void **state)
{
	unsigned refused = 0, tries = 0;

	for (unsigned seed = 1; seed <= 40; seed++) {
		struct world w;
		char *before;

		world_open(&w, 512, seed * 77);
		live(&w);
		before = store_text(w.s, NZ, false);
		zns_store_close(w.s);
		for (unsigned i = 0; i < 15; i++) {
			uint32_t z = rnd(&w, w.nr_meta);
			struct zns_err err = ZNS_ERR_INIT;
			struct zns_scan sc;
			uint64_t at;
			char *now;
			int rc;

			if (!w.m->z[z].wp)
				continue;
			at = rnd(&w, (unsigned)w.m->z[z].wp);
			w.m->z[z].data[at] ^= 1 << rnd(&w, 8);
			tries++;
			rc = zns_store_open(&w.m->dev, ZNS_STORE_RDONLY, &w.s, &err);
			if (rc) {
				assert_int_equal(rc, -EBADMSG);
				refused++;
				sc = rebuild(&w, before, "one byte");
				zns_scan_free(&sc);
			} else {
				now = store_text(w.s, NZ, false);
				assert_string_equal(now, before);
				free(now);
			}
			zns_store_close(w.s);
			w.s = NULL;
		}
		free(before);
		world_close(&w);
	}
	print_message("%u bytes damaged, %u noticed at opening\n", tries, refused);
	assert_true(refused > tries / 20);
}

/* Nothing of a store, nothing to rebuild; a device is not made one by trying. */
static void nothing_there(void **state)
{
	struct memdev *m = memdev_new(NZ, BLOCKS * 512, 512);
	ZnsPb__Profile *p = make_profile(NZ, 4);
	uint8_t uuid[ZNS_UUID_LEN] = { 1 };
	struct zns_rebuild_params params = { .profile = p, .uuid = uuid };
	struct zns_rebuild_result r;
	struct zns_store *s;

	assert_int_equal(zns_rebuild(&m->dev, &params, &r, NULL), -ENOMEDIUM);
	assert_int_equal(zns_store_open(&m->dev, 0, &s, NULL), -ENOMEDIUM);
	profile_free(p);
	memdev_close(&m->dev);
}

/* Damaged data zones: no crash, nothing invented. */
static void damaged_zones(void **state)
{
	for (unsigned seed = 1; seed <= 200; seed++) {
		ZnsPb__Profile *p = make_profile(NZ, 4);
		struct zns_rebuild_params params = { .profile = p };
		struct zns_rebuild_result r;
		struct world w;
		unsigned nr;
		int rc;

		world_open(&w, 512, seed * 1001);
		live(&w);
		nr = zns_store_nr_checkpoints(w.s);
		zns_store_close(w.s);
		w.s = NULL;
		wipe(&w);
		for (unsigned i = 0; i < 8; i++) {
			uint32_t z = w.nr_meta + rnd(&w, NZ - w.nr_meta);

			if (w.m->z[z].wp)
				w.m->z[z].data[rnd(&w, (unsigned)w.m->z[z].wp)] ^= 1 << rnd(&w, 8);
		}
		rc = zns_rebuild(&w.m->dev, &params, &r, NULL);
		assert_true(!rc || rc == -ENOMEDIUM);
		if (!rc) {
			/* A tombstone may be among what was damaged: no more than were ever committed. */
			assert_true(r.checkpoints <= w.next_id && (nr || r.checkpoints <= 8));
			zns_scan_free(&r.scan);
			OK(zns_store_open(&w.m->dev, 0, &w.s, NULL));
		}
		profile_free(p);
		world_close(&w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gone),
		cmocka_unit_test(one_byte),
		cmocka_unit_test(nothing_there),
		cmocka_unit_test(damaged_zones),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
