/* SPDX-License-Identifier: GPL-2.0-only */
/* One machine at a time: the mount record, and what happens if two machines write one store
 * nevertheless. */
#include "store_fixture.h"
#include "memdev.h"

#define NZ 8

static struct memdev *formatted(void)
{
	struct memdev *m = memdev_new(NZ, KIB(64), 4096);
	ZnsPb__Profile *p = make_profile(NZ, 4);

	OK(zns_store_format(&m->dev, NULL, p, false, NULL, NULL));
	profile_free(p);
	return m;
}

static struct zns_store *opened(struct memdev *m)
{
	struct zns_store *s;

	OK(zns_store_open(&m->dev, 0, &s, NULL));
	return s;
}

static ZnsPb__Mount machine(const char *name, const char *boot)
{
	ZnsPb__Mount m = ZNS_PB__MOUNT__INIT;

	m.machine = (char *)name;
	m.boot = (char *)boot;
	m.host = (char *)"host";
	m.since_ns = 5;
	return m;
}

/* A claim is written with the first change, survives roll-overs, and is given back. */
static void claim(void **state)
{
	struct memdev *m = formatted();
	struct zns_store *s = opened(m);
	ZnsPb__Mount one = machine("one", "a"), again = machine("one", "b");
	uint64_t wp = m->z[0].wp;
	struct ck k;

	assert_null(zns_store_mount(s));
	OK(zns_store_claim(s, &one, NULL));
	assert_null(zns_store_mount(s));
	assert_int_equal(m->z[0].wp, wp);
	OK(zns_store_unclaim(s, NULL)); /* nothing was changed: nothing to give back */
	assert_int_equal(m->z[0].wp, wp);
	OK(zns_store_claim(s, &one, NULL));
	OK(zns_store_commit(s, ck_init(&k, 1, "web", 5, 0, 4096), NULL));
	assert_string_equal(zns_store_mount(s)->machine, "one");
	assert_false(zns_store_mount(s)->released);
	for (unsigned n = 2; zns_store_generation(s) < 4; n++) {
		OK(zns_store_commit(s, ck_init(&k, n, "web", 5, 0, 4096), NULL));
		OK(zns_store_remove(s, k.id, "test", NULL));
	}
	zns_store_close(s);
	s = opened(m);
	assert_string_equal(zns_store_mount(s)->machine, "one");
	/* The same machine and boot writes no new record; after a reboot it does. */
	wp = m->z[0].wp + m->z[1].wp + m->z[2].wp;
	OK(zns_store_claim(s, &one, NULL));
	OK(zns_store_claim_now(s, NULL));
	assert_int_equal(m->z[0].wp + m->z[1].wp + m->z[2].wp, wp);
	OK(zns_store_claim(s, &again, NULL));
	OK(zns_store_claim_now(s, NULL));
	assert_string_equal(zns_store_mount(s)->boot, "b");
	OK(zns_store_unclaim(s, NULL));
	assert_true(zns_store_mount(s)->released);
	zns_store_close(s);
	s = opened(m);
	assert_true(zns_store_mount(s)->released);
	assert_int_equal(zns_store_nr_checkpoints(s), 1);
	zns_store_close(s);
	memdev_close(&m->dev);
}

/* Two writers at once, in every state of the log when the second comes: the one that is behind
 * never writes again. */
static void two_writers(void **state)
{
	for (unsigned ahead = 1; ahead < 60; ahead++) {
		struct memdev *m = formatted();
		struct zns_store *a = opened(m), *b = opened(m), *c;
		struct zns_err err = ZNS_ERR_INIT;
		struct ck k;
		char *before, *after;

		OK(zns_store_commit(a, ck_init(&k, 1, "mine", 4, 0, 4096), NULL));
		for (unsigned n = 0; n < ahead; n++) {
			if (n % 2)
				OK(zns_store_remove(a, k.id, "test", NULL));
			else
				OK(zns_store_commit(a, ck_init(&k, 100 + n, "mine", 5, 0, 4096),
						    NULL));
		}
		before = store_text(a, NZ, false);
		/* b knows nothing of all this. */
		assert_int_equal(zns_store_commit(b, ck_init(&k, 7, "other", 6, 0, 4096), &err),
				 -ESTALE);
		assert_true(zns_store_foreign(b));
		assert_int_equal(zns_store_nr_checkpoints(b), 0);
		assert_int_equal(zns_store_commit(b, ck_init(&k, 8, "other", 6, 0, 4096), NULL),
				 -ESTALE);
		OK(zns_store_open(&m->dev, ZNS_STORE_RDONLY, &c, NULL));
		after = store_text(c, NZ, false);
		assert_string_equal(before, after);
		/* And a goes on. */
		OK(zns_store_commit(a, ck_init(&k, 9, "mine", 6, 0, 4096), NULL));
		free(before);
		free(after);
		zns_store_close(a);
		zns_store_close(b);
		zns_store_close(c);
		memdev_close(&m->dev);
	}
}

static void bad_records(void **state)
{
	struct memdev *m = formatted();
	struct zns_store *s = opened(m);
	ZnsPb__Mount bad = machine("", "a");

	assert_int_equal(zns_store_claim(s, &bad, NULL), -EINVAL);
	bad = machine("one", "");
	assert_int_equal(zns_store_claim(s, &bad, NULL), -EINVAL);
	zns_store_close(s);
	memdev_close(&m->dev);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(claim),
		cmocka_unit_test(two_writers),
		cmocka_unit_test(bad_records),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
