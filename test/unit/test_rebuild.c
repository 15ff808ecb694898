/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Rebuilding a catalogue: random histories of commits, removals, dead bytes and resets, then the
 * metadata zones are wiped or damaged, and what comes back must be what was there.
 */
#include "store_fixture.h"
#include "memdev.h"
#include "zns/fsck.h"

#define NZ 14
#define BLOCKS 24 /* of a zone */
#define HISTORY 60 /* steps */

struct world {
	struct memdev *m;
	struct zns_store *s;
	uint32_t block, nr_meta;
	unsigned seed, next_id;
	bool unfinished; /* some moves end before their record */
	bool back; /* some that were removed come back under their ids */
	bool as_is; /* and with the times of their creation */
	unsigned nr_back;
	int64_t now_ns;
};

static unsigned rnd(struct world *w, unsigned below)
{
	return (unsigned)rand_r(&w->seed) % below;
}

static void world_open(struct world *w, uint32_t block, unsigned seed)
{
	ZnsPb__Profile *p = make_profile(NZ, 4);

	*w = (struct world){ .m = memdev_new(NZ, BLOCKS * block, block),
			     .block = block,
			     .seed = seed };
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

/* Later than each time before. */
static int64_t tick(struct world *w)
{
	w->now_ns = zns_max(w->now_ns + 1, zns_now_ns());
	return w->now_ns;
}

/* One that was removed, if there is one among some. */
static void come_back(struct world *w, ZnsPb__Checkpoint *c)
{
	uint8_t old[ZNS_UUID_LEN];

	for (int tries = 0; w->back && tries < 3; tries++) {
		const ZnsPb__Tombstone *t;

		id_of(rnd(w, w->next_id), old);
		t = zns_store_find_tombstone(w->s, old);
		if (zns_store_find(w->s, old) || !t)
			continue;
		memcpy(c->id.data, old, ZNS_UUID_LEN);
		w->nr_back++;
		if (w->as_is) { /* as `znsctl copy` and `receive` bring it */
			c->created_ns = t->created_ns;
			c->has_moved_ns = 1;
			c->moved_ns = tick(w);
		}
		return;
	}
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
	c.created_ns = tick(w);
	come_back(w, &c);
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
	zone = k && rnd(w, 2) && room(w, use[0].zone) >= 4 * w->block ? use[0].zone :
									pick_zone(w, 4 * w->block);
	if (!k || zone == UINT32_MAX)
		return; /* a dump that failed */
	for (k = 0; k < c.n_zones && use[k].zone != zone; k++)
		;
	start = w->m->z[zone].wp;
	OK(zns_manifest_pack(&m, w->block, zone, start, &buf, &len, &ref, NULL));
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

/* Moves one zone's part elsewhere, with a manifest behind it, as compaction does. */
static void move_one(struct world *w)
{
	const ZnsPb__Checkpoint *old = zns_store_checkpoint(w->s,
							    rnd(w, zns_store_nr_checkpoints(w->s)));
	uint64_t end = old->manifest->start + zns_align_up(old->manifest->len, w->block) + w->block,
		 blocks = 0;
	uint32_t victim = old->zones[rnd(w, old->n_zones)]->zone, zone, footers[8];
	ZnsPb__Manifest m = ZNS_PB__MANIFEST__INIT;
	ZnsPb__ZoneUse use[16], *up[16];
	struct zns_err err = ZNS_ERR_INIT;
	ZnsPb__Checkpoint c = *old;
	ZnsPb__ExtentRef ref;
	uint8_t *buf;
	size_t len, k;

	if (old->n_old_manifests > 6 || old->n_zones > 14)
		return;
	c.zones = up;
	c.n_zones = 0;
	c.manifest = NULL;
	for (size_t i = 0; i < old->n_zones; i++) {
		ZnsPb__ZoneUse u = *old->zones[i];

		if (u.zone == old->manifest->zone && u.start + u.len == end)
			u.len = old->manifest->start - u.start;
		if (u.zone == victim)
			blocks += u.len / w->block;
		if (!u.len || u.zone == victim)
			continue;
		use[c.n_zones] = u;
		up[c.n_zones] = &use[c.n_zones];
		c.n_zones++;
	}
	zone = pick_zone(w, (blocks + 5) * w->block);
	if (zone == UINT32_MAX || zone == victim)
		return;
	up[c.n_zones] = &use[c.n_zones];
	zns_pb__zone_use__init(&use[c.n_zones]);
	use[c.n_zones].zone = zone;
	use[c.n_zones].start = w->m->z[zone].wp;
	use[c.n_zones].len = blocks * w->block;
	if (blocks) {
		put_noise(w, zone, (unsigned)blocks);
		c.n_zones++;
	}
	if (old->n_old_manifests)
		memcpy(footers, old->old_manifests, old->n_old_manifests * sizeof(*footers));
	c.old_manifests = footers;
	footers[c.n_old_manifests++] = old->manifest->zone;
	c.has_moved = c.has_moved_ns = 1;
	c.moved++;
	c.moved_ns = tick(w);
	m.device = (ProtobufCBinaryData){ ZNS_UUID_LEN, (uint8_t *)zns_store_uuid(w->s) };
	m.checkpoint = &c;
	OK(zns_manifest_pack(&m, w->block, zone, w->m->z[zone].wp, &buf, &len, &ref, NULL));
	put(w, zone, buf, len);
	free(buf);
	/* Alone it joins what ends there, as a rebuild does. */
	for (k = 0; k < c.n_zones &&
		    (use[k].zone != zone || use[k].start + use[k].len != use[c.n_zones].start);
	     k++)
		;
	if (!blocks && k == c.n_zones)
		c.n_zones++;
	use[blocks ? c.n_zones - 1 : k].len += len;
	c.manifest = &ref;
	if ((!w->unfinished || rnd(w, 4)) && zns_store_move(w->s, &c, &err))
		fail_msg("%s", err.msg);
}

static void reset_dead(struct world *w)
{
	for (uint32_t z = w->nr_meta; z < NZ; z++)
		if (!zns_store_zone_live(w->s, z) && w->m->z[z].wp)
			OK(zns_dev_reset(&w->m->dev, &z, 1, NULL));
}

static uint64_t own_bytes(const ZnsPb__Checkpoint *c, uint32_t zone)
{
	uint64_t n = 0;

	for (size_t i = 0; i < c->n_zones; i++)
		n += c->zones[i]->zone == zone ? c->zones[i]->len : 0;
	return n;
}

/* As the broker does: a copy of the tombstone behind each footer, unless the zone is reset. */
static void remove_one(struct world *w)
{
	const ZnsPb__Checkpoint *c = zns_store_checkpoint(w->s,
							  rnd(w, zns_store_nr_checkpoints(w->s)));
	uint8_t id[ZNS_UUID_LEN], *block = aligned_alloc(4096, 4096);
	uint32_t zones[9] = { c->manifest->zone }, nr = 1;
	bool can = true;

	memcpy(id, c->id.data, ZNS_UUID_LEN);
	for (size_t i = 0; i < c->n_old_manifests; i++)
		zones[nr++] = c->old_manifests[i];
	for (uint32_t i = 0; i < nr; i++)
		can &= zns_store_zone_live(w->s, zones[i]) == own_bytes(c, zones[i]) ||
		       room(w, zones[i]) >= nr * w->block;
	if (can) {
		OK(zns_store_remove(w->s, id, "test", NULL));
		for (uint32_t i = 0; i < nr; i++) {
			if (!zns_store_zone_live(w->s, zones[i]))
				continue;
			assert_int_equal(zns_tombstone_block(zns_store_find_tombstone(w->s, id),
							     block, w->block),
					 0);
			put(w, zones[i], block, w->block);
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
				put_noise(w, z, 1); /* of a dump that failed */
			break;
		case 1:
			if (zns_store_nr_checkpoints(w->s))
				move_one(w);
			break;
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

/*
 * After moves that were not finished either version may come back, and nobody knew of the second
 * footer at a removal: all that was there must be there.
 */
static char *text(const struct world *w)
{
	char *out = NULL, str[ZNS_UUID_STR];
	size_t len = 0;
	FILE *f;

	if (w->as_is) { /* the rebuild knows no order of arrivals, and so no last owner of a zone */
		out = store_text(w->s, NZ, false);
		if (strstr(out, "zone "))
			*strstr(out, "zone ") = 0;
		return out;
	}
	if (!w->unfinished)
		return store_text(w->s, NZ, false);
	f = open_memstream(&out, &len);
	for (size_t i = 0; i < zns_store_nr_checkpoints(w->s); i++)
		fprintf(f, "%s %s\n", zns_uuid_format(zns_store_checkpoint(w->s, i)->id.data, str),
			zns_store_checkpoint(w->s, i)->container);
	fclose(f);
	return out;
}

static bool all_in(const char *lines, const char *other)
{
	char line[256];

	for (const char *p = lines; *p; p = strchr(p, '\n') + 1) {
		snprintf(line, sizeof(line), "%.*s", (int)(strchr(p, '\n') - p), p);
		if (!strstr(other, line))
			return false;
	}
	return true;
}

static void count_lost(void *arg, const uint8_t *id, const char *container,
		       enum zns_rebuild_source from, bool taken, const char *why)
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
	after = text(w);
	if (w->unfinished || w->as_is ? !all_in(before, after) : strcmp(before, after) != 0)
		fail_msg("%s: was\n%s\nis\n%s", what, before, after);
	if (w->as_is && !all_in(after, before))
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

/* Without any metadata, footers and tombstones in the zones are enough; and few bytes are read for
 * them. */
static void lose_all(bool unfinished, bool back, bool as_is)
{
	unsigned nr_back = 0;
	uint64_t found = 0, read = 0, written = 0;

	for (unsigned seed = 1; seed <= 300; seed++) {
		struct world w;
		struct zns_scan sc;
		char *before;

		world_open(&w, seed % 2 ? 4096 : 512, seed);
		w.unfinished = unfinished;
		w.back = back;
		w.as_is = as_is;
		live(&w);
		nr_back += w.nr_back;
		before = text(&w);
		if (!zns_store_nr_checkpoints(w.s)) {
			free(before);
			world_close(&w);
			continue;
		}
		zns_store_close(w.s);
		if (!as_is || seed % 3)
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
	assert_true(found > 300 && read <= 2 * written && back == (nr_back > 300));
}

static void gone(void **state)
{
	lose_all(false, false, false);
}

/* An encrypted checkpoint comes from elsewhere under the id that it had when it was removed here.
 */
static void gone_with_second_lives(void **state)
{
	lose_all(false, true, false);
}

/* Any checkpoint comes back so from another store, which has it still. */
static void gone_with_copies(void **state)
{
	lose_all(false, true, true);
}

static void gone_amid_moves(void **state)
{
	lose_all(true, false, false);
}

/* Manifest and footer of a checkpoint whose data are [from, end of the zone), behind them. */
static void put_ending(struct world *w, ZnsPb__Checkpoint *c, uint32_t zone, uint64_t from,
		       ZnsPb__ExtentRef *ref, ZnsPb__ZoneUse *use)
{
	ZnsPb__Manifest m = ZNS_PB__MANIFEST__INIT;
	uint8_t *buf;
	size_t len;

	zns_pb__zone_use__init(use);
	use->zone = zone;
	use->start = from;
	use->len = w->m->z[zone].wp - from;
	c->n_zones = 1;
	m.device = (ProtobufCBinaryData){ ZNS_UUID_LEN, (uint8_t *)zns_store_uuid(w->s) };
	m.checkpoint = c;
	OK(zns_manifest_pack(&m, w->block, zone, w->m->z[zone].wp, &buf, &len, ref, NULL));
	put(w, zone, buf, len);
	free(buf);
	use->len += len;
}

/*
 * A task may have in its memory what looks like a checkpoint, with right checksums. It stands in
 * the data of a known checkpoint, and is not looked at, however many there are.
 */
static void forged_in_memory(void **state)
{
	ZnsPb__ZoneUse use, *up = &use;
	struct zns_scan sc;
	struct world w;
	char *before;

	world_open(&w, 512, 1);
	for (unsigned n = 0; n < 6; n++) {
		uint32_t zone = w.nr_meta + n % 3;
		ZnsPb__Checkpoint forged = ZNS_PB__CHECKPOINT__INIT, c = forged;
		uint64_t from = w.m->z[zone].wp;
		uint8_t evil[ZNS_UUID_LEN], id[ZNS_UUID_LEN];
		ZnsPb__ExtentRef ref;

		id_of(100 + n, evil);
		forged.id = (ProtobufCBinaryData){ ZNS_UUID_LEN, evil };
		forged.container = (char *)"victim";
		forged.created_ns = 1000 * (n + 1);
		forged.zones = c.zones = &up;
		put_noise(&w, zone, 2);
		put_ending(&w, &forged, zone, from, &ref, &use);
		id_of(n, id);
		c.id = (ProtobufCBinaryData){ ZNS_UUID_LEN, id };
		c.container = (char *)"web";
		c.created_ns = 1000 * (n + 1);
		put_ending(&w, &c, zone, from, &ref, &use);
		c.manifest = &ref;
		OK(zns_store_commit(w.s, &c, NULL));
	}
	before = text(&w);
	zns_store_close(w.s);
	wipe(&w);
	sc = rebuild(&w, before, "forged");
	assert_int_equal(sc.nr, 6);
	zns_scan_free(&sc);
	free(before);
	world_close(&w);
}

/* One damaged byte anywhere in the metadata: opening says so or loses nothing, and a rebuild brings
 * everything back. */
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

/* A device without any trace of a store cannot be rebuilt; trying does not create a store. */
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
			/* A tombstone may be among what was damaged: no more than were ever
			 * committed. */
			assert_true(r.checkpoints <= w.next_id && (nr || r.checkpoints <= 8));
			zns_scan_free(&r.scan);
			OK(zns_store_open(&w.m->dev, 0, &w.s, NULL));
		}
		profile_free(p);
		world_close(&w);
	}
}

/* @k's footer, on the medium */
static uint8_t *footer_at(struct world *w, const ZnsPb__Checkpoint *k)
{
	return w->m->z[k->manifest->zone].data + k->manifest->start +
	       zns_align_up(k->manifest->len, w->block);
}

/* The records whose log is known: what do the zones say? */
static void scan_known(struct world *w, const ZnsPb__Checkpoint *k, struct zns_scan *out)
{
	const struct zns_scan_params p = {
		.dev = &w->m->dev, .nr_meta = w->nr_meta, .known = &k, .nr_known = 1
	};
	struct zns_zone z;
	uint32_t with_data = 0;

	OK(zns_scan_zones(&p, out, NULL));
	for (uint32_t i = w->nr_meta; i < w->m->dev.geo.nr_zones; i++) {
		OK(zns_dev_report(&w->m->dev, i, 1, &z, NULL));
		with_data += z.state != ZNS_ZONE_EMPTY && !z.conventional && z.wp > 0;
	}
	assert_true(with_data > 0);
	assert_int_equal(out->zones, with_data);
}

/* On a disk a tombstone takes the footer's place, and others are written where a checkpoint was. */
static void removed_in_place(void **state)
{
	const ZnsPb__Checkpoint *k, *by;
	ZnsPb__Tombstone t = ZNS_PB__TOMBSTONE__INIT;
	ZnsPb__Checkpoint c;
	struct zns_scan sc;
	struct world w;
	uint8_t id[ZNS_UUID_LEN], *block = aligned_alloc(4096, 4096);

	world_open(&w, 4096, 7);
	while (zns_store_nr_checkpoints(w.s) < 2)
		commit(&w);
	w.m->dev.geo.log_zones = w.nr_meta;
	k = zns_store_checkpoint(w.s, 0);
	by = zns_store_checkpoint(w.s, 1);

	/* its record says that it has all of the other one's zones, as if that had been written there */
	c = *k;
	c.zones = by->zones;
	c.n_zones = by->n_zones;
	memcpy(id, k->id.data, sizeof(id));
	scan_known(&w, k, &sc);
	assert_int_equal(sc.nr, 1); /* the other; its own place is known */
	zns_scan_free(&sc);
	c.manifest = by->manifest;
	scan_known(&w, &c, &sc);
	assert_int_equal(sc.nr, 2); /* the other checkpoint was written there, so it is found */
	zns_scan_free(&sc);

	t.id = k->id;
	t.has_created_ns = 1;
	t.created_ns = k->created_ns;
	t.by = (char *)"test";
	t.deleted_ns = 1;
	assert_int_equal(zns_tombstone_block(&t, block, w.block), 0);
	memcpy(footer_at(&w, k), block, w.block);
	scan_known(&w, k, &sc);
	assert_int_equal(sc.nr_dead, 1);
	assert_true(zns_tombstone_of(sc.dead[0], id, k->created_ns, 0));
	zns_scan_free(&sc);
	free(block);
	world_close(&w);
}

static void note_removed(void *arg, const uint8_t *id, const char *container,
			 enum zns_rebuild_source from, bool taken, const char *why)
{
	unsigned *nr = arg;

	*nr += !taken && from == ZNS_FROM_ZONES && strstr(why, " by somebody");
}

/* The log has a removed checkpoint whose footer still exists: the rebuild reports it as removed,
 * too. */
static void removed_in_the_log(void **state)
{
	ZnsPb__Profile *p = make_profile(NZ, 4);
	unsigned nr = 0;
	struct zns_rebuild_params params = { .profile = p, .tell = note_removed, .arg = &nr };
	struct zns_rebuild_result r;
	struct world w;

	world_open(&w, 4096, 7);
	while (zns_store_nr_checkpoints(w.s) < 2)
		commit(&w);
	OK(zns_store_remove(w.s, zns_store_checkpoint(w.s, 0)->id.data, "somebody", NULL));
	zns_store_close(w.s);
	OK(zns_rebuild(&w.m->dev, &params, &r, NULL));
	assert_int_equal(r.checkpoints, 1);
	assert_int_equal(nr, 1);
	zns_scan_free(&r.scan);
	OK(zns_store_open(&w.m->dev, 0, &w.s, NULL));
	profile_free(p);
	world_close(&w);
}

/* The log has a checkpoint whose zone was reset: its tombstone says whose it was and who took it out. */
static void reset_since(void **state)
{
	ZnsPb__Profile *p = make_profile(NZ, 4);
	struct zns_rebuild_params params = { .profile = p };
	const ZnsPb__Tombstone *t;
	struct zns_rebuild_result r;
	const ZnsPb__Checkpoint *k;
	cleanup_free char *container = NULL;
	uint8_t id[ZNS_UUID_LEN];
	struct world w;

	world_open(&w, 4096, 7);
	while (!zns_store_nr_checkpoints(w.s))
		commit(&w);
	k = zns_store_checkpoint(w.s, 0);
	memcpy(id, k->id.data, sizeof(id));
	container = strdup(k->container);
	OK(zns_dev_reset(&w.m->dev, &k->zones[0]->zone, 1, NULL));
	zns_store_close(w.s);
	OK(zns_rebuild(&w.m->dev, &params, &r, NULL));
	assert_int_equal(r.checkpoints, 0);
	zns_scan_free(&r.scan);
	OK(zns_store_open(&w.m->dev, 0, &w.s, NULL));
	t = zns_store_find_tombstone(w.s, id);
	assert_non_null(t);
	assert_string_equal(t->by, "znsctl fsck");
	assert_non_null(t->container);
	assert_string_equal(t->container, container);
	profile_free(p);
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(removed_in_place),   cmocka_unit_test(gone),
		cmocka_unit_test(gone_amid_moves),    cmocka_unit_test(gone_with_second_lives),
		cmocka_unit_test(forged_in_memory),   cmocka_unit_test(one_byte),
		cmocka_unit_test(nothing_there),      cmocka_unit_test(damaged_zones),
		cmocka_unit_test(removed_in_the_log), cmocka_unit_test(gone_with_copies),
		cmocka_unit_test(reset_since),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
