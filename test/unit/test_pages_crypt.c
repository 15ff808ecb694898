/* SPDX-License-Identifier: GPL-2.0-only */
/* The page store where encryption is asked for: what goes to zones, and what does not. */
#include "pages_fixture.h"
#include <sys/mman.h>
#include "zns/crypt.h"

/* Lets one of the three that can demand encryption do so. */
static void demand(struct fx *f, int who, bool on)
{
	static const uint8_t id[ZNS_KEY_ID_BYTES] = { 1, 2, 3 };
	ZnsPb__Encryption e = ZNS_PB__ENCRYPTION__INIT;
	ZnsPb__Request q = ZNS_PB__REQUEST__INIT;
	struct zns_err err = ZNS_ERR_INIT;
	ZnsPb__Response *r;
	struct zns_broker b;

	if (who == 0) {
		assert_int_equal(zns_config_set("encrypt-key", on ? "file:/nowhere" : NULL, &err),
				 0);
	} else if (who == 1) {
		assert_int_equal(zns_register_flags(f->reg.uuid, on, -1, &err), 0);
	} else {
		assert_int_equal(zns_broker_connect(&f->reg, &b, &err), 0);
		e.has_key_id = on;
		e.key_id = (ProtobufCBinaryData){ sizeof(id), (uint8_t *)id };
		q.encryption = &e;
		if (zns_broker_call(&b, &q, &r, &err))
			fail_msg("%s", err.msg);
		zns_pb__response__free_unpacked(r, NULL);
		zns_broker_close(&b);
	}
}

static int put_and_drop(struct zns_pages *ps, struct batch *b, struct zns_err *e)
{
	int ret = zns_pages_put(ps, b->units, 1, b->refs, e);

	if (!ret)
		assert_int_equal(zns_pages_drop(ps, b->refs[0]), 0);
	return ret;
}

/* A context that began without encryption writes nothing more once anybody demands encryption, but it can
 * read what it has written. */
static void asked_later(void **state)
{
	struct fx *f = *state;
	struct zns_err err = ZNS_ERR_INIT;

	for (int who = 0; who < 3; who++) {
		struct zns_pages *ps = opened(f, "web", NULL);
		struct batch *a = batch(0, 5), *b = batch(5, 5);

		put(ps, a);
		demand(f, who, true);
		until(put_and_drop(ps, b, &err) == -EDQUOT);
		assert_non_null(strstr(err.msg, "znsctl memory detach"));
		check(ps, a);
		demand(f, who, false);
		until(!zns_pages_put(ps, b->units, b->n, b->refs, &err));
		check(ps, b);
		zns_pages_close(ps, true);
		batch_free(a);
		batch_free(b);
	}
}

/* Everything that the device's file holds. */
static bool on_device(struct fx *f, const uint8_t *what, size_t len)
{
	char path[160];
	struct stat st;
	uint8_t *at;
	bool found;
	int fd;

	snprintf(path, sizeof(path), "%s", f->reg.path + strlen("emu:"));
	fd = open(path, O_RDONLY);
	assert_true(fd >= 0 && !fstat(fd, &st));
	at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(at, MAP_FAILED);
	found = memmem(at, (size_t)st.st_size, what, len) != NULL;
	munmap(at, (size_t)st.st_size);
	close(fd);
	return found;
}

static void sync_device(struct fx *f)
{
	struct zns_err err = ZNS_ERR_INIT;

	assert_int_equal(zns_dev_flush(f->dev, &err), 0);
}

/* Whichever setting requires it: units can be read back, and no page is on the device in clear. */
static void asked_before(void **state)
{
	struct fx *f = *state;

	for (int who = 0; who < 5; who++) { /* 3: nobody, the control; 4: the context itself */
		struct zns_pages_params p = {
			.dev = f->reg.path, .container = "web", .width = 3, .encrypt = who == 4
		};
		struct zns_err err = ZNS_ERR_INIT;
		struct batch *a = batch(1000u * (uint32_t)(who + 1), 40);
		bool plain = false;
		struct zns_pages *ps;

		if (who < 3)
			demand(f, who, true);
		if (zns_pages_open(&p, &ps, &err))
			fail_msg("%s", err.msg);
		assert_int_equal(zns_pages_key_fd(ps) >= 0, who != 3);
		put(ps, a);
		check(ps, a);
		sync_device(f);
		for (uint32_t i = 0; i < a->n; i++)
			plain |= on_device(f, (const uint8_t *)a->units[i] + 4096 * (i % 16), 64);
		assert_int_equal(plain, who == 3);
		drop_all(ps, a);
		zns_pages_close(ps, true);
		if (who < 3)
			demand(f, who, false);
		assert_true(all_empty(f));
		batch_free(a);
	}
}

static struct zns_pages *encrypted(struct fx *f, const int *fds, const int *key)
{
	struct zns_pages_params p = { .dev = f->reg.path,
				      .container = "web",
				      .width = 3,
				      .encrypt = !fds,
				      .fds = fds,
				      .nr_fds = fds ? ZNS_PAGES_FDS : 0,
				      .key_fd = key };
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_pages *ps;

	if (zns_pages_open(&p, &ps, &err))
		fail_msg("%s", err.msg);
	return ps;
}

/* A nonce never comes twice: not in one pager, not in the next one. */
static void no_nonce_twice(struct batch *const b[], unsigned int nr)
{
	for (unsigned int x = 0; x < nr; x++)
		for (uint32_t i = 0; i < b[x]->n; i++)
			for (unsigned int y = 0; y <= x; y++)
				for (uint32_t k = 0; k < (y == x ? i : b[y]->n); k++)
					assert_memory_not_equal(b[x]->refs[i].nonce,
								b[y]->refs[k].nonce, 12);
}

static void taken_over(void **state)
{
	struct fx *f = *state;
	struct zns_pages *ps = encrypted(f, NULL, NULL);
	struct batch *b[3] = { batch(0, 40), batch(40, 40), batch(80, 40) };
	struct zns_pages_params p = { .dev = f->reg.path, .container = "web", .nr_fds = 1 };
	struct zns_err err = ZNS_ERR_INIT;
	int fd, key, other;

	put(ps, b[0]);
	put(ps, b[1]);
	zns_pages_fds(ps, &fd);
	fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	key = fcntl(zns_pages_key_fd(ps), F_DUPFD_CLOEXEC, 3);
	zns_pages_close(ps, false);
	/* an encrypted context cannot be opened without its key, nor with a file that is no key */
	p.fds = &fd;
	assert_int_equal(zns_pages_open(&p, &ps, &err), -ESTALE);
	other = memfd_create("none", MFD_CLOEXEC);
	p.key_fd = &other;
	assert_int_equal(zns_pages_open(&p, &ps, &err), -EPROTO);
	assert_int_equal(ftruncate(other, 4096), 0);
	assert_int_equal(zns_pages_open(&p, &ps, &err), -EPROTO);
	close(other);
	ps = encrypted(f, &fd, &key);
	for (int i = 0; i < 2; i++)
		for (uint32_t k = 0; k < b[i]->n; k++)
			assert_int_equal(zns_pages_hold(ps, b[i]->refs[k]), 0);
	zns_pages_recounted(ps);
	check(ps, b[0]);
	check(ps, b[1]);
	put(ps, b[2]);
	check(ps, b[2]);
	no_nonce_twice(b, 3);
	zns_pages_close(ps, true);
	close(fd);
	close(key);
	for (int i = 0; i < 3; i++)
		batch_free(b[i]);
}

/* @len bytes of the file where a unit stands. */
static void spoil(struct fx *f, struct zns_pages *ps, const struct zns_pages_ref *ref, uint64_t at,
		  const uint8_t *with, size_t len)
{
	uint64_t off, base, up;
	uint32_t zone;
	int fd = open(f->reg.path + strlen("emu:"), O_RDWR);

	assert_true(fd >= 0);
	assert_int_equal(zns_pages_where(ps, ref->place, &zone, &off), 0);
	assert_int_equal(pread(fd, &base, 8, 128), 8);
	assert_int_equal(pread(fd, &up, 8, 48), 8);
	assert_int_equal(pwrite(fd, with, len, (off_t)(base + zone * up + off + at)), (ssize_t)len);
	close(fd);
}

/* One changed bit, another unit of the same context, and an older version of the unit. */
static void changed_on_device(void **state)
{
	struct fx *f = *state;
	struct zns_pages *ps = encrypted(f, NULL, NULL);
	struct batch *a = batch(0, 8);
	uint8_t *raw = aligned_alloc(4096, U), *buf = aligned_alloc(4096, U), flipped;
	struct zns_pages_ref r;

	put(ps, a);
	check(ps, a);
	assert_int_equal(zns_pages_get_as_is(ps, a->refs[2], raw, NULL), 0);
	for (uint32_t at = 0; at < U; at += 7001) {
		flipped = raw[at] ^ 1;
		spoil(f, ps, &a->refs[2], at, &flipped, 1);
		assert_int_equal(zns_pages_get(ps, a->refs[2], buf, NULL), -EBADMSG);
		spoil(f, ps, &a->refs[2], at, raw + at, 1);
		assert_int_equal(zns_pages_get(ps, a->refs[2], buf, NULL), 0);
	}
	assert_int_equal(zns_pages_get_as_is(ps, a->refs[3], raw, NULL), 0);
	spoil(f, ps, &a->refs[2], 0, raw, U);
	assert_int_equal(zns_pages_get(ps, a->refs[2], buf, NULL), -EBADMSG);
	/* also with the hash of the unit that is there now: the encryption's tag does not fit */
	r = a->refs[2];
	r.hash = a->refs[3].hash;
	assert_int_equal(zns_pages_get_as_is(ps, r, buf, NULL), 0);
	assert_int_equal(zns_pages_get(ps, r, buf, NULL), -EBADMSG);
	/* all others are as they were */
	assert_int_equal(zns_pages_get(ps, a->refs[3], buf, NULL), 0);
	assert_int_equal(zns_pages_get_piece(ps, &a->refs[3], 0, buf, NULL), -EOPNOTSUPP);
	zns_pages_close(ps, true);
	batch_free(a);
	free(raw);
	free(buf);
}

/* Cleaning moves what is encrypted as it is. */
static void moved(void **state)
{
	struct fx *f = *state;
	struct zns_pages *ps = encrypted(f, NULL, NULL);
	struct batch *a = batch(0, 8);
	uint8_t *raw = aligned_alloc(4096, 8 * U);
	const void *units[8];
	struct zns_pages_ref to[8];
	struct zns_err err = ZNS_ERR_INIT;

	put(ps, a);
	for (uint32_t i = 0; i < a->n; i++) {
		units[i] = raw + (size_t)i * U;
		assert_int_equal(zns_pages_get_as_is(ps, a->refs[i], raw + (size_t)i * U, &err), 0);
	}
	assert_int_equal(zns_pages_put_as_is(ps, units, 8, to, &err), 0);
	for (uint32_t i = 0; i < a->n; i++) {
		assert_int_equal(zns_pages_drop(ps, a->refs[i]), 0);
		assert_int_not_equal(to[i].place, a->refs[i].place);
		a->refs[i].place = to[i].place;
	}
	check(ps, a);
	zns_pages_close(ps, true);
	batch_free(a);
	free(raw);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(asked_before, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(asked_later, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(taken_over, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(changed_on_device, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(moved, fx_setup, fx_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
