/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The log and encryption: the device's wish, wrapped keys being replaced, and their erasure, of
 * which nothing may be left in the device's file; with crashes at every operation.
 */
#include "memdev.h"
#include "emu_common.h"
#include "store_fixture.h"
#include "zns/crypt.h"
#include "zns/fsck.h"
#include "zns/sealed.h"

#define NZ 16
#define GROUPS 4

/* Makes a record with a wrapped key that is easy to find. */
struct ek {
	struct ck k;
	ZnsPb__CheckpointKey key;
	uint8_t key_id[ZNS_KEY_ID_BYTES], wrapped[ZNS_WRAPPED_BYTES];
};

static void wrapped_of(unsigned n, unsigned version, uint8_t out[ZNS_WRAPPED_BYTES])
{
	for (unsigned i = 0; i < ZNS_WRAPPED_BYTES; i++)
		out[i] = (uint8_t)(n * 31 + i * 7 + version * 101 + 3);
	out[0] = (uint8_t)n;
	out[1] = (uint8_t)version;
}

static void key_of(struct ek *e, unsigned n, unsigned version)
{
	zns_pb__checkpoint_key__init(&e->key);
	memset(e->key_id, (int)version + 1, sizeof(e->key_id));
	wrapped_of(n, version, e->wrapped);
	e->key.cipher = ZNS_CIPHER_AES_256_GCM;
	e->key.has_key_id = e->key.has_wrapped = 1;
	e->key.key_id = (ProtobufCBinaryData){ sizeof(e->key_id), e->key_id };
	e->key.wrapped = (ProtobufCBinaryData){ sizeof(e->wrapped), e->wrapped };
}

static int commit(struct zns_store *s, unsigned n, bool encrypted)
{
	struct ek e;

	ck_init(&e.k, n, "web", 4 + n % 10, n % 200 * 4096, 4096);
	key_of(&e, n, 0);
	e.k.c.crypt = encrypted ? &e.key : NULL;
	return zns_store_commit(s, &e.k.c, &err);
}

static int drop(struct zns_store *s, unsigned n)
{
	uint8_t id[ZNS_UUID_LEN];

	id_of(n, id);
	return zns_store_remove(s, id, "test", &err);
}

static const ZnsPb__Checkpoint *find(const struct zns_store *s, unsigned n)
{
	uint8_t id[ZNS_UUID_LEN];

	id_of(n, id);
	return zns_store_find(s, id);
}

static bool has_version(const struct zns_store *s, unsigned n, unsigned version)
{
	const ZnsPb__Checkpoint *c = find(s, n);
	uint8_t want[ZNS_WRAPPED_BYTES];

	wrapped_of(n, version, want);
	return c && c->crypt && c->crypt->has_wrapped &&
	       !memcmp(c->crypt->wrapped.data, want, sizeof(want));
}

static int rekey(struct zns_store *s, const unsigned *who, size_t nr, unsigned version, bool *done)
{
	struct ek e[8];
	ZnsPb__KeyLine line[8], *lines[8];
	ZnsPb__Rekey q = ZNS_PB__REKEY__INIT;
	uint8_t id[8][ZNS_UUID_LEN];

	for (size_t i = 0; i < nr; i++) {
		key_of(&e[i], who[i], version);
		id_of(who[i], id[i]);
		zns_pb__key_line__init(&line[i]);
		line[i].checkpoint = (ProtobufCBinaryData){ ZNS_UUID_LEN, id[i] };
		line[i].crypt = &e[i].key;
		lines[i] = &line[i];
	}
	q.lines = lines;
	q.n_lines = nr;
	q.has_key_id = 1;
	q.key_id = e[0].key.key_id;
	return zns_store_rekey(s, &q, done, &err);
}

/* --- on the emulator, whose file can be looked at --- */

static struct zns_dev *formatted(void)
{
	struct zns_emu_params p = small();
	ZnsPb__Profile *profile = make_profile(NZ, GROUPS);
	struct zns_dev *d;

	p.nr_zones = NZ;
	d = make_dev(&p);
	assert_ok(zns_store_format(d, NULL, profile, false, NULL, &err));
	profile_free(profile);
	return d;
}

static struct zns_store *open_store(struct zns_dev *d)
{
	struct zns_store *s = NULL;

	assert_ok(zns_store_open(d, 0, &s, &err));
	return s;
}

/* How often these bytes are in the device's file, in live data or not. */
static unsigned in_file(const uint8_t *what, size_t len)
{
	size_t size;
	uint8_t *all;
	unsigned n = 0;

	assert_int_equal(zns_read_file(AT_FDCWD, dev_path, MIB(64), &all, &size), 0);
	for (uint8_t *p = all, *end = all + size; (p = memmem(p, (size_t)(end - p), what, len));
	     p++)
		n++;
	free(all);
	return n;
}

static unsigned keys_in_file(unsigned n, unsigned version)
{
	uint8_t w[ZNS_WRAPPED_BYTES];

	wrapped_of(n, version, w);
	return in_file(w, sizeof(w));
}

static void erased_everywhere(void **state)
{
	struct zns_dev *d = formatted();
	struct zns_store *s = open_store(d);

	for (unsigned n = 1; n <= 4; n++)
		assert_ok(commit(s, n, n != 3));
	/* Enough commits for several generations, so that every metadata zone had these keys. */
	for (unsigned n = 10; n < 410; n++) {
		assert_ok(commit(s, n, false));
		assert_ok(drop(s, n));
	}
	assert_true(zns_store_generation(s) > 3);
	assert_true(keys_in_file(1, 0) >= 2);
	assert_true(keys_in_file(2, 0) >= 2);
	/* A plain removal leaves them, which is why there is an erasure. */
	assert_ok(drop(s, 1));
	assert_true(
		zns_store_find_tombstone(s, (const uint8_t *)"\1\0\0\0ZZZZZZZZZZZZ")->encrypted);
	assert_true(keys_in_file(1, 0) >= 2);
	assert_ok(zns_store_erase(s, &err));
	assert_int_equal(keys_in_file(1, 0), 0);
	assert_int_equal(keys_in_file(2, 0), 2); /* twice in the only snapshot: record and copy */
	assert_true(has_version(s, 2, 0) && has_version(s, 4, 0));
	assert_true(find(s, 3) && !find(s, 3)->crypt);
	/* The store works without them, and opens again. */
	assert_ok(commit(s, 5, true));
	zns_store_close(s);
	s = open_store(d);
	assert_true(has_version(s, 2, 0) && has_version(s, 4, 0) && has_version(s, 5, 0));
	assert_null(find(s, 1));
	assert_ok(drop(s, 3));
	assert_false(
		zns_store_find_tombstone(s, (const uint8_t *)"\3\0\0\0ZZZZZZZZZZZZ")->encrypted);
	/* Twice is fine. */
	assert_ok(zns_store_erase(s, &err));
	assert_ok(zns_store_erase(s, &err));
	zns_store_close(s);
	zns_dev_close(d);
}

/* A metadata zone that cannot be reset any more: everything else is erased, and the note says
 * so. */
static void stuck_zone(void **state)
{
	struct zns_dev *d = formatted();
	struct zns_store *s = open_store(d);
	uint32_t stuck;

	assert_ok(commit(s, 1, true));
	assert_ok(commit(s, 2, true));
	assert_ok(zns_store_erase(s, &err)); /* the log is in the second zone, with both */
	stuck = (uint32_t)(zns_store_generation(s) - 1) % 3;
	zns_store_close(s);
	assert_ok(zns_emu_set_zone_state(d, stuck, ZNS_ZONE_READ_ONLY, &err));
	s = open_store(d);
	assert_ok(drop(s, 1));
	assert_fails(zns_store_erase(s, &err), -EROFS, "can no longer be written");
	assert_true(has_version(s, 2, 0));
	assert_null(find(s, 1));
	zns_store_close(s);
	zns_dev_close(d);
}

static void rotated(void **state)
{
	static const unsigned all[] = { 1, 2, 4 };
	struct zns_dev *d = formatted();
	ZnsPb__Encryption want = ZNS_PB__ENCRYPTION__INIT;
	struct zns_store *s = open_store(d);
	uint8_t key_id[ZNS_KEY_ID_BYTES] = { 1, 1, 1, 1, 1, 1, 1, 1 };
	uint64_t generation;
	bool done;

	assert_null(zns_store_encryption(s));
	want.has_key_id = 1;
	want.key_id = (ProtobufCBinaryData){ sizeof(key_id), key_id };
	want.since_ns = 7;
	assert_ok(zns_store_set_encryption(s, &want, &err));
	want.key_id.len = 5;
	assert_fails(zns_store_set_encryption(s, &want, &err), -EINVAL, "5 bytes");
	for (unsigned n = 1; n <= 4; n++)
		assert_ok(commit(s, n, n != 3));
	generation = zns_store_generation(s);
	/* One is missing: nothing is changed. */
	assert_fails(rekey(s, all, 2, 1, &done), -ESTALE, "try again");
	assert_false(done);
	assert_int_equal(zns_store_generation(s), generation);
	assert_true(has_version(s, 1, 0) && has_version(s, 4, 0));
	assert_ok(rekey(s, all, 3, 1, &done));
	assert_true(done);
	zns_store_close(s);
	s = open_store(d);
	for (size_t i = 0; i < 3; i++) {
		assert_true(has_version(s, all[i], 1));
		/* no key that the old master key wraps is left */
		assert_int_equal(keys_in_file(all[i], 0), 0);
		assert_int_equal(keys_in_file(all[i], 1), 2);
	}
	assert_null(find(s, 3)->crypt);
	assert_int_equal(zns_store_encryption(s)->key_id.data[0], 2);
	/* The wish can be withdrawn, and both survive a roll-over. */
	want.has_key_id = 0;
	assert_ok(zns_store_set_encryption(s, &want, &err));
	assert_ok(zns_store_erase(s, &err));
	zns_store_close(s);
	s = open_store(d);
	assert_false(zns_store_encryption(s)->has_key_id);
	assert_true(has_version(s, 4, 1));
	zns_store_close(s);
	zns_dev_close(d);
}

/* --- crashes --- */

static struct memdev *crashing(void)
{
	static const unsigned n[] = { 1, 2, 3 };
	struct memdev *m = memdev_new(NZ, KIB(960), 4096);
	ZnsPb__Profile *p = make_profile(NZ, GROUPS);
	struct zns_store *s;

	OK(zns_store_format(&m->dev, NULL, p, false, NULL, NULL));
	profile_free(p);
	OK(zns_store_open(&m->dev, 0, &s, NULL));
	for (size_t i = 0; i < 3; i++)
		OK(commit(s, n[i], true));
	zns_store_close(s);
	OK(zns_dev_flush(&m->dev, NULL));
	m->ops = 0;
	return m;
}

/*
 * The device fails for good at operation @at, and then the power. Whatever was lost, the store
 * opens, checkpoint 2 has its key, and acknowledged changes are there. Returns false when the
 * device never failed.
 */
static bool crash_erase(uint64_t at, unsigned seed)
{
	struct memdev *m = crashing();
	struct zns_store *s;
	bool removed, erased = false, hit;

	OK(zns_store_open(&m->dev, 0, &s, NULL));
	m->ops = 0;
	m->fail_at = at;
	m->dead = true;
	removed = !drop(s, 1);
	if (removed)
		erased = !zns_store_erase(s, &err);
	hit = m->ops > at;
	zns_store_close(s);
	memdev_power_cut(m, seed);
	OK(zns_store_open(&m->dev, 0, &s, NULL));
	assert_true(has_version(s, 2, 0) && has_version(s, 3, 0));
	assert_true(!removed || !find(s, 1));
	assert_true(find(s, 1) == NULL || has_version(s, 1, 0));
	/* Repeats it, as a user would. */
	if (find(s, 1))
		OK(drop(s, 1));
	OK(zns_store_erase(s, NULL));
	zns_store_close(s);
	for (uint32_t z = 0; z < 3; z++) {
		uint8_t w[ZNS_WRAPPED_BYTES];

		wrapped_of(1, 0, w);
		assert_null(memmem(m->z[z].data, m->z[z].wp, w, sizeof(w)));
	}
	assert_true(hit || erased);
	m->dev.ops->close(&m->dev);
	return hit;
}

static bool crash_rekey(uint64_t at, unsigned seed)
{
	static const unsigned all[] = { 1, 2, 3 };
	struct memdev *m = crashing();
	struct zns_store *s;
	bool done, hit, old, ok;
	int rc;

	OK(zns_store_open(&m->dev, 0, &s, NULL));
	m->ops = 0;
	m->fail_at = at;
	m->dead = true;
	rc = rekey(s, all, 3, 1, &done);
	hit = m->ops > at;
	/* The state in memory agrees with the result. */
	assert_true(has_version(s, 1, done ? 1 : 0) && has_version(s, 3, done ? 1 : 0));
	zns_store_close(s);
	memdev_power_cut(m, seed);
	OK(zns_store_open(&m->dev, 0, &s, NULL));
	old = has_version(s, 1, 0);
	ok = true;
	for (size_t i = 0; i < 3; i++) /* all changed or none changed */
		ok &= has_version(s, all[i], old ? 0 : 1);
	assert_true(ok);
	assert_true(!done || !old);
	assert_true(hit || (!rc && done));
	zns_store_close(s);
	m->dev.ops->close(&m->dev);
	return hit;
}

static void crashes(void **state)
{
	uint64_t n = 0, at;

	for (at = 0; crash_erase(at, 0); at++)
		for (unsigned seed = 1; seed < 6; seed++, n++)
			crash_erase(at, seed);
	assert_true(at > 4);
	for (at = 0; crash_rekey(at, 0); at++)
		for (unsigned seed = 1; seed < 6; seed++, n++)
			crash_rekey(at, seed);
	assert_true(at > 2);
	print_message("%llu crashes\n", (unsigned long long)n);
}

/* --- what a record may say --- */

static void impossible_records(void **state)
{
	struct zns_dev *d = formatted();
	struct zns_store *s = open_store(d);
	ZnsPb__Manifest m = ZNS_PB__MANIFEST__INIT, *parsed;
	ZnsPb__ExtentRef ref;
	uint8_t *buf = NULL;
	struct ek e;
	size_t len;

	ck_init(&e.k, 1, "web", 4, 0, 4096);
	key_of(&e, 1, 0);
	e.k.c.crypt = &e.key;
	e.key.wrapped.len--;
	assert_fails(zns_store_commit(s, &e.k.c, &err), -EINVAL, "impossible length");
	e.key.wrapped.len++;
	e.key.key_id.len--;
	assert_fails(zns_store_commit(s, &e.k.c, &err), -EINVAL, "impossible length");
	e.key.key_id.len++;
	e.key.has_key_id = 0;
	assert_fails(zns_store_commit(s, &e.k.c, &err), -EINVAL, "impossible length");
	e.key.has_key_id = 1;
	/* A key in a manifest could not be erased. */
	m.device = (ProtobufCBinaryData){ ZNS_UUID_LEN, e.k.id };
	m.checkpoint = &e.k.c;
	assert_fails(zns_manifest_pack(&m, 4096, 4, 0, &buf, &len, &ref, &err), -EINVAL,
		     "has a wrapped key");
	/* A layer that claims to be of an encrypted checkpoint but is of a plain one. */
	e.k.c.crypt = NULL;
	assert_ok(zns_sealed_pack(&m, &buf, &len, &err));
	assert_fails(zns_sealed_parse(buf, len, &d->geo, false, &parsed, &err), -EBADMSG,
		     "not of an encrypted checkpoint");
	free(buf);
	zns_store_close(s);
	zns_dev_close(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(erased_everywhere, emu_begin, emu_end),
		cmocka_unit_test_setup_teardown(stuck_zone, emu_begin, emu_end),
		cmocka_unit_test_setup_teardown(rotated, emu_begin, emu_end),
		cmocka_unit_test_setup_teardown(crashes, emu_begin, emu_end),
		cmocka_unit_test_setup_teardown(impossible_records, emu_begin, emu_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
