/* SPDX-License-Identifier: GPL-2.0-only */
/* The striping reader: any range into any place, verified; damage and errors never deliver a wrong
 * byte. */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include "stripe_fixture.h"

#define NR_IMAGES 12

static struct image im[NR_IMAGES];
static struct rig rig;

/* A checkpoint of some images, packed, striped, and of several segments each. */
static void make_checkpoint(uint32_t unit, uint32_t width, bool weighted)
{
	struct zns_emu_params p = roomy(64, zns_max(KIB(960), (uint64_t)unit * 3 + KIB(32)));
	const uint64_t len[NR_IMAGES] = { 0,
					  1,
					  100,
					  unit / 2,
					  unit / 2 + 1,
					  unit,
					  unit + 1,
					  unit * 3ull - 5,
					  unit * 7ull,
					  unit * 19ull + 4096,
					  5000,
					  33 };

	unlink(dev_path);
	rig_init(&rig, make_dev(&p), unit, width);
	for (uint32_t i = 0; i < width && weighted; i++)
		rig.weights[i] = 1 + i * 5 % 16;
	rig_start(&rig);
	for (size_t i = 0; i < NR_IMAGES; i++) {
		image_set(&im[i], len[i], "pages-%u.img", i);
		im[i].pages = true;
		assert_ok(feed(rig.w, &im[i], 100000, &err));
	}
	rig_verify(&rig, im, NR_IMAGES);
}

static void drop_checkpoint(void)
{
	struct zns_dev *d = rig.d;

	rig_drop(&rig);
	zns_dev_close(d);
}

/* A range of an image: mostly around unit borders. */
static void random_range(const struct image *i, uint32_t unit, uint64_t *rng, uint64_t *off,
			 uint64_t *len)
{
	*off = rnd_of(rng, i->len + 1);
	if (rnd_of(rng, 2)) {
		*off = zns_align_down(*off, unit) + rnd_of(rng, 3);
		*off = zns_min(*off, i->len);
	}
	*len = rnd_of(rng, 4) ? rnd_of(rng, 3 * unit) : rnd_of(rng, 100);
	*len = zns_min(*len, i->len - *off);
}

static void into_memory(struct zns_reader *rd, uint32_t unit, uint64_t *rng, int rounds)
{
	for (int n = 0; n < rounds; n++) {
		const struct image *i = &im[rnd_of(rng, NR_IMAGES)];
		cleanup_free uint8_t *got = NULL, *want = NULL;
		struct zns_err e = ZNS_ERR_INIT;
		uint64_t off, len;

		random_range(i, unit, rng, &off, &len);
		got = malloc(len + 2);
		want = malloc(len + 2);
		memset(got, 0xaa, len + 2);
		memset(want, 0xaa, len + 2);
		fill(want + 1, off, len, i->seed);
		if (zns_rimage_read(zns_reader_find(rd, i->name), off, got + 1, len, &e))
			fail_msg("%s", e.msg);
		if (memcmp(got, want, len + 2))
			fail_msg("%s: %llu bytes at %llu differ", i->name, (unsigned long long)len,
				 (unsigned long long)off);
	}
}

static void ranges_into_memory(void **state)
{
	static const uint32_t units[] = { KIB(64), KIB(100), KIB(256), MIB(1), MIB(4) };

	for (size_t u = 0; u < ZNS_ARRAY_SIZE(units); u++) {
		struct zns_reader *rd;
		uint64_t rng = 99 + u;

		make_checkpoint(units[u], 1 + u, u & 1);
		rd = rig_reader(&rig, u % 3, u % 4);
		into_memory(rd, units[u], &rng, units[u] > MIB(1) ? 60 : 300);
		zns_reader_free(rd);
		drop_checkpoint();
	}
}

/* --- into a task --- */

#define AREA MIB(2)
static uint8_t *area;

/* In the child: the digest of its memory, to where the parent sees it. */
static uint64_t *shared;

static void tell_hash(char c)
{
	shared[0] = zns_hash(area, AREA);
}

struct done {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	unsigned nr;
	int code;
	char msg[ZNS_ERR_MAX];
};

static struct done done_sync = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, "" };

static void on_done(void *arg, const struct zns_err *e)
{
	struct done *d = arg;

	pthread_mutex_lock(&d->lock);
	d->nr++;
	if (e->code && !d->code) {
		d->code = e->code;
		strcpy(d->msg, e->msg);
	}
	pthread_cond_broadcast(&d->cond);
	pthread_mutex_unlock(&d->lock);
}

static struct done *done_new(void)
{
	done_sync.nr = 0;
	done_sync.code = 0;
	return &done_sync;
}

static int done_wait(struct done *d, unsigned nr)
{
	pthread_mutex_lock(&d->lock);
	while (d->nr < nr)
		pthread_cond_wait(&d->cond, &d->lock);
	assert_int_equal(d->nr, nr);
	pthread_mutex_unlock(&d->lock);
	return d->code;
}

static void into_a_task(void **state)
{
	cleanup_free uint8_t *mirror = malloc(AREA);
	struct zns_reader *rd;
	struct task t;

	area = mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	memset(area, 0x11, AREA);
	memset(mirror, 0x11, AREA);
	make_checkpoint(KIB(64), 4, true);
	task_start(&t, tell_hash);
	rd = rig_reader(&rig, 4, 6);
	for (int n = 0; n < 200; n++) {
		const struct image *i = &im[rnd(NR_IMAGES)];
		uint64_t off = rnd(i->len + 1), len = zns_min(i->len - off, AREA / 2), at = 0,
			 sum = 0;
		struct iovec v[400];
		uint32_t nr = 0;

		/* pieces in ascending places with gaps, some empty */
		while (sum < len && nr < ZNS_ARRAY_SIZE(v)) {
			uint64_t piece = rnd(8) ? 1 + rnd(n % 2 ? 9000 : 60) : 0;

			at += rnd(300);
			piece = zns_min(piece, len - sum);
			if (at + piece > AREA)
				break;
			v[nr++] = (struct iovec){ area + at, piece };
			fill(mirror + at, off + sum, piece, i->seed);
			at += piece;
			sum += piece;
		}
		zns_rimage_read_task(zns_reader_find(rd, i->name), off, ZNS_TASK(t.pid), v, nr,
				     on_done, done_new());
		if (done_wait(&done_sync, 1))
			fail_msg("%s", done_sync.msg);
		if (n % 20 == 19) {
			task_do(&t, 'h');
			assert_true(shared[0] == zns_hash(mirror, AREA));
		}
	}
	assert_int_equal(area[5], 0x11); /* our own copy was left alone */
	zns_reader_free(rd);
	task_end(&t);
	drop_checkpoint();
	munmap(area, AREA);
	munmap(shared, 4096);
}

/* Parts of an image in ascending order, some side by side, to places in @at[] (of AREA bytes);
 * mirrored. */
static size_t some_parts(const struct image *i, uint32_t unit, uint8_t *at, uint8_t *mirror,
			 struct zns_part **out)
{
	struct zns_part *v = calloc(600, sizeof(*v));
	uint64_t off = 0, place = 0;
	size_t nr = 0;

	*out = v;
	while (nr < 600) {
		uint64_t len = 1 + rnd(rnd(6) ? 9000 : 2 * unit);

		off += rnd(3) ? rnd(rnd(4) ? 500 : 3 * unit) : 0;
		place += rnd(3) ? rnd(100) : 0;
		if (off >= i->len || place >= AREA)
			break;
		len = zns_min(zns_min(len, i->len - off), AREA - place);
		v[nr++] = (struct zns_part){ off, len, at + place };
		fill(mirror + place, off, len, i->seed);
		off += len;
		place += len;
	}
	return nr;
}

static void parts_to_their_places(void **state)
{
	cleanup_free uint8_t *mirror = malloc(AREA), *own = malloc(AREA);
	struct zns_reader *rd;
	struct task t;

	area = mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	make_checkpoint(KIB(64), 4, true);
	for (int way = 0; way < 2; way++) { /* a task's memory, then ours */
		memset(area, 0x11, AREA);
		memset(own, 0x11, AREA);
		memset(mirror, 0x11, AREA);
		task_start(&t, tell_hash);
		rd = rig_reader(&rig, 3, 4);
		for (int n = 0; n < 60; n++) {
			const struct image *i = &im[rnd(NR_IMAGES)];
			struct zns_part *v;
			size_t nr = some_parts(i, KIB(64), way ? own : area, mirror, &v);

			zns_rimage_read_parts(zns_reader_find(rd, i->name),
					      ZNS_TASK(way ? 0 : t.pid), v, nr, on_done,
					      done_new());
			if (done_wait(&done_sync, 1))
				fail_msg("%s", done_sync.msg);
		}
		task_do(&t, 'h');
		assert_true(way ? !memcmp(own, mirror, AREA) : shared[0] == zns_hash(mirror, AREA));
		zns_reader_free(rd);
		task_end(&t);
	}
	drop_checkpoint();
	munmap(area, AREA);
	munmap(shared, 4096);
}

/* Parts as given: each ends in @want. */
static void try_parts(struct zns_rimage *i, const struct zns_part *v, size_t nr, int want)
{
	struct zns_part *copy = malloc(nr * sizeof(*v));

	memcpy(copy, v, nr * sizeof(*v));
	zns_rimage_read_parts(i, ZNS_TASK(0), copy, nr, on_done, done_new());
	assert_int_equal(done_wait(&done_sync, 1), want);
}

static void impossible_parts(void **state)
{
	cleanup_free uint8_t *buf = malloc(MIB(2));
	struct zns_reader *rd;
	struct zns_rimage *i;
	uint64_t end;

	make_checkpoint(KIB(64), 2, false);
	rd = rig_reader(&rig, 2, 0);
	i = zns_reader_image(rd, 9);
	end = im[9].len;
	/* they overlap */
	try_parts(i, (struct zns_part[]){ { 0, 5, buf }, { 4, 5, buf } }, 2, -EINVAL);
	try_parts(i, (struct zns_part[]){ { 100, 5, buf }, { 4, 5, buf } }, 2, -EINVAL);
	try_parts(i, (struct zns_part[]){ { 0, 5, buf }, { 5, 0, buf } }, 2, -EINVAL);
	try_parts(i, (struct zns_part[]){ { 5, UINT64_MAX - 1, buf } }, 1, -EINVAL);
	try_parts(i, (struct zns_part[]){ { 0, 5, buf }, { end - 4, 5, buf } }, 2, -ENODATA);
	try_parts(i, (struct zns_part[]){ { end, 1, buf } }, 1, -ENODATA);
	try_parts(i, (struct zns_part[]){ { end - 1, 1, buf } }, 1, 0);
	zns_rimage_read_parts(i, ZNS_TASK(0), NULL, 0, on_done, done_new()); /* nothing is fine */
	assert_int_equal(done_wait(&done_sync, 1), 0);
	zns_reader_free(rd);
	drop_checkpoint();
}

static void task_errors(void **state)
{
	struct zns_rimage *i;
	struct zns_reader *rd;
	struct iovec v[3];
	struct task t;

	area = mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mprotect(area + KIB(128), 4096, PROT_READ);
	make_checkpoint(KIB(64), 2, false);
	task_start(&t, NULL);
	rd = rig_reader(&rig, 2, 0);
	i = zns_reader_image(rd, 9);
	v[0] = (struct iovec){ area, KIB(256) }; /* a read-only page in the middle */
	zns_rimage_read_task(i, 0, ZNS_TASK(t.pid), v, 1, on_done, done_new());
	assert_int_equal(done_wait(&done_sync, 1), -EFAULT);
	assert_non_null(strstr(done_sync.msg, "cannot write the memory of task"));
	v[0] = (struct iovec){ NULL, 4096 };
	zns_rimage_read_task(i, 0, ZNS_TASK(t.pid), v, 1, on_done, done_new());
	assert_int_equal(done_wait(&done_sync, 1), -EFAULT);
	/* beyond the end, also by sums that wrap */
	v[0] = (struct iovec){ area, KIB(64) };
	zns_rimage_read_task(i, im[9].len - KIB(64) + 1, ZNS_TASK(t.pid), v, 1, on_done,
			     done_new());
	assert_int_equal(done_wait(&done_sync, 1), -ENODATA);
	v[0].iov_len = v[1].iov_len = 1ull << 63;
	v[1].iov_base = area;
	zns_rimage_read_task(i, 0, ZNS_TASK(t.pid), v, 2, on_done, done_new());
	assert_int_equal(done_wait(&done_sync, 1), -ENODATA);
	zns_rimage_read_task(i, 0, ZNS_TASK(t.pid), v, 0, on_done, done_new()); /* nothing is fine
										 */
	assert_int_equal(done_wait(&done_sync, 1), 0);
	task_end(&t);
	v[0].iov_len = KIB(64);
	zns_rimage_read_task(i, 0, ZNS_TASK(t.pid), v, 1, on_done, done_new());
	assert_int_equal(done_wait(&done_sync, 1), -ESRCH);
	zns_reader_free(rd);
	drop_checkpoint();
	munmap(area, AREA);
}

/*
 * With a userfaultfd. The place is covered: process_vm_writev alone would fail on each page that is
 * missing. Pages that are there already are written all the same.
 */
static void into_covered_memory(void **state)
{
	const struct image *i = &im[9];
	cleanup_free uint8_t *mirror = NULL;
	struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_SIGBUS };
	struct zns_task task = { .pid = getpid() };
	struct zns_reader *rd;
	struct iovec v[2];
	struct zns_part *parts;
	uint8_t *file;
	size_t half;
	int fd;

	task.uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | 1 /* from user mode */);
	if (task.uffd < 0 || ioctl(task.uffd, UFFDIO_API, &api))
		skip();
	make_checkpoint(KIB(64), 2, false);
	mirror = malloc(i->len);
	fill(mirror, 0, i->len, i->seed);
	half = zns_align_down(i->len / 2, 4096);
	for (int way = 0; way < 2; way++) { /* one range, then parts */
		area = mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		area[KIB(64) * 3 + 4096] = area[half + KIB(64) * 5] = 1;
		/* two areas side by side */
		assert_return_code(mprotect(area, KIB(96), PROT_READ | PROT_WRITE | PROT_EXEC),
				   errno);
		assert_true(zns_task_cover(task.uffd, area, AREA));
		rd = rig_reader(&rig, 3, 4);
		v[0] = (struct iovec){ area, half };
		v[1] = (struct iovec){ area + MIB(1), i->len - half };
		parts = malloc(2 * sizeof(*parts));
		parts[0] = (struct zns_part){ 0, half, v[0].iov_base };
		parts[1] = (struct zns_part){ half, i->len - half, v[1].iov_base };
		if (way)
			zns_rimage_read_parts(zns_reader_image(rd, 9), task, parts, 2, on_done,
					      done_new());
		else
			zns_rimage_read_task(zns_reader_image(rd, 9), 0, task, v, 2, on_done,
					     done_new());
		if (done_wait(&done_sync, 1))
			fail_msg("%s", done_sync.msg);
		assert_memory_equal(v[0].iov_base, mirror, half);
		assert_memory_equal(v[1].iov_base, mirror + half, i->len - half);
		if (!way)
			free(parts);
		v[0] = (struct iovec){ area + AREA - 4096, 4096 };
		zns_rimage_read_task(zns_reader_image(rd, 9), 0, ZNS_TASK(getpid()), v, 1, on_done,
				     done_new());
		assert_int_equal(done_wait(&done_sync, 1), -EFAULT); /* it was covered indeed */
		zns_reader_free(rd);
		munmap(area, AREA);
	}
	fd = open(dev_path, O_RDONLY);
	file = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	close(fd);
	assert_true(file != MAP_FAILED);
	assert_false(zns_task_cover(task.uffd, file, 4096));
	munmap(file, 4096);
	close(task.uffd);
	drop_checkpoint();
}

/* --- into a file --- */

static void into_a_file(void **state)
{
	struct zns_reader *rd;

	make_checkpoint(KIB(64), 3, false);
	rd = rig_reader(&rig, 3, 0);
	for (int n = 0; n < NR_IMAGES; n++) {
		cleanup_free uint8_t *want = calloc(1, im[n].len + 1),
				     *got = calloc(1, im[n].len + 1);
		int fd = memfd_create("test", MFD_CLOEXEC);
		struct zns_rimage *i = zns_reader_find(rd, im[n].name);
		uint64_t off, len;

		assert_int_equal(ftruncate(fd, (off_t)im[n].len), 0);
		for (int k = 0; k < 10; k++) {
			random_range(&im[n], KIB(64), &rng_state, &off, &len);
			assert_ok(zns_rimage_to_fd(i, off, len, fd, &err));
			fill(want + off, off, len, im[n].seed);
		}
		assert_int_equal(zns_pread_all(fd, got, im[n].len, 0), 0);
		assert_memory_equal(got, want, im[n].len); /* what was not asked for is a hole */
		assert_fails(zns_rimage_to_fd(i, im[n].len, 1, fd, &err), -ENODATA, "ends at");
		close(fd);
		if (im[n].len)
			assert_fails(zns_rimage_to_fd(i, 0, im[n].len, -1, &err), -EBADF,
				     "its copy");
	}
	zns_reader_free(rd);
	drop_checkpoint();
}

/* --- damage --- */

/* Where a byte of an image stands in the device's file. */
static off_t file_pos(const struct zns_rimage *i, const ZnsPb__Image *pb, uint64_t off)
{
	struct emu *e = (struct emu *)rig.d;

	for (size_t n = 0; n < pb->n_segments; n++) {
		const ZnsPb__Segment *s = pb->segments[n];
		struct zns_place at;
		struct zns_seg seg;

		if (off < s->off || off - s->off >= s->len)
			continue;
		assert_ok(zns_seg_init(&seg, s, pb->unit, &err));
		zns_seg_place(&seg, (off - s->off) / pb->unit, &at);
		zns_seg_fini(&seg);
		return (off_t)(e->lay.data_off + e->lay.stride * at.zone + at.off +
			       (off - s->off) % pb->unit);
	}
	fail_msg("no place for byte %llu of %s", (unsigned long long)off, pb->name);
	return -1;
}

static void flip(off_t pos)
{
	struct emu *e = (struct emu *)rig.d;
	uint8_t b;

	assert_int_equal(pread(e->fd, &b, 1, pos), 1);
	b ^= 0x40;
	assert_int_equal(pwrite(e->fd, &b, 1, pos), 1);
	assert_int_equal(fsync(e->fd), 0);
}

/* One bit of one unit: a read of everything fails, and not a byte of that unit is delivered. */
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
	assert_true(bytes <= im[n].len - len); /* what was whole and delivered before */
	/* a page of it alone, again and again; its neighbours are whole */
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

/* A piece is verified by itself: damage elsewhere in its unit does not matter to it, and its own is
 * found. */
static void faults_verify_pieces(void **state)
{
	const uint64_t piece = ZNS_PIECE, unit = 8 * piece, in_unit = 5 * piece + 4096;

	make_checkpoint((uint32_t)unit, 3, false);
	assert_int_equal(rig.m->images[9]->n_piece_csums, (im[9].len + piece - 1) / piece);
	for (uint64_t k = 0; k < 19; k += 6)
		for (size_t w = 1; w < ZNS_ARRAY_SIZE(lazy_ways); w++) {
			struct zns_reader *rd = rig_reader(&rig, 2, 0);
			struct zns_rimage *i = zns_reader_find(rd, im[9].name);
			off_t pos = file_pos(i, rig.m->images[9], k * unit + in_unit);
			uint8_t got[4096], want[4096], none[4096];
			size_t sums = rig.m->images[9]->n_piece_csums;

			memset(none, 0xaa, sizeof(none));
			flip(pos);
			for (uint64_t p = 0; p < 8; p++) {
				uint64_t off = k * unit + p * piece + 4096;

				memset(got, 0xaa, sizeof(got));
				fill(want, off, sizeof(want), im[9].seed);
				assert_int_equal(fault(i, off, got, sizeof(got), lazy_ways[w]),
						 p == 5 ? -EBADMSG : 0);
				assert_memory_equal(got, p == 5 ? none : want, sizeof(got));
				if (p == 5)
					assert_non_null(strstr(done_sync.msg, "is damaged"));
			}
			/* the unit as a whole is still damaged, and so is all of it where there are
			 * no pieces */
			assert_int_equal(fault(i, k * unit, got, 4096, ZNS_READ_BACKGROUND),
					 -EBADMSG);
			rig.m->images[9]->n_piece_csums = k * 8;
			memset(got, 0xaa, sizeof(got));
			assert_int_equal(fault(i, k * unit, got, 4096, lazy_ways[w]), -EBADMSG);
			assert_memory_equal(got, none, sizeof(got));
			rig.m->images[9]->n_piece_csums = sums;
			flip(pos);
			assert_int_equal(fault(i, k * unit, got, 4096, ZNS_READ_BACKGROUND), 0);
			zns_reader_free(rd);
		}
	drop_checkpoint();
}

/* A wrong checksum of a piece is not overruled by the right one of its unit. */
static void wrong_piece_sum(void **state)
{
	struct zns_reader *rd;
	uint8_t got[4096];

	make_checkpoint(KIB(512), 2, false);
	rig.m->images[9]->piece_csums[3] ^= 1;
	rd = rig_reader(&rig, 2, 0);
	assert_int_equal(fault(zns_reader_find(rd, im[9].name), 3 * ZNS_PIECE, got, 4096,
			       ZNS_READ_FAULT),
			 -EBADMSG);
	assert_int_equal(fault(zns_reader_find(rd, im[9].name), 2 * ZNS_PIECE, got, 4096,
			       ZNS_READ_FAULT),
			 0);
	zns_reader_free(rd);
	drop_checkpoint();
}

/* What a verification said, by image and unit. */
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

static void nothing_damaged_reaches_a_task(void **state)
{
	struct iovec v = { NULL, KIB(64) };
	struct zns_reader *rd;
	struct task t;
	off_t pos;

	area = mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	make_checkpoint(KIB(64), 3, false);
	task_start(&t, tell_hash);
	rd = rig_reader(&rig, 2, 0);
	pos = file_pos(NULL, rig.m->images[9], KIB(64) * 5 + 77);
	flip(pos);
	v.iov_base = area;
	zns_rimage_read_task(zns_reader_image(rd, 9), KIB(64) * 5, ZNS_TASK(t.pid), &v, 1, on_done,
			     done_new());
	assert_int_equal(done_wait(&done_sync, 1), -EBADMSG);
	task_do(&t, 'h');
	assert_true(shared[0] == zns_hash(area, AREA));
	zns_reader_free(rd);
	task_end(&t);
	drop_checkpoint();
	munmap(area, AREA);
	munmap(shared, 4096);
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

static void beyond_the_end(void **state)
{
	const uint64_t far[] = { 1, 4096, 1ull << 40, 1ull << 63 };
	struct zns_reader *rd;
	uint8_t byte = 0xaa;

	make_checkpoint(KIB(64), 2, false);
	rd = rig_reader(&rig, 1, 0);
	for (uint32_t n = 0; n < NR_IMAGES; n++) {
		struct zns_rimage *i = zns_reader_image(rd, n);

		assert_ok(zns_rimage_read(i, im[n].len, &byte, 0, &err));
		assert_fails(zns_rimage_read(i, im[n].len, &byte, 1, &err), -ENODATA, im[n].name);
		for (size_t k = 0; k < ZNS_ARRAY_SIZE(far); k++) {
			assert_int_equal(zns_rimage_read(i, im[n].len + far[k], &byte, 1, NULL),
					 -ENODATA);
			assert_int_equal(zns_rimage_read(i, 0, &byte, im[n].len + far[k], NULL),
					 -ENODATA);
			assert_int_equal(zns_rimage_read(i, im[n].len, &byte, far[k], NULL),
					 -ENODATA);
		}
		assert_int_equal(zns_rimage_read(i, UINT64_MAX, &byte, 1, NULL), -ENODATA);
		assert_int_equal(zns_rimage_read(i, 0, &byte, SIZE_MAX, NULL), -ENODATA);
		assert_int_equal(zns_rimage_read(i, UINT64_MAX, &byte, SIZE_MAX, NULL), -ENODATA);
		assert_int_equal(byte, 0xaa);
	}
	zns_reader_free(rd);
	drop_checkpoint();
}

/* --- many at once --- */

static void *read_lots(void *arg)
{
	uint64_t rng = 7 + (uintptr_t)&rng;

	into_memory(arg, rig.unit, &rng, 250);
	return NULL;
}

static void concurrent_readers(void **state)
{
	pthread_t t[8];

	make_checkpoint(KIB(64), 4, true);
	for (uint32_t round = 0; round < 4; round++) {
		struct zns_reader *rd = rig_reader(&rig, 1 + round * 2, 1 + round * 4);

		for (int n = 0; n < 8; n++)
			assert_int_equal(pthread_create(&t[n], NULL, read_lots, rd), 0);
		for (int n = 0; n < 8; n++)
			pthread_join(t[n], NULL);
		zns_reader_free(rd);
	}
	drop_checkpoint();
}

/* Page by page, as a forked child's memory is read: the device is asked once for each unit, not for
 * each page. */
static void pages_come_from_the_cache(void **state)
{
	struct zns_reader *rd;
	struct proxy p;
	uint8_t got[4096], want[4096];

	make_checkpoint(KIB(64), 2, false);
	proxy_init(&p, rig.d);
	rig.d = &p.dev;
	rd = rig_reader(&rig, 2, 0);
	for (uint64_t off = 0; off < im[9].len; off += 4096) {
		assert_ok(zns_rimage_read(zns_reader_image(rd, 9), off, got, 4096, &err));
		fill(want, off, 4096, im[9].seed);
		assert_memory_equal(got, want, 4096);
	}
	assert_int_equal(atomic_load(&p.read), 20);
	zns_reader_free(rd);
	rig.d = p.inner;
	drop_checkpoint();
}

/* One task's large read does not make another one's page wait for its end. */
static void small_reads_overtake(void **state)
{
	struct zns_reader *rd;
	struct iovec v = { NULL, 0 };
	struct proxy p;
	uint8_t byte;
	uint64_t bytes, us;
	void *big;

	make_checkpoint(KIB(64), 2, false);
	big = malloc(im[9].len);
	proxy_init(&p, rig.d);
	p.read_us = 5000;
	rig.d = &p.dev;
	rd = rig_reader(&rig, 1, 0);
	v = (struct iovec){ big, im[9].len };
	zns_rimage_read_task(zns_reader_image(rd, 9), 0, ZNS_TASK(getpid()), &v, 1, on_done,
			     done_new());
	assert_ok(zns_rimage_read(zns_reader_image(rd, 7), 0, &byte, 1, &err));
	assert_true(atomic_load(&p.read) < 10);
	/* free waits for what is running, and every request is answered once */
	zns_reader_stats(rd, &bytes, &us);
	assert_int_equal(bytes % KIB(64), 1); /* the small one, and whole units of the other */
	zns_reader_free(rd);
	assert_int_equal(done_sync.nr, 1);
	assert_int_equal(done_sync.code, 0);
	assert_int_equal(atomic_load(&p.read), 21);
	rig.d = p.inner;
	free(big);
	drop_checkpoint();
}

/* --- the list of images --- */

static void looking_up(void **state)
{
	struct zns_reader *rd;

	make_checkpoint(KIB(64), 2, false);
	rd = rig_reader(&rig, 0, 0);
	for (uint32_t n = 0; n < NR_IMAGES; n++) {
		struct zns_rimage *i = zns_reader_find(rd, im[n].name);

		assert_non_null(i);
		assert_ptr_equal(i, zns_reader_image(rd, zns_rimage_index(i)));
		assert_string_equal(zns_rimage_name(i), im[n].name);
		assert_string_equal(rig.m->images[zns_rimage_index(i)]->name, im[n].name);
		assert_int_equal(zns_rimage_size(i), im[n].len);
	}
	assert_null(zns_reader_find(rd, ""));
	assert_null(zns_reader_find(rd, "pages-1"));
	assert_null(zns_reader_find(rd, "pages-1.imgx"));
	assert_null(zns_reader_image(rd, NR_IMAGES));
	assert_null(zns_reader_image(rd, UINT32_MAX));
	zns_reader_free(rd);
	zns_reader_free(NULL);
	drop_checkpoint();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(ranges_into_memory),
		T(into_a_task),
		T(parts_to_their_places),
		T(impossible_parts),
		T(units_of_parts),
		T(task_errors),
		T(into_covered_memory),
		T(into_a_file),
		T(every_unit_damaged),
		T(faults_deliver),
		T(faults_verify_pieces),
		T(wrong_piece_sum),
		T(verifying),
		T(nothing_damaged_reaches_a_task),
		T(device_errors),
		T(beyond_the_end),
		T(concurrent_readers),
		T(pages_come_from_the_cache),
		T(small_reads_overtake),
		T(looking_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
