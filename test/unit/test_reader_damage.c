/* SPDX-License-Identifier: GPL-2.0-only */
/* The striping reader: damage and errors never deliver a wrong byte. */
#include <fcntl.h>
#include <sys/uio.h>
#include "reader_fixture.h"
#include "until.h"

/* One changed bit in a unit: a read of everything fails, and no byte of that unit is delivered. */
static void check_damage(uint32_t n, uint64_t k)
{
	uint32_t unit = rig.unit;
	uint64_t from = k * unit, len = zns_min((uint64_t)unit, im[n].len - from);
	uint64_t at = from + (rnd(3) ? rnd(len) : rnd(2) ? 0 : len - 1);
	cleanup_free uint8_t *got = malloc(im[n].len), *want = malloc(im[n].len);
	struct zns_reader *rd = rig_reader(&rig, 2, 0);
	struct zns_rimage *i = zns_reader_find(rd, im[n].name);
	off_t pos = file_pos(i, rig.m->images[n], at);
	uint64_t bytes, us;

	flip(pos);
	memset(got, 0xaa, im[n].len);
	assert_fails(zns_rimage_read(i, 0, got, im[n].len, &err), -EBADMSG, im[n].name);
	assert_says("is damaged");
	for (uint64_t b = from; b < from + len; b++)
		if (got[b] != 0xaa)
			fail_msg("byte %llu of a damaged unit was delivered",
				 (unsigned long long)b);
	zns_reader_stats(rd, &bytes, &us);
	assert_true(bytes <= im[n].len - len); /* what was whole was delivered before */
	/* a single byte of the damaged unit cannot be read; the bytes next to the unit can */
	assert_fails(zns_rimage_read(i, from, got, 1, &err), -EBADMSG, "is damaged");
	assert_fails(zns_rimage_read(i, from + len - 1, got, 1, &err), -EBADMSG, "is damaged");
	assert_int_equal(got[0], k ? got[0] : 0xaa);
	fill(want, 0, im[n].len, im[n].seed);
	if (from) {
		assert_ok(zns_rimage_read(i, from - 1, got, 1, &err));
		assert_int_equal(got[0], want[from - 1]);
	}
	if (from + len < im[n].len)
		assert_ok(zns_rimage_read(i, from + len, got, 1, &err));
	for (int o = 0; o < NR_IMAGES; o++)
		if (o != (int)n && im[o].len < unit)
			check_image(rd, &im[o]);
	flip(pos);
	assert_ok(zns_rimage_read(i, 0, got, im[n].len, &err));
	assert_memory_equal(got, want, im[n].len);
	zns_reader_free(rd);
}

static void every_unit_damaged(void **state)
{
	make_checkpoint(KIB(64), 3, true);
	for (uint32_t n = 0; n < NR_IMAGES; n++)
		for (uint64_t k = 0; k * rig.unit < im[n].len; k++)
			check_damage(n, k);
	drop_checkpoint();
}

/* A unit in which no part lies is not read, one with many is read once. */
static void units_of_parts(void **state)
{
	const uint32_t unit = KIB(64);
	struct zns_reader *rd;
	struct zns_part *v = calloc(30, sizeof(*v));
	uint8_t buf[30];
	uint64_t bytes, us;
	off_t bad;

	make_checkpoint(unit, 2, false);
	rd = rig_reader(&rig, 2, 0);
	bad = file_pos(zns_reader_image(rd, 9), rig.m->images[9], unit + 7);
	flip(bad);
	for (uint32_t n = 0; n < 30; n++) /* in units 0 and 2 */
		v[n] = (struct zns_part){ n < 15 ? n * 10 : 2 * unit + n * 10, 1, buf + n };
	zns_rimage_read_parts(zns_reader_image(rd, 9), ZNS_TASK(0), v, 30, on_done, done_new());
	assert_int_equal(done_wait(&done_sync, 1), 0);
	for (uint32_t n = 0; n < 30; n++) {
		uint8_t want;

		fill(&want, n < 15 ? n * 10 : 2 * unit + n * 10, 1, im[9].seed);
		assert_int_equal(buf[n], want);
	}
	zns_reader_stats(rd, &bytes, &us);
	assert_int_equal(bytes, 30);
	v = calloc(2, sizeof(*v));
	v[0] = (struct zns_part){ 0, 1, buf };
	v[1] = (struct zns_part){ unit + 1, 1, buf + 1 };
	zns_rimage_read_parts(zns_reader_image(rd, 9), ZNS_TASK(0), v, 2, on_done, done_new());
	assert_int_equal(done_wait(&done_sync, 1), -EBADMSG);
	zns_reader_free(rd);
	drop_checkpoint();
}

/* --- faults --- */

static int fault(struct zns_rimage *i, uint64_t off, uint8_t *to, size_t len, enum zns_read_how how)
{
	struct iovec v = { to, len };

	zns_rimage_read_lazy(i, off, ZNS_TASK(getpid()), &v, how, on_done, done_new());
	if (how == ZNS_READ_FAULT_HERE)
		assert_int_equal(done_sync.nr, 1);
	return done_wait(&done_sync, 1);
}

static const enum zns_read_how lazy_ways[] = { ZNS_READ_BACKGROUND, ZNS_READ_FAULT,
					       ZNS_READ_FAULT_HERE };

static void faults_deliver(void **state)
{
	static const uint32_t units[] = { KIB(64), KIB(100), KIB(512), MIB(1) };

	for (size_t u = 0; u < ZNS_ARRAY_SIZE(units); u++) {
		cleanup_free uint8_t *got = malloc(2 * units[u]), *want = malloc(2 * units[u]);
		struct zns_reader *rd;

		make_checkpoint(units[u], 1 + u, u & 1);
		rd = rig_reader(&rig, 2, u % 3);
		for (int n = 0; n < 300; n++) {
			const struct image *i = &im[rnd(NR_IMAGES)];
			uint64_t off = rnd(i->len + 1), len = rnd(n % 3 ? KIB(64) : 2 * units[u]);

			len = zns_min(len, i->len - off);
			memset(got, 0xaa, 2 * units[u]);
			memset(want, 0xaa, 2 * units[u]);
			fill(want, off, len, i->seed);
			if (fault(zns_reader_find(rd, i->name), off, got, len, lazy_ways[n % 3]))
				fail_msg("%s", done_sync.msg);
			assert_memory_equal(got, want, 2 * units[u]);
		}
		zns_reader_free(rd);
		drop_checkpoint();
	}
}

/* A device whose long reads take as long as the test wants. */
static struct {
	const struct zns_dev_ops *was;
	pthread_mutex_t lock;
	pthread_cond_t change;
	uint32_t inside; /* long reads under way */
	bool held;
} slow = { .lock = PTHREAD_MUTEX_INITIALIZER, .change = PTHREAD_COND_INITIALIZER };

static int slow_read(struct zns_dev *d, uint32_t zone, uint64_t off, void *buf, size_t len,
		     struct zns_err *e)
{
	pthread_mutex_lock(&slow.lock);
	if (len > KIB(64)) {
		slow.inside++;
		pthread_cond_broadcast(&slow.change);
		while (slow.held)
			pthread_cond_wait(&slow.change, &slow.lock);
		slow.inside--;
	}
	pthread_mutex_unlock(&slow.lock);
	return slow.was->read(d, zone, off, buf, len, e);
}

static uint32_t reads_held(void)
{
	uint32_t nr;

	pthread_mutex_lock(&slow.lock);
	nr = slow.inside;
	pthread_mutex_unlock(&slow.lock);
	return nr;
}

static unsigned ended(struct done *d)
{
	unsigned nr;

	pthread_mutex_lock(&d->lock);
	nr = d->nr;
	pthread_mutex_unlock(&d->lock);
	return nr;
}

static void release_reads(void)
{
	pthread_mutex_lock(&slow.lock);
	slow.held = false;
	pthread_cond_broadcast(&slow.change);
	pthread_mutex_unlock(&slow.lock);
}

/* No fault waits for the background: none of the background's reads ends before the faults are
 * answered. */
static void faults_before_background(void **state)
{
	enum { WORKERS = 4, UNITS = 19 };
	const uint32_t unit = KIB(512);
	struct zns_dev_ops ops;
	struct done fills = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, "" };
	cleanup_free uint8_t *got = calloc(UNITS, unit), *want = malloc((size_t)UNITS * unit);
	uint8_t page[4096];
	struct zns_reader *rd;
	struct zns_rimage *i;

	make_checkpoint(unit, 2, false);
	fill(want, 0, (size_t)UNITS * unit, im[9].seed);
	slow.was = rig.d->ops;
	ops = *slow.was;
	ops.read = slow_read;
	rig.d->ops = &ops;
	slow.held = true;
	rd = rig_reader(&rig, WORKERS, WORKERS); /* and no more buffers */
	i = zns_reader_find(rd, im[9].name);
	for (size_t k = 0; k < UNITS; k++) {
		struct iovec v = { got + k * unit, unit };

		zns_rimage_read_lazy(i, k * unit, ZNS_TASK(getpid()), &v, ZNS_READ_BACKGROUND,
				     on_done, &fills);
	}
	until(reads_held() >= WORKERS - 1);
	for (uint64_t k = 0; k < UNITS; k++) /* also of units that are being read */
		for (size_t w = 1; w < ZNS_ARRAY_SIZE(lazy_ways); w++) {
			struct iovec v = { page, sizeof(page) };

			zns_rimage_read_lazy(i, k * unit, ZNS_TASK(getpid()), &v, lazy_ways[w],
					     on_done, done_new());
			until(ended(&done_sync));
			assert_int_equal(done_sync.code, 0);
			assert_memory_equal(page, want + k * unit, sizeof(page));
		}
	assert_int_equal(reads_held(), WORKERS - 1);
	assert_int_equal(ended(&fills), 0);
	release_reads();
	assert_int_equal(done_wait(&fills, UNITS), 0);
	assert_memory_equal(got, want, (size_t)UNITS * unit);
	zns_reader_free(rd);
	rig.d->ops = slow.was;
	drop_checkpoint();
}

/*
 * A piece is verified by itself, for a fault and in the background: damage elsewhere in its unit
 * does not matter, damage in the piece is found. @in_unit: the damaged piece is neither the first
 * nor the last one.
 */
static void check_pieces(uint64_t unit, uint64_t piece, uint64_t in_unit)
{
	uint64_t bad = in_unit / piece, per = unit / piece;
	ZnsPb__Image *pb = rig.m->images[9];
	size_t *sums = pb->has_piece ? &pb->piece_sums.len : &pb->n_piece_csums, all = *sums;

	assert_int_equal(all,
			 (im[9].len + piece - 1) / piece * (pb->has_piece ? ZNS_SUM_BYTES : 1));
	for (uint64_t k = 0; k < 19; k += 6)
		for (size_t w = 0; w < ZNS_ARRAY_SIZE(lazy_ways); w++) {
			struct zns_reader *rd = rig_reader(&rig, 2, 0);
			struct zns_rimage *i = zns_reader_find(rd, im[9].name);
			off_t pos = file_pos(i, pb, k * unit + in_unit);
			const uint64_t look[] = { 0, bad - 1, bad, bad + 1, per - 1 };
			uint8_t got[4096], want[4096], none[4096];
			cleanup_free uint8_t *all_of_it = malloc(unit);

			memset(none, 0xaa, sizeof(none));
			flip(pos);
			for (size_t n = 0; n < ZNS_ARRAY_SIZE(look); n++) {
				uint64_t off = k * unit + look[n] * piece;
				bool whole = look[n] != bad;

				memset(got, 0xaa, sizeof(got));
				fill(want, off, sizeof(want), im[9].seed);
				assert_int_equal(fault(i, off, got, sizeof(got), lazy_ways[w]),
						 whole ? 0 : -EBADMSG);
				assert_memory_equal(got, whole ? want : none, sizeof(got));
				if (!whole)
					assert_non_null(strstr(done_sync.msg, "is damaged"));
			}
			/* the unit as a whole is still damaged, and so is all of it where there are
			 * no pieces */
			assert_int_equal(fault(i, k * unit, all_of_it, unit, lazy_ways[w]),
					 -EBADMSG);
			*sums = all * k * unit / im[9].len / ZNS_SUM_BYTES * ZNS_SUM_BYTES;
			memset(got, 0xaa, sizeof(got));
			assert_int_equal(fault(i, k * unit, got, 4096, lazy_ways[w]), -EBADMSG);
			assert_memory_equal(got, none, sizeof(got));
			*sums = all;
			flip(pos);
			assert_int_equal(fault(i, k * unit, got, 4096, ZNS_READ_BACKGROUND), 0);
			zns_reader_free(rd);
		}
}

static void faults_verify_pages(void **state)
{
	make_checkpoint(KIB(512), 3, false);
	check_pieces(KIB(512), ZNS_PIECE, 37 * ZNS_PIECE + 4000);
	drop_checkpoint();
}

/* All images as a manifest of version 1 describes them. */
static void downgrade(ZnsPb__Image *pb, const struct image *i)
{
	cleanup_free uint8_t *mem = malloc(i->len + 1);

	fill(mem, 0, i->len, i->seed);
	pb->has_piece = pb->has_piece_sums = 0;
	pb->piece_sums.len = 0;
	pb->piece_csums = calloc(i->len / ZNS_PIECE_V1 + 1, sizeof(*pb->piece_csums));
	for (uint64_t at = 0; at < i->len; at += pb->unit)
		pb->csums[at / pb->unit] = zns_hash(mem + at,
						    zns_min((uint64_t)pb->unit, i->len - at));
	for (uint64_t at = 0; at < i->len; at += ZNS_PIECE_V1)
		pb->piece_csums[pb->n_piece_csums++] =
			zns_hash(mem + at, zns_min((uint64_t)ZNS_PIECE_V1, i->len - at));
}

static void pieces_of_version_1(void **state)
{
	make_checkpoint(KIB(512), 3, false);
	for (uint32_t n = 0; n < NR_IMAGES; n++)
		downgrade(rig.m->images[n], &im[n]);
	check_pieces(KIB(512), ZNS_PIECE_V1, 5 * ZNS_PIECE_V1 + 4000);
	drop_checkpoint();
}

/* A wrong checksum of a piece is not overruled by the right one of its unit. */
static void wrong_piece_sum(void **state)
{
	struct zns_reader *rd;
	struct zns_rimage *i;
	uint8_t got[4096];

	make_checkpoint(KIB(512), 2, false);
	rig.m->images[9]->piece_sums.data[3 * ZNS_SUM_BYTES] ^= 1;
	rd = rig_reader(&rig, 2, 0);
	i = zns_reader_find(rd, im[9].name);
	assert_int_equal(fault(i, 3 * ZNS_PIECE, got, 4096, ZNS_READ_FAULT), -EBADMSG);
	assert_int_equal(fault(i, 2 * ZNS_PIECE, got, 4096, ZNS_READ_FAULT), 0);
	zns_reader_free(rd);
	drop_checkpoint();
}

/* The results of a verification, by image and unit. */
struct told {
	pthread_mutex_t lock;
	uint32_t units[NR_IMAGES], bad[NR_IMAGES];
	uint64_t bytes;
	struct zns_unit_check last_bad;
	int code;
};

static void on_unit(void *arg, const struct zns_unit_check *u)
{
	struct told *t = arg;
	uint32_t n = zns_rimage_index(u->image);

	pthread_mutex_lock(&t->lock);
	t->units[n]++;
	t->bytes += u->len;
	if (u->err->code) {
		t->bad[n]++;
		t->last_bad = *u;
		t->code = u->err->code;
	}
	pthread_mutex_unlock(&t->lock);
}

static struct told *told_arg;
static void on_told(void *arg, const struct zns_err *e)
{
	assert_ptr_equal(arg, told_arg);
	on_done(&done_sync, e);
}

/* Verification counts every unit once, goes on after damage, and says where it is. */
static void verifying(void **state)
{
	struct told t = { .lock = PTHREAD_MUTEX_INITIALIZER };
	struct zns_reader *rd;
	uint64_t total = 0;
	off_t pos[2];

	told_arg = &t;
	make_checkpoint(KIB(64), 3, true);
	rd = rig_reader(&rig, 3, 0);
	pos[0] = file_pos(NULL, rig.m->images[9], KIB(64) * 5 + 77);
	pos[1] = file_pos(NULL, rig.m->images[9], KIB(64) * 11);
	flip(pos[0]);
	flip(pos[1]);
	done_new();
	for (uint32_t n = 0; n < NR_IMAGES; n++)
		zns_rimage_verify(zns_reader_image(rd, n), on_unit, on_told, &t);
	assert_int_equal(done_wait(&done_sync, NR_IMAGES), 0);
	for (uint32_t n = 0; n < NR_IMAGES; n++) {
		assert_int_equal(t.units[n], (im[n].len + KIB(64) - 1) / KIB(64));
		assert_int_equal(t.bad[n], n == 9 ? 2 : 0);
		total += im[n].len;
	}
	assert_int_equal(t.bytes, total);
	assert_int_equal(t.code, -EBADMSG);
	assert_true(t.last_bad.zone < rig.d->geo.nr_zones);
	assert_true(t.last_bad.off == KIB(64) * 5 || t.last_bad.off == KIB(64) * 11);
	flip(pos[0]);
	flip(pos[1]);
	memset(t.bad, 0, sizeof(t.bad));
	done_new();
	zns_rimage_verify(zns_reader_image(rd, 9), on_unit, on_told, &t);
	assert_int_equal(done_wait(&done_sync, 1), 0);
	assert_int_equal(t.bad[9], 0);
	zns_reader_free(rd);
	drop_checkpoint();
}

/* A device error is passed on, and a later read of the same unit works. */
static void device_errors(void **state)
{
	struct zns_reader *rd;
	uint8_t *buf;

	make_checkpoint(KIB(64), 3, false);
	buf = malloc(im[9].len);
	rd = rig_reader(&rig, 3, 4);
	for (int n = 0; n < 20; n++) {
		struct zns_emu_fault f = { -1, n };

		zns_emu_set_fault(rig.d, &f);
		assert_fails(zns_rimage_read(zns_reader_image(rd, 9), 0, buf, im[9].len, &err),
			     -EIO, "injected");
		assert_says(im[9].name);
		check_image(rd, &im[9]);
	}
	free(buf);
	zns_reader_free(rd);
	drop_checkpoint();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(every_unit_damaged),       T(units_of_parts),      T(faults_deliver),
		T(faults_verify_pages),      T(pieces_of_version_1), T(wrong_piece_sum),
		T(faults_before_background), T(verifying),           T(device_errors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
