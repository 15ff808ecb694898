/* SPDX-License-Identifier: GPL-2.0-only */
/* The store under crashes, faults and damage: at every operation of the device, with every kind of
 * loss. */
#include "store_fixture.h"
#include "memdev.h"

#define NZ 8
#define CAP KIB(64) /* 16 blocks of 4 KiB; 16 blocks of 512 B in 8 KiB */
#define STEPS 60

static uint32_t unit; /* of what is committed: a block */

static struct memdev *formatted(uint32_t block)
{
	struct memdev *m = memdev_new(NZ, 16 * block, block);
	ZnsPb__Profile *p = make_profile(NZ, 4);

	unit = block;
	OK(zns_store_format(&m->dev, NULL, p, false, NULL, NULL));
	profile_free(p);
	m->ops = 0;
	return m;
}

/* Rules and marks are set and removed too. */
static int rule_or_mark(struct zns_store *s, unsigned n)
{
	ZnsPb__Retention r = ZNS_PB__RETENTION__INIT;
	ZnsPb__Mark m = ZNS_PB__MARK__INIT;

	r.container = (char *)"web";
	r.has_keep = 1;
	r.keep = n % 30 < 20 ? n : 0;
	if (n % 20 == 4 || !zns_store_nr_checkpoints(s))
		return zns_store_retain(s, &r, NULL);
	m.checkpoint = zns_store_checkpoint(s, 0)->id;
	m.has_pinned = 1;
	m.pinned = n % 40 < 20;
	return zns_store_set_mark(s, &m, NULL);
}

/* Step @n of a fixed script that commits, removes, reserves, releases, sets profiles, rules and
 * marks. */
static int step(struct zns_store *s, unsigned n)
{
	ZnsPb__Reservation r = ZNS_PB__RESERVATION__INIT;
	const char *who = n % 3 ? "web" : "db";
	uint8_t id[ZNS_UUID_LEN];
	uint32_t group = n % 2;
	ZnsPb__Profile *p;
	struct ck k;
	int rc;

	switch (n % 10) {
	case 3:
	case 7:
		id_of(n - 3, id);
		return zns_store_remove(s, id, "script", NULL);
	case 5:
		r.container = (char *)who;
		r.groups = &group;
		r.n_groups = 1;
		r.has_explicit_ = r.explicit_ = 1;
		return zns_store_reserve(s, &r, NULL);
	case 1:
	case 6:
		return rule_or_mark(s, n);
	case 8:
		r.container = n % 20 == 8 ? "cache" : "db";
		r.groups = &group;
		r.n_groups = 1;
		return zns_store_reserve(s, &r, NULL);
	case 9:
		if (zns_store_nr_reservations(s) > 1)
			return zns_store_release(s, zns_store_reservation(s, 0)->container, NULL);
		p = make_profile(NZ, 4 - n % 2);
		rc = zns_store_set_profile(s, p, NULL);
		profile_free(p);
		return rc;
	}
	if (zns_store_nr_checkpoints(s) > 3)
		return zns_store_remove(s, zns_store_checkpoint(s, 0)->id.data, "script", NULL);
	return zns_store_commit(s, ck_init(&k, n, who, 3 + n % 5, n % 15 * unit, unit), NULL);
}

/* What the script leaves after each step, on a device without faults. */
static uint64_t script_texts(uint32_t block, char **texts)
{
	struct memdev *m = formatted(block);
	struct zns_store *s;
	uint64_t ops;

	OK(zns_store_open(&m->dev, 0, &s, NULL));
	texts[0] = store_text(s, NZ, false);
	for (unsigned n = 0; n < STEPS; n++) {
		int rc = step(s, n);

		assert_true(rc == 0 || rc == -ENOENT); /* a removal may come too late */
		texts[n + 1] = store_text(s, NZ, false);
	}
	assert_true(zns_store_generation(s) > 3);
	ops = m->ops;
	zns_store_close(s);
	memdev_close(&m->dev);
	return ops;
}

static void texts_free(char **texts)
{
	for (unsigned n = 0; n <= STEPS; n++)
		free(texts[n]);
}

static void after_crash(struct memdev *m, char **texts, unsigned done, bool cut)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_store *s;
	char *ro, *rw;
	int rc;

	rc = zns_store_open(&m->dev, ZNS_STORE_RDONLY, &s, &err);
	if (rc)
		fail_msg("read-only open after %u steps: %d %s", done, rc, err.msg);
	ro = store_text(s, NZ, false);
	zns_store_close(s);
	/*
	 * All acknowledged steps are found; the step under way is found completely or not at all.
	 */
	if (strcmp(ro, texts[done]) && (done == STEPS || strcmp(ro, texts[done + 1])))
		fail_msg("after %u steps:\n%s\nnot:\n%s", done, ro, texts[done]);
	rc = zns_store_open(&m->dev, 0, &s, &err);
	if (rc)
		fail_msg("open after %u steps: %d %s", done, rc, err.msg);
	rw = store_text(s, NZ, false);
	assert_string_equal(ro, rw);
	free(rw);
	/* And it goes on from there, across rolls. */
	for (unsigned i = 0; i < 20; i++) {
		struct ck k;

		OK(zns_store_commit(s, ck_init(&k, 4000 + i, "later", 3, 15 * unit, unit), NULL));
		OK(zns_store_remove(s, k.id, "later", NULL));
	}
	zns_store_close(s);
	OK(zns_store_open(&m->dev, 0, &s, NULL));
	rw = store_text(s, NZ, false);
	assert_string_equal(ro, rw);
	free(rw);
	free(ro);
	zns_store_close(s);
}

static void crash_everywhere(uint32_t block, bool partial)
{
	char *texts[STEPS + 1];
	uint64_t ops = script_texts(block, texts);
	unsigned runs = 0;

	for (uint64_t at = 0; at < ops; at++) {
		for (unsigned seed = 0; seed < 6; seed++) {
			struct memdev *m = formatted(block);
			struct zns_store *s;
			unsigned n;

			m->fail_at = at;
			m->dead = true;
			m->partial = partial;
			OK(zns_store_open(&m->dev, 0, &s, NULL));
			for (n = 0; n < STEPS; n++) {
				int rc = step(s, n);

				if (rc && rc != -ENOENT)
					break;
			}
			/* the last: best-effort resets after a roll */
			assert_true(n < STEPS || m->ops > at);
			if (n < STEPS) {
				char *text = store_text(s, NZ, false);

				assert_string_equal(text, texts[n]); /* memory is what it was */
				free(text);
			}
			zns_store_close(s);
			memdev_power_cut(m, seed);
			after_crash(m, texts, n, true);
			memdev_close(&m->dev);
			runs++;
		}
	}
	print_message("%u crashes at %llu operations\n", runs, (unsigned long long)ops);
	texts_free(texts);
}

static void power_cuts_4k(void **state)
{
	crash_everywhere(4096, false);
}

static void power_cuts_torn_writes_4k(void **state)
{
	crash_everywhere(4096, true);
}

static void power_cuts_torn_writes_512(void **state)
{
	crash_everywhere(512, true);
}

/*
 * Some operations in a row fail, the device lives on: the change is refused or done, never half,
 * and can be repeated until it succeeds.
 */
static void faults(unsigned nr)
{
	char *texts[STEPS + 1];
	uint64_t ops = script_texts(4096, texts);

	for (uint64_t at = 0; at < ops; at++) {
		for (int partial = 0; partial < 2; partial++) {
			struct memdev *m = formatted(4096);
			struct zns_store *s;
			unsigned failed = 0;

			m->fail_at = at;
			m->fail_nr = nr;
			m->partial = partial;
			OK(zns_store_open(&m->dev, 0, &s, NULL));
			for (unsigned n = 0; n < STEPS; n++) {
				int rc = step(s, n);
				char *text = store_text(s, NZ, false);

				if (rc && rc != -ENOENT) {
					struct zns_store *r;
					char *ro;

					failed++;
					assert_string_equal(text, texts[n]);
					free(text);
					n--;
					/* Nor does the device say otherwise, if the roll behind it
					 * was possible. */
					if (nr > 1)
						continue;
					text = store_text(s, NZ, false);
					OK(zns_store_open(&m->dev, ZNS_STORE_RDONLY, &r, NULL));
					ro = store_text(r, NZ, false);
					assert_string_equal(ro, text);
					free(ro);
					zns_store_close(r);
				} else {
					assert_string_equal(text, texts[n + 1]);
				}
				free(text);
			}
			assert_true(failed <= nr);
			zns_store_close(s);
			after_crash(m, texts, STEPS, false);
			memdev_close(&m->dev);
		}
	}
	texts_free(texts);
}

static void one_fault(void **state)
{
	faults(1);
}

static void several_faults(void **state)
{
	for (unsigned nr = 2; nr < 8; nr++)
		faults(nr);
}

/* Format must leave the old store, none, or the new one. */
static void interrupted_format(void **state)
{
	for (uint64_t at = 0; at < 12; at++) {
		for (unsigned seed = 0; seed < 6; seed++) {
			struct memdev *m = formatted(4096);
			ZnsPb__Profile *p = make_profile(NZ, 4);
			struct zns_store *s;
			struct ck k;
			void *buf = aligned_alloc(4096, 4096);
			int rc, opened;

			memset(buf, 1, 4096);
			OK(zns_store_open(&m->dev, 0, &s, NULL));
			for (unsigned n = 0; zns_store_generation(s) < 3; n++) {
				OK(zns_store_commit(s, ck_init(&k, n, "a", 5, 0, 4096), NULL));
				OK(zns_store_remove(s, k.id, "gc", NULL));
			}
			OK(zns_store_commit(s, ck_init(&k, 999, "a", 5, 0, 4096), NULL));
			OK(zns_dev_write(&m->dev, 5, 0, buf, 4096, NULL));
			OK(zns_dev_flush(&m->dev, NULL));
			zns_store_close(s);
			m->ops = 0;
			m->fail_at = at;
			m->dead = true;
			rc = zns_store_format(&m->dev, NULL, p, true, NULL, NULL);
			memdev_power_cut(m, seed);
			opened = zns_store_open(&m->dev, 0, &s, NULL);
			if (!opened) {
				size_t nr = zns_store_nr_checkpoints(s);

				/* A catalogue that names data has the data. */
				assert_true(nr == 0 || m->z[5].wp == 4096);
				assert_true(rc || nr == 0);
				zns_store_close(s);
			} else {
				assert_int_equal(opened, -ENOMEDIUM);
			}
			OK(zns_store_format(&m->dev, NULL, p, true, NULL, NULL));
			OK(zns_store_open(&m->dev, 0, &s, NULL));
			assert_int_equal(zns_store_nr_checkpoints(s), 0);
			zns_store_close(s);
			profile_free(p);
			free(buf);
			memdev_close(&m->dev);
		}
	}
}

/* ---- damage ---- */

/* Generation 1 in zone 0: superblock, profile, end, then checkpoints 0 … nr-1, a block each. */
static struct memdev *with_checkpoints(unsigned nr)
{
	struct memdev *m = formatted(4096);
	struct zns_store *s;
	struct ck k;

	OK(zns_store_open(&m->dev, 0, &s, NULL));
	for (unsigned n = 0; n < nr; n++)
		OK(zns_store_commit(s, ck_init(&k, n, "a", 5, n * 4096, 4096), NULL));
	zns_store_close(s);
	return m;
}

static void damaged_middle(void **state)
{
	/* Every record but the last, the superblock included; a few places in each. */
	static const unsigned at[] = { 0, 9, 13, 17, 25, 40, 48, 60 };

	for (unsigned rec = 0; rec < 7; rec++)
		for (size_t i = 0; i < ZNS_ARRAY_SIZE(at); i++)
			for (unsigned flags = 0; flags < 2; flags++) {
				struct memdev *m = with_checkpoints(5);
				struct zns_err err = ZNS_ERR_INIT;
				struct zns_store *s;
				int rc;

				if (rec == 2 && at[i] > 49) { /* behind the end of that record */
					memdev_close(&m->dev);
					continue;
				}
				m->z[0].data[rec * 4096 + at[i]] ^= 4;
				rc = zns_store_open(&m->dev, flags, &s, &err);
				if (rc != -EBADMSG)
					fail_msg("record %u byte %u: %d", rec, at[i], rc);
				assert_non_null(strstr(err.msg, "damaged"));
				memdev_close(&m->dev);
			}
}

/*
 * A damaged last record is no torn one: that would end at the write pointer. It may have been
 * acknowledged long ago, so it is never taken for a crash.
 */
static void damaged_tail(void **state)
{
	for (unsigned byte = 0; byte < 60; byte++) {
		struct memdev *m = with_checkpoints(5);
		struct zns_store *s;

		m->z[0].data[7 * 4096 + byte] ^= 0x10;
		assert_int_equal(zns_store_open(&m->dev, ZNS_STORE_RDONLY, &s, NULL), -EBADMSG);
		assert_int_equal(zns_store_open(&m->dev, 0, &s, NULL), -EBADMSG);
		memdev_close(&m->dev);
	}
}

/* A tail cut at every block, and garbage or zeroes behind the log. */
static void torn_tails(void **state)
{
	for (uint64_t wp = 0; wp <= 8 * 4096; wp += 4096) {
		struct memdev *m = with_checkpoints(5);
		struct zns_store *s;
		int rc;

		m->z[0].wp = m->z[0].durable = wp;
		rc = zns_store_open(&m->dev, 0, &s, NULL);
		if (wp < 3 * 4096) {
			assert_int_equal(rc, -ENOMEDIUM);
		} else {
			assert_int_equal(rc, 0);
			assert_int_equal(zns_store_nr_checkpoints(s), wp / 4096 - 3);
			zns_store_close(s);
		}
		memdev_close(&m->dev);
	}
	for (int fill = 0; fill < 256; fill += 85) {
		struct memdev *m = with_checkpoints(5);
		struct zns_store *s;

		memset(m->z[0].data + m->z[0].wp, fill, CAP - m->z[0].wp);
		m->z[0].wp = CAP;
		OK(zns_store_open(&m->dev, 0, &s, NULL));
		assert_int_equal(zns_store_nr_checkpoints(s), 5);
		assert_int_equal(zns_store_generation(s), 2);
		zns_store_close(s);
		memdev_close(&m->dev);
	}
}

static void put(struct memdev *m, unsigned zone, uint16_t type, uint64_t gen, uint64_t seq,
		const ProtobufCMessage *msg)
{
	uint8_t *out = m->z[zone].data + m->z[zone].wp;
	struct zns_frame f = {
		.type = type, .generation = gen, .seq = seq, .payload = out + ZNS_FRAME_HDR
	};

	f.len = msg ? protobuf_c_message_pack(msg, out + ZNS_FRAME_HDR) : 0;
	zns_frame_pack(&f, 4096, out);
	m->z[zone].wp += zns_frame_size(f.len, 4096);
	m->z[zone].durable = m->z[zone].wp;
}

/* Records with a good hash that say impossible things. */
static void hostile_records(void **state)
{
	for (int what = 0; what < 22; what++) {
		struct memdev *m = with_checkpoints(2);
		ZnsPb__Reservation r = ZNS_PB__RESERVATION__INIT;
		ZnsPb__Tombstone t = ZNS_PB__TOMBSTONE__INIT;
		ZnsPb__Release rel = ZNS_PB__RELEASE__INIT;
		ZnsPb__SnapshotEnd end = ZNS_PB__SNAPSHOT_END__INIT;
		ZnsPb__Profile *p = make_profile(NZ, 4);
		uint32_t group = 4;
		uint64_t seq = 5, gen = 1;
		struct zns_err err = ZNS_ERR_INIT;
		struct zns_store *s;
		uint8_t id[ZNS_UUID_LEN];
		char text[ZNS_UUID_STR];
		struct ck k;
		int rc, expect = -EBADMSG;
		const ProtobufCMessage *msg = &ck_init(&k, 50, "a", 6, 0, 4096)->base;
		uint16_t type = ZNS_FRAME_CHECKPOINT;

		id_of(1, id);
		t.id.data = id;
		t.id.len = ZNS_UUID_LEN;
		t.by = (char *)"x";
		r.container = (char *)"r";
		rel.container = (char *)"r";
		switch (what) {
		case 0:
			expect = 0;
			break;
		case 1:
			seq = 6;
			break; /* one is missing */
		case 2:
			seq = 4;
			break; /* one twice */
		case 3:
			k.use[0].zone = 2;
			k.ref.zone = 2;
			break;
		case 4:
			k.use[0].zone = NZ;
			break;
		case 5:
			k.use[0].len = CAP + 1;
			break;
		case 6:
			k.use[0].start = UINT64_MAX;
			break;
		case 7:
			k.c.id.len = 8;
			break;
		case 8:
			id_of(1, k.id);
			break; /* known */
		case 9:
			k.group = NZ;
			break;
		case 10:
			k.ref.zone = 7;
			break;
		case 11:
			k.c.manifest = NULL;
			break;
		case 12:
			type = ZNS_FRAME_PROFILE;
			break; /* another message's bytes */
		case 13:
			type = 99;
			break;
		case 14:
			type = ZNS_FRAME_SUPERBLOCK;
			break;
		case 15:
			type = ZNS_FRAME_TOMBSTONE;
			id_of(77, id);
			msg = &t.base;
			break;
		case 16:
			type = ZNS_FRAME_TOMBSTONE;
			t.id.len = 4;
			msg = &t.base;
			break;
		case 17:
			type = ZNS_FRAME_RESERVATION;
			r.groups = &group;
			r.n_groups = 1;
			msg = &r.base;
			break;
		case 18:
			type = ZNS_FRAME_RELEASE;
			msg = &rel.base;
			break;
		case 19:
			type = ZNS_FRAME_SNAPSHOT_END;
			end.nr_records = 4;
			msg = &end.base;
			break;
		case 20:
			type = ZNS_FRAME_PROFILE;
			p->zone_group[1] = 7;
			msg = &p->base;
			break;
		case 21:
			gen = 8;
			expect = 0;
			break; /* another generation's: garbage */
		}
		put(m, 0, type, gen, seq, msg);
		rc = zns_store_open(&m->dev, ZNS_STORE_RDONLY, &s, &err);
		if (rc != expect)
			fail_msg("case %d: %d", what, rc);
		/* the message must name the record that does not fit */
		if ((what == 15 && !strstr(err.msg, zns_uuid_format(id, text))) ||
		    (what == 18 && !strstr(err.msg, "release, container r: ")))
			fail_msg("case %d: %s", what, err.msg);
		if (!rc) {
			assert_int_equal(zns_store_nr_checkpoints(s), what ? 2 : 3);
			zns_store_close(s);
		}
		profile_free(p);
		memdev_close(&m->dev);
	}
}

/* Every byte of the metadata flipped in turn: never a crash, never a catalogue that is neither old
 * nor new. */
static void every_byte(void **state)
{
	for (uint64_t byte = 0; byte < 8 * 4096; byte += byte % 4096 < 192 ? 1 : 97) {
		struct memdev *m = with_checkpoints(5);
		struct zns_store *s;
		int rc;

		m->z[0].data[byte] = ~m->z[0].data[byte];
		rc = zns_store_open(&m->dev, ZNS_STORE_RDONLY, &s, NULL);
		if (!rc) {
			size_t nr = zns_store_nr_checkpoints(s);

			assert_int_equal(nr, 5); /* padding */
			zns_store_close(s);
		} else {
			assert_int_equal(rc, -EBADMSG);
		}
		memdev_close(&m->dev);
	}
}

/* The newest generation must not be lost quietly: not with its superblock, not with its zone. */
static void lost_newest(void **state)
{
	struct memdev *m = with_checkpoints(2);
	struct zns_store *s;
	struct zns_err err = ZNS_ERR_INIT;
	struct ck k;
	unsigned n = 100;

	OK(zns_store_open(&m->dev, 0, &s, NULL));
	while (zns_store_generation(s) == 1) {
		OK(zns_store_commit(s, ck_init(&k, n++, "b", 6, 0, 4096), NULL));
		OK(zns_store_remove(s, k.id, "gc", NULL));
	}
	OK(zns_store_commit(s, ck_init(&k, n, "b", 6, 0, 4096), NULL));
	zns_store_close(s);
	m->z[1].data[50] ^= 1;
	assert_int_equal(zns_store_open(&m->dev, 0, &s, &err), -EBADMSG);
	assert_non_null(strstr(err.msg, "superblock"));
	m->z[1].data[50] ^= 1;
	OK(zns_store_open(&m->dev, 0, &s, NULL));
	zns_store_close(s);
	m->z[1].forced = ZNS_ZONE_OFFLINE;
	assert_int_equal(zns_store_open(&m->dev, 0, &s, &err), -EBADMSG);
	assert_non_null(strstr(err.msg, "offline"));
	m->z[1].forced = ZNS_ZONE_EMPTY;
	m->z[2].forced = ZNS_ZONE_OFFLINE; /* cannot have been the next */
	OK(zns_store_open(&m->dev, 0, &s, NULL));
	zns_store_close(s);
	memdev_close(&m->dev);
}

/* A roll that stopped after each of its records leaves the generation before. */
static void interrupted_roll_falls_back(void **state)
{
	for (unsigned nr = 1; nr <= 4; nr++) {
		struct memdev *m = with_checkpoints(2);
		ZnsPb__Superblock *sb;
		struct zns_frame f;
		struct zns_store *s;

		assert_int_equal(zns_frame_parse(m->z[0].data, 4096, &f, NULL), 0);
		sb = zns_pb__superblock__unpack(NULL, f.len, f.payload);
		sb->generation = 2;
		put(m, 1, ZNS_FRAME_SUPERBLOCK, 2, 0, &sb->base);
		zns_pb__superblock__free_unpacked(sb, NULL);
		if (nr > 1) {
			ZnsPb__Profile *p = make_profile(NZ, 4);

			put(m, 1, ZNS_FRAME_PROFILE, 2, 1, &p->base);
			profile_free(p);
		}
		for (unsigned i = 2; i < nr; i++) {
			struct ck k;

			put(m, 1, ZNS_FRAME_CHECKPOINT, 2, i,
			    &ck_init(&k, i, "a", 5, i * 4096, 4096)->base);
		}
		OK(zns_store_open(&m->dev, ZNS_STORE_RDONLY, &s, NULL));
		assert_int_equal(zns_store_generation(s), 1);
		assert_int_equal(zns_store_nr_checkpoints(s), 2);
		zns_store_close(s);
		OK(zns_store_open(&m->dev, 0, &s, NULL));
		assert_int_equal(zns_store_generation(s), 3);
		assert_int_equal(zns_store_nr_checkpoints(s), 2);
		zns_store_close(s);
		OK(zns_store_open(&m->dev, 0, &s, NULL));
		assert_int_equal(zns_store_generation(s), 3);
		zns_store_close(s);
		memdev_close(&m->dev);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(power_cuts_4k),
		cmocka_unit_test(power_cuts_torn_writes_4k),
		cmocka_unit_test(power_cuts_torn_writes_512),
		cmocka_unit_test(one_fault),
		cmocka_unit_test(several_faults),
		cmocka_unit_test(interrupted_format),
		cmocka_unit_test(damaged_middle),
		cmocka_unit_test(damaged_tail),
		cmocka_unit_test(torn_tails),
		cmocka_unit_test(hostile_records),
		cmocka_unit_test(every_byte),
		cmocka_unit_test(lost_newest),
		cmocka_unit_test(interrupted_roll_falls_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
