/* SPDX-License-Identifier: GPL-2.0-only */
/* First pages: the list (zns/first_pages.h), plain and sealed, and its record in the store. */
#include "store_fixture.h"
#include "memdev.h"
#include "../../zns/crypt/crypt_priv.h"
#include "zns/first_pages.h"

#define NZ 16
#define CAP (1u << 20)

/* ---- the list ---- */

static const struct zns_first_run some[] = {
	{ 1, 65536, 65536 },        { 1, 0, 4096 },
	{ 77, 1ull << 40, 8192 },   { 1, 131072, 4096 },
	{ UINT32_MAX, 4096, 4096 }, { 77, 8192, 65536 },
};

static struct zns_crypt *key_of(uint8_t first)
{
	static const uint8_t id[ZNS_UUID_LEN] = "checkpoint-aaaaa";
	uint8_t raw[ZNS_KEY_BYTES] = { first };
	struct zns_master *m;
	struct zns_crypt *c;

	OK(master_from_bytes(raw, &m, NULL));
	OK(zns_crypt_new(m, id, &c, NULL));
	zns_master_free(m);
	return c;
}

/* The record borrows the list. */
static ZnsPb__FirstPages record_of(uint8_t *list, size_t len, bool sealed)
{
	ZnsPb__FirstPages f = ZNS_PB__FIRST_PAGES__INIT;
	static uint8_t id[ZNS_UUID_LEN];

	f.checkpoint = (ProtobufCBinaryData){ ZNS_UUID_LEN, id };
	f.recorded_ns = 1;
	f.runs = (ProtobufCBinaryData){ len, list };
	f.has_sealed = f.sealed = sealed;
	return f;
}

static void same(const struct zns_first_run *a, const struct zns_first_run *b, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		assert_true(a[i].image == b[i].image && a[i].off == b[i].off &&
			    a[i].len == b[i].len);
}

static void taken_or_refused(const ZnsPb__FirstPages *f, const struct zns_crypt *c)
{
	struct zns_first_run *got = NULL;
	size_t nr = SIZE_MAX;

	if (zns_first_unpack(f, c, &got, &nr, NULL))
		return;
	assert_null(c);
	assert_true(nr < SIZE_MAX && (got || !nr));
	free(got);
}

static void round_trip(const struct zns_crypt *c)
{
	struct zns_first_run *got;
	size_t len, kept, nr;
	ZnsPb__FirstPages f;
	uint8_t *list;

	OK(zns_first_pack(some, ZNS_ARRAY_SIZE(some), c, &list, &len, &kept, NULL));
	assert_int_equal(kept, ZNS_ARRAY_SIZE(some));
	f = record_of(list, len, c != NULL);
	OK(zns_first_unpack(&f, c, &got, &nr, NULL));
	assert_int_equal(nr, kept);
	same(got, some, nr);
	free(got);
	/* No truncated and no changed list does harm; a changed sealed list is never accepted. */
	for (size_t i = 0; i < len; i++) {
		f = record_of(list, i, c != NULL);
		taken_or_refused(&f, c);
		f = record_of(list, len, c != NULL);
		list[i] ^= 0x41;
		taken_or_refused(&f, c);
		list[i] ^= 0x41;
	}
	f = record_of((uint8_t[]){ 0xff }, 1, false);
	assert_int_equal(zns_first_unpack(&f, NULL, &got, &nr, NULL), -EBADMSG);
	free(list);
}

static void lists(void **state)
{
	struct zns_crypt *c = key_of(1);

	round_trip(NULL);
	round_trip(c);
	zns_crypt_free(c);
}

static void keys(void **state)
{
	struct zns_crypt *a = key_of(1), *b = key_of(2);
	uint8_t *plain, *sealed, *again;
	struct zns_first_run *got;
	size_t len, sealed_len, nr;
	ZnsPb__FirstPages f;

	OK(zns_first_pack(some, 6, NULL, &plain, &len, &nr, NULL));
	OK(zns_first_pack(some, 6, a, &sealed, &sealed_len, &nr, NULL));
	OK(zns_first_pack(some, 6, a, &again, &sealed_len, &nr, NULL));
	assert_memory_not_equal(sealed, again, sealed_len); /* another nonce */
	assert_int_equal(sealed_len % 4096, 0);
	f = record_of(plain, len, false);
	assert_int_equal(zns_first_unpack(&f, a, &got, &nr, NULL), -EBADMSG);
	f = record_of(sealed, sealed_len, true);
	assert_int_equal(zns_first_unpack(&f, NULL, &got, &nr, NULL), -EBADMSG);
	assert_int_equal(zns_first_unpack(&f, b, &got, &nr, NULL), -EBADMSG);
	OK(zns_first_unpack(&f, a, &got, &nr, NULL));
	free(got);
	free(plain);
	free(sealed);
	free(again);
	zns_crypt_free(a);
	zns_crypt_free(b);
}

/* What does not fit are the last ones. */
static void limit(void **state)
{
	enum { MANY = 60000 };
	struct zns_first_run *run = calloc(MANY, sizeof(*run)), *got;
	struct zns_crypt *key[] = { NULL, key_of(3) };
	size_t len, kept, nr;
	uint8_t *list;

	for (size_t i = 0; i < MANY; i++)
		run[i] = (struct zns_first_run){ 1, i * 7919 % MANY << 16, 4096 };
	for (size_t k = 0; k < 2; k++) {
		ZnsPb__FirstPages f;

		OK(zns_first_pack(run, MANY, key[k], &list, &len, &kept, NULL));
		assert_true(len <= ZNS_FIRST_MAX && kept < MANY && kept > MANY / 8);
		f = record_of(list, len, k);
		OK(zns_first_unpack(&f, key[k], &got, &nr, NULL));
		assert_int_equal(nr, kept);
		same(got, run, nr);
		free(got);
		free(list);
	}
	run[3].len = 100;
	assert_int_equal(zns_first_pack(run, 5, NULL, &list, &len, &kept, NULL), -EINVAL);
	zns_crypt_free(key[1]);
	free(run);
}

/* ---- the record ---- */

static struct zns_store *opened(struct memdev *m)
{
	struct zns_store *s;

	OK(zns_store_open(&m->dev, 0, &s, NULL));
	return s;
}

static ZnsPb__FirstPages of(struct ck *k, uint8_t *runs, size_t len)
{
	ZnsPb__FirstPages f = record_of(runs, len, false);

	f.checkpoint = k->c.id;
	return f;
}

static void record(void **state)
{
	struct memdev *m = memdev_new(NZ, CAP, 4096);
	ZnsPb__Profile *p = make_profile(NZ, 4);
	static uint8_t runs[ZNS_FIRST_MAX + 1], uuid[ZNS_UUID_LEN] = { 1 };
	struct zns_err err = ZNS_ERR_INIT;
	struct ck a, b, many[8];
	struct zns_store *s;
	ZnsPb__FirstPages f;
	uint64_t gen;
	unsigned n;
	int ret = 0;

	OK(zns_store_format(&m->dev, uuid, p, true, uuid, NULL));
	profile_free(p);
	s = opened(m);
	OK(zns_store_commit(s, ck_init(&a, 1, "web", 4, 0, 8192), NULL));
	ck_init(&b, 2, "web", 5, 0, 8192);
	f = of(&b, runs, 10);
	assert_int_equal(zns_store_set_first(s, &f, &err), -EINVAL); /* not there */
	f = of(&a, runs, sizeof(runs));
	assert_int_equal(zns_store_set_first(s, &f, &err), -EINVAL); /* too long */
	assert_null(zns_store_find_first(s, a.id));
	f = of(&a, runs, 10);
	OK(zns_store_set_first(s, &f, NULL));
	f = of(&a, runs, 20); /* replaces it */
	OK(zns_store_set_first(s, &f, NULL));

	/* The list survives moves, roll-overs and a new broker. */
	gen = zns_store_generation(s);
	for (n = 0; n < 600; n++) {
		a.c.has_moved = 1;
		a.c.moved++;
		OK(zns_store_move(s, &a.c, NULL));
	}
	assert_true(zns_store_generation(s) > gen);
	zns_store_close(s);
	s = opened(m);
	assert_int_equal(zns_store_find_first(s, a.id)->runs.len, 20);

	/* An empty one ends it, and so does the checkpoint's end. */
	f = of(&a, runs, 0);
	OK(zns_store_set_first(s, &f, NULL));
	assert_null(zns_store_find_first(s, a.id));
	f = of(&a, runs, 30);
	OK(zns_store_set_first(s, &f, NULL));
	OK(zns_store_remove(s, a.id, "test", NULL));
	assert_null(zns_store_find_first(s, a.id));
	zns_store_close(s);
	s = opened(m);
	assert_null(zns_store_record(s, ZNS_FRAME_FIRST, 0));

	/* Checkpoints have room left whatever is recorded. */
	for (n = 0; n < 8 && !ret; n++) {
		OK(zns_store_commit(s, ck_init(&many[n], 10 + n, "web", 6, n * 8192, 8192), NULL));
		f = of(&many[n], runs, ZNS_FIRST_MAX);
		ret = zns_store_set_first(s, &f, &err);
	}
	assert_int_equal(ret, -ENOSPC);
	OK(zns_store_commit(s, ck_init(&b, 30, "web", 7, 0, 8192), NULL));
	zns_store_close(s);
	memdev_close(&m->dev);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lists),
		cmocka_unit_test(keys),
		cmocka_unit_test(limit),
		cmocka_unit_test(record),
	};

	return cmocka_run_group_tests_name("first pages", tests, NULL, NULL);
}
