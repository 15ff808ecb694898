/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Encrypted checkpoints through writer and reader: nothing of the images stands on the device, what
 * was changed or moved there is never delivered, and no nonce comes twice (calls of
 * zns_crypt_seal_unit are counted: WRAP in the Makefile).
 */
#include "stripe_fixture.h"
#include "zns/crypt.h"
#include "zns/crypt_memory.h"

#define NR 10
#define UNIT KIB(64)
#define MARK "plain-text-of-a-task"

static struct image im[NR];
static struct rig rig;
static struct zns_master *master, *other;

/* --- every seal is seen --- */

int __real_zns_crypt_seal_unit(const struct zns_crypt *c, uint32_t image, const char *name,
			       uint64_t unit, uint8_t *buf, size_t len, uint8_t tag[ZNS_TAG_BYTES],
			       struct zns_err *e);
int __wrap_zns_crypt_seal_unit(const struct zns_crypt *c, uint32_t image, const char *name,
			       uint64_t unit, uint8_t *buf, size_t len, uint8_t tag[ZNS_TAG_BYTES],
			       struct zns_err *e);

static pthread_mutex_t seen_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t seen[100000];
static size_t nr_seen, twice;

int __wrap_zns_crypt_seal_unit(const struct zns_crypt *c, uint32_t image, const char *name,
			       uint64_t unit, uint8_t *buf, size_t len, uint8_t tag[ZNS_TAG_BYTES],
			       struct zns_err *e)
{
	uint64_t nonce = (uint64_t)image << 40 | unit;

	pthread_mutex_lock(&seen_lock);
	for (size_t i = 0; i < nr_seen; i++)
		twice += seen[i] == nonce;
	if (nr_seen < ZNS_ARRAY_SIZE(seen))
		seen[nr_seen++] = nonce;
	pthread_mutex_unlock(&seen_lock);
	return __real_zns_crypt_seal_unit(c, image, name, unit, buf, len, tag, e);
}

/* --- fixture --- */

static struct zns_master *new_master(const char *name)
{
	struct zns_master *m = NULL;
	char path[160], spec[176];

	snprintf(path, sizeof(path), "%s/%s", test_dir, name);
	snprintf(spec, sizeof(spec), "file:%s", path);
	assert_ok(zns_master_create(path, &err));
	assert_ok(zns_master_load(spec, &m, &err));
	return m;
}

static int begin(void **state)
{
	if (emu_begin(state))
		return -1;
	master = new_master("key");
	other = new_master("other");
	return 0;
}

static int end(void **state)
{
	zns_master_free(master);
	zns_master_free(other);
	return emu_end(state);
}

static struct zns_crypt *new_key(struct rig *r)
{
	struct zns_crypt *c;

	assert_int_equal(zns_uuid_generate(r->id), 0);
	assert_ok(zns_crypt_new(master, r->id, &c, &err));
	r->has_id = true;
	r->crypt = c;
	return c;
}

static const uint64_t lengths[NR] = { 0,    1,        100,          UNIT / 2,         UNIT / 2 + 1,
				      UNIT, UNIT + 1, UNIT * 3 - 5, UNIT * 20 + 4096, 33 };

static void start(uint32_t width, uint32_t workers)
{
	struct zns_emu_params p = roomy(64, KIB(960));

	nr_seen = twice = 0;
	unlink(dev_path);
	rig_init(&rig, make_dev(&p), UNIT, width);
	rig.workers = workers;
	new_key(&rig);
	rig_start(&rig);
}

static void feed_all(void)
{
	for (size_t i = 0; i < NR; i++) {
		image_set(&im[i], lengths[i], i % 2 ? "pages-%u.img" : "core-%u.img", i);
		im[i].pages = i % 2;
		assert_ok(feed(rig.w, &im[i], 100000, &err));
	}
}

static void make_checkpoint(uint32_t width, uint32_t workers)
{
	start(width, workers);
	feed_all();
	rig_verify(&rig, im, NR);
}

static void drop_checkpoint(void)
{
	struct zns_dev *d = rig.d;

	rig_drop(&rig);
	zns_dev_close(d);
}

static off_t pos_of(uint32_t image, uint64_t unit)
{
	const ZnsPb__Image *pb = rig.m->images[image];
	struct emu *e = (struct emu *)rig.d;
	struct zns_place at;
	struct zns_seg seg;

	for (size_t n = 0; n < pb->n_segments; n++) {
		const ZnsPb__Segment *s = pb->segments[n];

		if (unit * UNIT < s->off || unit * UNIT - s->off >= s->len)
			continue;
		assert_ok(zns_seg_init(&seg, s, pb->unit, &err));
		zns_seg_place(&seg, (unit * UNIT - s->off) / UNIT, &at);
		zns_seg_fini(&seg);
		return (off_t)(e->lay.data_off + e->lay.stride * at.zone + at.off);
	}
	fail_msg("no unit %llu of image %u", (unsigned long long)unit, image);
	return -1;
}

static void peek(off_t pos, void *buf, size_t len)
{
	assert_int_equal(pread(((struct emu *)rig.d)->fd, buf, len, pos), (ssize_t)len);
}

static void poke(off_t pos, const void *buf, size_t len)
{
	assert_int_equal(pwrite(((struct emu *)rig.d)->fd, buf, len, pos), (ssize_t)len);
	assert_int_equal(fsync(((struct emu *)rig.d)->fd), 0);
}

static uint64_t units_of(uint64_t len)
{
	return (len + UNIT - 1) / UNIT;
}

/* --- tests --- */

static void there_and_back(void **state)
{
	static const uint32_t shape[][2] = { { 1, 1 }, { 4, 0 }, { 8, 3 } };

	for (size_t s = 0; s < ZNS_ARRAY_SIZE(shape); s++) {
		uint64_t units = 0;

		make_checkpoint(shape[s][0], shape[s][1]);
		for (size_t i = 0; i < NR; i++) {
			units += units_of(im[i].len);
			assert_int_equal(rig.m->images[i]->n_csums, units_of(im[i].len));
			assert_int_equal(rig.m->images[i]->tags.len,
					 ZNS_TAG_BYTES * units_of(im[i].len));
		}
		/* Each unit was sealed once, under a nonce of its own. */
		assert_int_equal(nr_seen, units);
		assert_int_equal(twice, 0);
		assert_true(rig.c->crypt && rig.c->crypt->has_wrapped);
		drop_checkpoint();
	}
}

/* The device's file contains neither plain data nor the key, wrapped or not: the wrapped key
 * belongs in the log only. */
static void nothing_in_clear(void **state)
{
	struct zns_wimage *i;
	char *text;
	uint8_t *all;
	size_t len;

	start(4, 0);
	text = malloc(UNIT * 2);
	for (size_t n = 0; n < UNIT * 2; n += 32)
		snprintf(text + n, 32, "%-31s", MARK);
	for (int n = 0; n < 6; n++) { /* packed, whole units, a short one */
		char name[32];

		snprintf(name, sizeof(name), "pages-%d.img", n);
		assert_ok(zns_writer_image(rig.w, name, n % 2, &i, &err));
		assert_ok(zns_wimage_data(i, text, (size_t)(n < 3 ? 100 + n : (int)UNIT + 100 * n),
					  &err));
		assert_ok(zns_wimage_seal(i, &err));
	}
	rig_finish(&rig);
	assert_int_equal(zns_read_file(AT_FDCWD, dev_path, MIB(256), &all, &len), 0);
	assert_null(memmem(all, len, MARK, strlen(MARK)));
	assert_null(memmem(all, len, rig.c->crypt->wrapped.data, ZNS_WRAPPED_BYTES));
	assert_null(memmem(all, len, rig.c->crypt->wrapped.data + 12, 32));
	assert_non_null(memmem(all, len, "pages-1.img", 11)); /* names of images are no secret */
	free(all);
	free(text);
	drop_checkpoint();
}

/* Checksums of equal plain units say nothing: they are of what is encrypted. */
static void equal_units_differ(void **state)
{
	struct zns_wimage *i;
	uint8_t *zero = calloc(1, UNIT * 4);

	start(2, 0);
	assert_ok(zns_writer_image(rig.w, "pages-1.img", true, &i, &err));
	assert_ok(zns_wimage_data(i, zero, UNIT * 4, &err));
	assert_ok(zns_wimage_seal(i, &err));
	rig_finish(&rig);
	for (int a = 0; a < 4; a++)
		for (int b = 0; b < a; b++)
			assert_int_not_equal(rig.m->images[0]->csums[a],
					     rig.m->images[0]->csums[b]);
	free(zero);
	drop_checkpoint();
}

static void damaged_and_moved(void **state)
{
	cleanup_free uint8_t *a = malloc(UNIT), *b = malloc(UNIT), *got = malloc(UNIT * 21);
	struct zns_reader *rd;
	struct zns_rimage *i;
	off_t pa, pb;

	make_checkpoint(4, 0);
	/* One bit anywhere: damage, by the checksum. */
	for (uint32_t n = 1; n < NR; n++) {
		uint64_t unit = rnd(units_of(im[n].len)),
			 len = zns_min((uint64_t)UNIT, im[n].len - unit * UNIT);
		off_t pos = pos_of(n, unit) + (off_t)rnd(len);
		uint8_t x, y;

		peek(pos, &x, 1);
		y = x ^ (uint8_t)(1 << rnd(8));
		poke(pos, &y, 1);
		rd = rig_reader(&rig, 2, 0);
		i = zns_reader_find(rd, im[n].name);
		memset(got, 0xaa, im[n].len);
		assert_fails(zns_rimage_read(i, unit * UNIT, got, len, &err), -EBADMSG,
			     "is damaged: checksum");
		for (uint64_t k = 0; k < len; k++)
			assert_int_equal(got[k], 0xaa);
		zns_reader_free(rd);
		poke(pos, &x, 1);
	}
	/* A forger without a key swaps two units of one image, with their checksums and tags. */
	pa = pos_of(8, 2);
	pb = pos_of(8, 5);
	peek(pa, a, UNIT);
	peek(pb, b, UNIT);
	poke(pa, b, UNIT);
	poke(pb, a, UNIT);
	rig.m->images[8]->csums[2] = zns_hash(b, UNIT);
	rig.m->images[8]->csums[5] = zns_hash(a, UNIT);
	for (int with_tags = 0; with_tags < 2; with_tags++) {
		uint8_t *tags = rig.m->images[8]->tags.data, t[ZNS_TAG_BYTES];

		rd = rig_reader(&rig, 2, 0);
		i = zns_reader_find(rd, im[8].name);
		assert_fails(zns_rimage_read(i, 2 * UNIT, got, UNIT, &err), -EBADMSG,
			     "not authentic");
		assert_fails(zns_rimage_read(i, 5 * UNIT, got, UNIT, &err), -EBADMSG,
			     "intact, but not what was encrypted");
		assert_ok(zns_rimage_read(i, 0, got, 2 * UNIT, &err));
		zns_reader_free(rd);
		memcpy(t, tags + 2 * ZNS_TAG_BYTES, ZNS_TAG_BYTES);
		memcpy(tags + 2 * ZNS_TAG_BYTES, tags + 5 * ZNS_TAG_BYTES, ZNS_TAG_BYTES);
		memcpy(tags + 5 * ZNS_TAG_BYTES, t, ZNS_TAG_BYTES);
	}
	drop_checkpoint();
}

/* The manifest as a whole: what its seal is about, and what it is not. */
static void sealed_manifest(void **state)
{
	uint8_t tag[ZNS_TAG_BYTES];
	ZnsPb__Image *x;
	struct zns_crypt *c;

	make_checkpoint(4, 0);
	assert_ok(zns_crypt_open(master, rig.id, rig.m->checkpoint->crypt, &c, &err));
	assert_true(rig.m->has_seal);
#define SEAL_SAYS(equal)                                                                     \
	do {                                                                                 \
		assert_ok(zns_crypt_seal_manifest(c, rig.m, tag, &err));                     \
		assert_true((memcmp(tag, rig.m->seal.data, ZNS_TAG_BYTES) == 0) == (equal)); \
	} while (0)
	SEAL_SAYS(true);
	rig.m->images[8]->size--;
	SEAL_SAYS(false);
	rig.m->images[8]->size++;
	rig.m->images[8]->tags.data[17] ^= 1;
	SEAL_SAYS(false);
	rig.m->images[8]->tags.data[17] ^= 1;
	rig.m->images[8]->tags.len -= ZNS_TAG_BYTES;
	SEAL_SAYS(false);
	rig.m->images[8]->tags.len += ZNS_TAG_BYTES;
	rig.m->images[3]->name[0] ^= 1;
	SEAL_SAYS(false);
	rig.m->images[3]->name[0] ^= 1;
	rig.m->n_images--;
	SEAL_SAYS(false);
	rig.m->n_images++;
	x = rig.m->images[1];
	rig.m->images[1] = rig.m->images[2];
	rig.m->images[2] = x;
	SEAL_SAYS(false);
	rig.m->images[2] = rig.m->images[1];
	rig.m->images[1] = x;
	rig.m->checkpoint->has_parent = 1;
	rig.m->checkpoint->parent = (ProtobufCBinaryData){ ZNS_UUID_LEN, rig.id };
	SEAL_SAYS(false);
	rig.m->checkpoint->has_parent = 0;
	rig.m->checkpoint->parent = (ProtobufCBinaryData){ 0, NULL };
	rig.m->images[3]->has_beside = rig.m->images[3]->beside = 1;
	SEAL_SAYS(false);
	rig.m->images[3]->has_beside = 0;
	SEAL_SAYS(true);
	/* Units may be moved without a key. */
	rig.m->images[8]->segments[0]->extents[0]->zone++;
	SEAL_SAYS(true);
	rig.m->images[8]->segments[0]->extents[0]->zone--;
	zns_crypt_free(c);
	drop_checkpoint();
}

struct counted {
	atomic_int good, bad;
};

static void unit_seen(void *arg, const struct zns_unit_check *u)
{
	struct counted *k = arg;

	atomic_fetch_add(u->err->code ? &k->bad : &k->good, 1);
}

static atomic_int running;

static void image_seen(void *arg, const struct zns_err *e)
{
	atomic_fetch_sub(&running, 1);
}

static void verify_all(struct zns_reader *rd, struct counted *k)
{
	*k = (struct counted){ 0, 0 };
	atomic_store(&running, NR);
	for (uint32_t n = 0; n < NR; n++)
		zns_rimage_verify(zns_reader_image(rd, n), unit_seen, image_seen, k);
	until(!atomic_load(&running));
}

/* Without the key: checksums can be verified, damage is found, and not a byte is delivered. */
static void without_the_key(void **state)
{
	struct zns_crypt *key;
	cleanup_free uint8_t *got = malloc(UNIT * 21);
	struct zns_reader *rd;
	struct counted k;
	uint64_t units = 0;
	uint8_t x;
	off_t pos;

	make_checkpoint(4, 0);
	key = rig.crypt;
	rig.crypt = NULL;
	for (size_t i = 0; i < NR; i++)
		units += units_of(im[i].len);
	rd = rig_reader(&rig, 2, 0);
	verify_all(rd, &k);
	assert_int_equal(k.good, units);
	assert_int_equal(k.bad, 0);
	memset(got, 0xaa, UNIT * 21);
	for (size_t i = 1; i < NR; i++)
		assert_fails(zns_rimage_read(zns_reader_find(rd, im[i].name), 0, got, im[i].len,
					     &err),
			     -ENOKEY, "no key");
	for (size_t n = 0; n < UNIT * 21; n++)
		assert_int_equal(got[n], 0xaa);
	zns_reader_free(rd);
	pos = pos_of(8, 3);
	peek(pos, &x, 1);
	x ^= 1;
	poke(pos, &x, 1);
	rd = rig_reader(&rig, 2, 0);
	verify_all(rd, &k);
	assert_int_equal(k.bad, 1);
	zns_reader_free(rd);
	/* With the key the result is the same. */
	rig.crypt = key;
	rd = rig_reader(&rig, 2, 0);
	verify_all(rd, &k);
	assert_int_equal(k.good, units - 1);
	assert_int_equal(k.bad, 1);
	zns_reader_free(rd);
	drop_checkpoint();
}

/* A manifest cannot lose its tags, or get some. */
static void manifests_checked(void **state)
{
	ZnsPb__CheckpointKey *k;

	make_checkpoint(2, 0);
	rig.m->images[8]->has_tags = 0;
	assert_fails(zns_manifest_check(rig.m, &rig.d->geo, &err), -EBADMSG, "without tags");
	rig.m->images[8]->has_tags = 1;
	rig.m->images[8]->tags.len--;
	assert_fails(zns_manifest_check(rig.m, &rig.d->geo, &err), -EBADMSG, "bytes of tags");
	rig.m->images[8]->tags.len++;
	k = rig.m->checkpoint->crypt;
	rig.m->checkpoint->crypt = NULL;
	assert_fails(zns_manifest_check(rig.m, &rig.d->geo, &err), -EBADMSG, "seal");
	rig.m->has_seal = 0;
	assert_fails(zns_manifest_check(rig.m, &rig.d->geo, &err), -EBADMSG, "not encrypted");
	rig.m->has_seal = 1;
	rig.m->checkpoint->crypt = k;
	assert_ok(zns_manifest_check(rig.m, &rig.d->geo, &err));
	/* A record without the key: the manifest is read, and nothing but it. */
	k = rig.c->crypt;
	rig.c->crypt = NULL;
	zns_pb__manifest__free_unpacked(rig.m, NULL);
	assert_ok(zns_manifest_read(rig.d, rig.c, &rig.m, &err));
	assert_false(rig.m->checkpoint->crypt->has_wrapped);
	assert_fails(zns_manifest_agrees(rig.m, rig.c, &err), -EBADMSG, "another checkpoint");
	rig.c->crypt = k;
	assert_ok(zns_manifest_agrees(rig.m, rig.c, &err));
	drop_checkpoint();
}

static bool seal_is_right(void)
{
	uint8_t tag[ZNS_TAG_BYTES];

	assert_ok(zns_crypt_seal_manifest(rig.crypt, rig.m, tag, &err));
	return !memcmp(tag, rig.m->seal.data, ZNS_TAG_BYTES);
}

/* Units of a memory context, encrypted with its own key, are read with the checkpoint's key. If any
 * field of their entry is changed, they are not. */
static void named_memory(void **state)
{
	static const uint8_t context[ZNS_UUID_LEN] = "context-aaaaaaaa";
	enum { N = 3, LEN = 65536, ZONE = 60 };
	uint8_t *want = aligned_alloc(4096, N * LEN), *buf = aligned_alloc(4096, N * LEN), x;
	struct zns_named u[N] = { { 0 } };
	struct zns_memory_key *key;
	struct zns_wimage *i;
	struct zns_rimage *img;
	struct zns_reader_params p = { .workers = 1 };
	struct zns_reader *rd;
	ZnsPb__Image *pb = NULL;
	uint64_t bytes = 0;
	uint32_t nr = 0;
	off_t at;

	start(2, 0);
	p.dev = rig.d;
	p.crypt = rig.crypt;
	assert_ok(zns_memory_key_new(context, &key, &err));
	for (size_t n = 0; n < N * LEN; n++)
		want[n] = (uint8_t)(n * 31 >> 3);
	memcpy(buf, want, N * LEN);
	for (uint32_t n = 0; n < N; n++) {
		assert_ok(zns_memory_seal(key, u[n].nonce, buf + n * LEN, LEN, u[n].tag, &err));
		u[n].zone = ZONE;
		u[n].off = n * LEN;
		u[n].hash = zns_hash(buf + n * LEN, LEN);
	}
	assert_ok(zns_dev_write(rig.d, ZONE, 0, buf, N * LEN, &err));
	assert_fails(zns_writer_named(rig.w, "memory.img", context, NULL, u, N, &i, &err),
		     -EOPNOTSUPP, "not encrypted");
	assert_ok(zns_writer_named(rig.w, "memory.img", context, key, u, N, &i, &err));
	feed_all();
	rig.given[ZONE] = true; /* by its context */
	rig_finish(&rig);
	for (size_t n = 0; n < rig.m->n_images; n++)
		if (!strcmp(rig.m->images[n]->name, "memory.img"))
			pb = rig.m->images[nr = (uint32_t)n];
	assert_non_null(pb);
	assert_int_equal(pb->nonces.len, N * ZNS_MEMORY_NONCE);
	for (size_t n = 0; n < rig.m->n_images; n++)
		bytes += rig.m->images[n]->size;
	assert_true(rig.c->memory_bytes == N * LEN && rig.c->bytes == bytes);
	rd = rig_reader(&rig, 2, 0);
	img = zns_reader_image(rd, nr);
	assert_ok(zns_rimage_read(img, 0, buf, N * LEN, &err));
	assert_memory_equal(buf, want, N * LEN);
	zns_reader_free(rd);
	at = (off_t)(((struct emu *)rig.d)->lay.data_off +
		     ((struct emu *)rig.d)->lay.stride * ZONE);
	peek(at + LEN + 77, &x, 1);
	x ^= 4;
	poke(at + LEN + 77, &x, 1);
	rd = rig_reader(&rig, 2, 0);
	img = zns_reader_image(rd, nr);
	assert_ok(zns_rimage_read(img, 0, buf, LEN, &err));
	assert_fails(zns_rimage_read(img, LEN, buf, LEN, &err), -EBADMSG, "memory.img");
	assert_ok(zns_rimage_read(img, 2 * LEN, buf, LEN, &err));
	zns_reader_free(rd);
	/* what the seal covers, and what the manifest's check does */
	assert_true(seal_is_right());
	pb->nonces.data[3] ^= 1;
	assert_false(seal_is_right());
	pb->nonces.data[3] ^= 1;
	pb->memory_key.data[20] ^= 1;
	assert_false(seal_is_right());
	assert_fails(zns_reader_new(&p, rig.m, &rd, &err), -EBADMSG, "memory.img");
	pb->memory_key.data[20] ^= 1;
	assert_ok(zns_manifest_check(rig.m, &rig.d->geo, &err));
	pb->nonces.len--;
	assert_fails(zns_manifest_check(rig.m, &rig.d->geo, &err), -EBADMSG, "nonces");
	pb->nonces.len++;
	pb->memory_key.len--;
	assert_fails(zns_manifest_check(rig.m, &rig.d->geo, &err), -EBADMSG, "nonces");
	pb->memory_key.len++;
	pb->has_nonces = 0;
	assert_fails(zns_manifest_check(rig.m, &rig.d->geo, &err), -EBADMSG, "nonces");
	pb->has_nonces = 1;
	pb->part = 0;
	assert_fails(zns_manifest_check(rig.m, &rig.d->geo, &err), -EBADMSG, "nonces");
	pb->part = 1;
	assert_ok(zns_manifest_check(rig.m, &rig.d->geo, &err));
	zns_memory_key_free(key);
	free(want);
	free(buf);
	drop_checkpoint();
}

/* A plain manifest where the record says encrypted: somebody's own images in place of ours. */
static void downgraded(void **state)
{
	ZnsPb__CheckpointKey key = ZNS_PB__CHECKPOINT_KEY__INIT;

	start(2, 0);
	zns_writer_free(rig.w);
	zns_crypt_free(rig.crypt);
	rig.crypt = NULL;
	rig_start(&rig);
	feed_all();
	rig_verify(&rig, im, NR);
	key.cipher = ZNS_CIPHER_AES_256_GCM;
	rig.c->crypt = &key;
	zns_pb__manifest__free_unpacked(rig.m, NULL);
	rig.m = NULL;
	assert_fails(zns_manifest_read(rig.d, rig.c, &rig.m, &err), -EBADMSG, "does not");
	rig.c->crypt = NULL;
	drop_checkpoint();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(there_and_back, begin, end),
		cmocka_unit_test_setup_teardown(nothing_in_clear, begin, end),
		cmocka_unit_test_setup_teardown(equal_units_differ, begin, end),
		cmocka_unit_test_setup_teardown(damaged_and_moved, begin, end),
		cmocka_unit_test_setup_teardown(sealed_manifest, begin, end),
		cmocka_unit_test_setup_teardown(without_the_key, begin, end),
		cmocka_unit_test_setup_teardown(manifests_checked, begin, end),
		cmocka_unit_test_setup_teardown(downgraded, begin, end),
		cmocka_unit_test_setup_teardown(named_memory, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
