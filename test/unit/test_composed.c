/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Composed images, from the writer through the manifest to every way of reading: the bytes are
 * those that the runs name, plain and encrypted. And maps with lies in them.
 */
#include <sys/stat.h>
#include "stripe_fixture.h"
#include "zns/image_map.h"

#define UNIT KIB(128) /* two pieces */
#define PAGE ZNS_MAP_PAGE
#define NR_PARTS 4
#define NR_COMPOSED 6
#define AREA MIB(4)

static struct rig rig;
static struct image part[NR_PARTS];
static struct composed {
	char name[32];
	uint8_t *want;
	uint64_t len;
	uint32_t runs; /* runs that the writer was given */
} com[NR_COMPOSED];

/* --- making a checkpoint --- */

static const uint64_t part_len[NR_PARTS] = { 40 * UNIT, 17 * UNIT + PAGE, 3 * PAGE, 9 * UNIT };

/* Copies straight into the unit, as a live dump does, in lengths that do not divide the unit. */
static void feed_by_room(struct zns_wimage *i, const struct image *im)
{
	uint64_t off = 0;

	while (off < im->len) {
		size_t len, some = 1 + rnd(70000);
		uint8_t *buf;

		assert_ok(zns_wimage_room(i, &buf, &len, &err));
		assert_true(len > 0 && len <= UNIT);
		len = zns_min(zns_min(len, some), (size_t)(im->len - off));
		fill(buf, off, len, im->seed);
		assert_ok(zns_wimage_filled(i, len, &err));
		off += len;
	}
}

static struct zns_wimage *new_part(uint32_t n)
{
	struct zns_wimage *i;

	image_set(&part[n], part_len[n], "live-%u.img", n);
	assert_ok(zns_writer_image(rig.w, part[n].name, true, &i, &err));
	feed_by_room(i, &part[n]);
	zns_wimage_set_part(i);
	assert_ok(zns_wimage_seal(i, &err));
	return i;
}

/* Runs of an image, and the bytes that they must give. @how: 0 in ascending order through all
 * sources, as in a live dump; 1 anywhere, also overlapping; 2 the same page again and again. */
static size_t make_runs(int how, struct zns_image_run *run, size_t nr, struct composed *c)
{
	uint64_t at[NR_PARTS] = { 0 };
	size_t made = 0;

	c->want = NULL;
	c->len = 0;
	for (size_t n = 0; n < nr || !made; n++) {
		uint32_t s = (uint32_t)rnd(NR_PARTS);
		uint64_t pages = part_len[s] / PAGE, len = 1 + rnd(rnd(4) ? 3 : 60), place;

		if (how == 2) {
			s = 1;
			len = 1;
			place = 5;
		} else {
			place = how ? rnd(pages) : at[s] + (rnd(2) ? rnd(4) : 0);
		}
		if (place >= pages)
			continue;
		len = zns_min(len, pages - place);
		at[s] = place + len;
		run[made++] = (struct zns_image_run){ len * PAGE, s, place * PAGE };
		c->want = realloc(c->want, c->len + len * PAGE);
		fill(c->want + c->len, place * PAGE, len * PAGE, part[s].seed);
		c->len += len * PAGE;
	}
	c->runs = (uint32_t)made;
	return made;
}

static void start(bool encrypted)
{
	struct zns_emu_params p = roomy(64, KIB(960));

	unlink(dev_path);
	rig_init(&rig, make_dev(&p), UNIT, 4);
	if (encrypted) {
		struct zns_master *m;
		char path[160], spec[176];

		snprintf(path, sizeof(path), "%s/key", test_dir);
		snprintf(spec, sizeof(spec), "file:%s", path);
		unlink(path);
		assert_ok(zns_master_create(path, &err));
		assert_ok(zns_master_load(spec, &m, &err));
		assert_int_equal(zns_uuid_generate(rig.id), 0);
		assert_ok(zns_crypt_new(m, rig.id, &rig.crypt, &err));
		rig.has_id = true;
		zns_master_free(m);
	}
	rig_start(&rig);
}

static void make_checkpoint(bool encrypted)
{
	static struct zns_image_run run[3000];
	struct zns_wimage *from[NR_PARTS];
	struct image core;

	start(encrypted);
	image_set(&core, 777, "core-%u.img", 1);
	for (uint32_t n = 0; n < NR_PARTS; n++)
		from[n] = new_part(n);
	assert_ok(feed(rig.w, &core, 100, &err)); /* the numbers are those of the manifest */
	for (int n = 0; n < NR_COMPOSED; n++) {
		size_t nr = make_runs(n % 3, run, n ? 200 << n % 4 : 1, &com[n]);

		snprintf(com[n].name, sizeof(com[n].name), "pages-%u.img", n);
		assert_ok(zns_writer_compose(rig.w, com[n].name, from, NR_PARTS, run, nr, &err));
	}
	assert_ok(zns_writer_compose(rig.w, "pages-none.img", from, NR_PARTS, run, 0, &err));
	rig_finish(&rig);
}

static void drop_checkpoint(void)
{
	struct zns_dev *d = rig.d;

	for (int n = 0; n < NR_COMPOSED; n++) {
		free(com[n].want);
		com[n].want = NULL;
	}
	rig_drop(&rig);
	zns_dev_close(d);
}

/* --- reading --- */

static pthread_mutex_t done_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t done_cond = PTHREAD_COND_INITIALIZER;
static unsigned nr_done;
static int done_code;

static void on_done(void *arg, const struct zns_err *e)
{
	pthread_mutex_lock(&done_lock);
	nr_done++;
	if (e->code)
		done_code = e->code;
	pthread_cond_broadcast(&done_cond);
	pthread_mutex_unlock(&done_lock);
}

/* Makes one request; returns its code. */
static int wait_done(void)
{
	int ret;

	pthread_mutex_lock(&done_lock);
	while (!nr_done)
		pthread_cond_wait(&done_cond, &done_lock);
	assert_int_equal(nr_done, 1);
	ret = done_code;
	nr_done = 0;
	done_code = 0;
	pthread_mutex_unlock(&done_lock);
	return ret;
}

static void check_buffer(struct zns_rimage *i, const struct composed *c)
{
	cleanup_free uint8_t *got = malloc(c->len + 1);

	assert_int_equal(zns_rimage_size(i), c->len);
	got[c->len] = 0x5a;
	assert_ok(zns_rimage_read(i, 0, got, c->len, &err));
	assert_memory_equal(got, c->want, c->len);
	assert_int_equal(got[c->len], 0x5a);
	for (int n = 0; n < 40; n++) {
		uint64_t off = rnd(c->len), len = rnd(3 * UNIT);

		len = zns_min(len, c->len - off);
		assert_ok(zns_rimage_read(i, off, got, len, &err));
		assert_memory_equal(got, c->want + off, len);
	}
	assert_ok(zns_rimage_read(i, c->len, got, 0, &err));
	assert_fails(zns_rimage_read(i, c->len, got, 1, &err), -ENODATA, c->name);
	assert_fails(zns_rimage_read(i, 1, got, c->len, &err), -ENODATA, c->name);
	assert_fails(zns_rimage_read(i, UINT64_MAX, got, 1, &err), -ENODATA, c->name);
	assert_fails(zns_rimage_read(i, 1, got, SIZE_MAX, &err), -ENODATA, c->name);
}

static void check_file(struct zns_rimage *i, const struct composed *c)
{
	cleanup_free uint8_t *got = malloc(c->len);
	int fd = memfd_create("copy", MFD_CLOEXEC);
	struct stat st;

	assert_ok(zns_rimage_to_fd(i, 0, c->len, fd, &err));
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, c->len);
	assert_int_equal(pread(fd, got, c->len, 0), c->len);
	assert_memory_equal(got, c->want, c->len);
	assert_fails(zns_rimage_to_fd(i, 1, c->len, fd, &err), -ENODATA, c->name);
	assert_fails(zns_rimage_to_fd(i, 0, 1, -1, &err), -EBADF, "cannot write its copy");
	close(fd);
}

/* Parts in any order, to their places. */
static void check_parts(struct zns_rimage *i, const struct composed *c)
{
	cleanup_free uint8_t *got = malloc(c->len);
	uint64_t pages = c->len / PAGE;
	struct zns_part *v = malloc(pages * sizeof(*v));

	memset(got, 0, c->len);
	for (uint64_t n = 0; n < pages; n++)
		v[n] = (struct zns_part){ n * PAGE, PAGE, got + n * PAGE };
	for (uint64_t n = 0; n < pages; n++) {
		uint64_t k = rnd(pages);
		struct zns_part x = v[n];

		v[n] = v[k];
		v[k] = x;
	}
	zns_rimage_read_parts(i, ZNS_TASK(0), v, pages, on_done, NULL);
	assert_int_equal(wait_done(), 0);
	assert_memory_equal(got, c->want, c->len);
	v = malloc(2 * sizeof(*v));
	v[0] = (struct zns_part){ 0, 1, got };
	v[1] = (struct zns_part){ c->len, 1, got };
	zns_rimage_read_parts(i, ZNS_TASK(0), v, 2, on_done, NULL);
	assert_int_equal(wait_done(), -ENODATA);
	v = malloc(sizeof(*v));
	*v = (struct zns_part){ 0, 0, got };
	zns_rimage_read_parts(i, ZNS_TASK(0), v, 1, on_done, NULL);
	assert_int_equal(wait_done(), -EINVAL);
}

static uint8_t *area;
static uint64_t *shared;

static void tell_hash(char c)
{
	shared[0] = zns_hash(area, AREA);
}

/* The two ways in which a restore reads: many places at once, and single pages for a task that
 * waits. */
static void check_task(struct zns_reader *rd)
{
	static const enum zns_read_how hows[] = { ZNS_READ_ORDERLY, ZNS_READ_BACKGROUND,
						  ZNS_READ_FAULT, ZNS_READ_FAULT_HERE };
	cleanup_free uint8_t *mirror = malloc(AREA);
	struct task t;

	area = mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	memset(area, 0x11, AREA);
	memset(mirror, 0x11, AREA);
	task_start(&t, tell_hash);
	for (int n = 0; n < 240; n++) {
		const struct composed *c = &com[rnd(NR_COMPOSED)];
		uint64_t off = rnd(c->len), len = zns_min(c->len - off, AREA / 2), at = 0, sum = 0;
		struct zns_rimage *i = zns_reader_find(rd, c->name);
		enum zns_read_how how = hows[rnd(4)];
		struct iovec v[400];
		uint32_t nr = 0;

		while (n % 2 && sum < len && nr < ZNS_ARRAY_SIZE(v)) {
			uint64_t piece = rnd(8) ? 1 + rnd(3 * PAGE) : 0;

			at += rnd(300);
			piece = zns_min(zns_min(piece, len - sum), AREA - at);
			v[nr++] = (struct iovec){ area + at, piece };
			memcpy(mirror + at, c->want + off + sum, piece);
			at += piece;
			sum += piece;
		}
		if (n % 2) {
			zns_rimage_read_task(i, off, ZNS_TASK(t.pid), v, nr, on_done, NULL);
		} else {
			sum = 1 + rnd(6 * PAGE);
			len = zns_min(len, sum);
			at = rnd(AREA - len);
			v[0] = (struct iovec){ area + at, len };
			memcpy(mirror + at, c->want + off, len);
			zns_rimage_read_lazy(i, off, ZNS_TASK(t.pid), v, how, on_done, NULL);
			if (how == ZNS_READ_FAULT_HERE)
				assert_int_equal(nr_done, 1);
		}
		assert_int_equal(wait_done(), 0);
		if (n % 20 == 19) {
			task_do(&t, 'h');
			assert_true(shared[0] == zns_hash(mirror, AREA));
		}
	}
	for (int n = 0; n < 4; n++) {
		struct iovec v = { area, 2 };

		zns_rimage_read_lazy(zns_reader_find(rd, com[3].name), com[3].len - 1,
				     ZNS_TASK(t.pid), &v, hows[n], on_done, NULL);
		assert_int_equal(wait_done(), -ENODATA);
	}
	task_end(&t);
	munmap(area, AREA);
	munmap(shared, 4096);
}

static void no_unit(void *arg, const struct zns_unit_check *u)
{
	fail_msg("a composed image has no units");
}

static void every_way(void **state)
{
	for (int encrypted = 0; encrypted < 2; encrypted++)
		for (uint32_t cache = 4; cache < 40; cache += 32) {
			struct zns_reader *rd;

			make_checkpoint(encrypted);
			rd = rig_reader(&rig, 4, cache);
			for (int n = 0; n < NR_COMPOSED; n++) {
				struct zns_rimage *i = zns_reader_find(rd, com[n].name);

				assert_non_null(i);
				check_buffer(i, &com[n]);
				check_file(i, &com[n]);
				check_parts(i, &com[n]);
				zns_rimage_verify(i, no_unit, on_done, NULL);
				assert_int_equal(wait_done(), 0);
			}
			assert_int_equal(zns_rimage_size(zns_reader_find(rd, "pages-none.img")), 0);
			check_task(rd);
			zns_reader_free(rd);
			drop_checkpoint();
		}
}

/*
 * The image's entry in the manifest: its bytes count once, it has no places, and its parts cannot
 * be found by name.
 */
static void in_the_manifest(void **state)
{
	uint64_t bytes = 777, page_bytes = 0, maps = 0;
	struct zns_reader *rd;

	make_checkpoint(false);
	rd = rig_reader(&rig, 2, 0);
	for (int n = 0; n < NR_PARTS; n++) {
		page_bytes += part_len[n];
		assert_null(zns_reader_find(rd, part[n].name));
		assert_true(rig.m->images[n]->part);
		assert_string_equal(zns_rimage_name(zns_reader_image(rd, n)), part[n].name);
	}
	for (size_t n = 0; n < rig.m->n_images; n++) {
		const ZnsPb__Image *i = rig.m->images[n];

		maps += i->map != NULL;
		assert_true(!i->map || (!i->n_segments && !i->n_csums && !i->has_tags));
	}
	assert_int_equal(maps, NR_COMPOSED);
	assert_int_equal(rig.c->bytes, bytes + page_bytes);
	assert_int_equal(rig.c->page_bytes, page_bytes);
	assert_int_equal(rig.c->nr_images, NR_PARTS + NR_COMPOSED + 2);
	assert_ok(zns_manifest_agrees(rig.m, rig.c, &err));
	zns_reader_free(rd);
	drop_checkpoint();
}

/* A damaged unit of a part: the reads that need it fail, and say where it is. */
static void damage(void **state)
{
	cleanup_free uint8_t *buf = malloc(UNIT);
	struct zns_rimage *i;
	struct zns_reader *rd;

	make_checkpoint(false);
	rig.m->images[1]->csums[0] ^= 1;
	rd = rig_reader(&rig, 2, 0);
	i = zns_reader_find(rd, com[2].name); /* page 5 of part 1, again and again */
	assert_fails(zns_rimage_read(i, 0, buf, PAGE, &err), -EBADMSG,
		     "image pages-2.img: image live-1.img is damaged");
	zns_reader_free(rd);
	drop_checkpoint();
}

/* Calls that the writer refuses without failing the dump. */
static void refused(void **state)
{
	struct zns_image_run good = { PAGE, 0, 0 };
	struct zns_wimage *a, *open, *other, *many[ZNS_MAP_FROM_MAX + 1];
	struct image im;
	uint8_t *buf;
	size_t len;

	start(false);
	a = new_part(0);
	assert_ok(zns_writer_image(rig.w, "open", true, &open, &err));
	zns_wimage_set_part(open);
	assert_ok(zns_wimage_data(open, "x", 1, &err));
	assert_ok(zns_writer_image(rig.w, "other", true, &other, &err));
	assert_ok(zns_wimage_seal(other, &err));
#define NO(from, nr_from, ...)                                                                   \
	do {                                                                                     \
		struct zns_image_run r[] = { __VA_ARGS__ };                                      \
		assert_int_equal(zns_writer_compose(rig.w, "p", (struct zns_wimage *[]){ from }, \
						    nr_from, r, ZNS_ARRAY_SIZE(r), &err),        \
				 -EINVAL);                                                       \
	} while (0)
	NO(a, 0, good);
	NO(open, 1, good);
	NO(other, 1, good);
	NO(a, 1, { PAGE, 1, 0 });
	NO(a, 1, { 0, 0, 0 });
	NO(a, 1, { PAGE - 1, 0, 0 });
	NO(a, 1, { PAGE, 0, 1 });
	NO(a, 1, { PAGE, 0, part_len[0] });
	NO(a, 1, good, { 2 * PAGE, 0, part_len[0] - PAGE });
	NO(a, 1, { UINT64_MAX - PAGE + 1, 0, 0 });
	NO(a, 1, { PAGE, 0, UINT64_MAX - PAGE + 1 });
	for (size_t n = 0; n < ZNS_ARRAY_SIZE(many); n++)
		many[n] = a;
	assert_int_equal(zns_writer_compose(rig.w, "p", many, ZNS_ARRAY_SIZE(many), &good, 1, &err),
			 -EINVAL);
	assert_ok(zns_writer_compose(rig.w, "p", many, ZNS_MAP_FROM_MAX, &good, 1, &err));
	assert_int_equal(zns_writer_compose(rig.w, "p", many, 1, &good, 1, &err), -EEXIST);
	assert_ok(zns_wimage_data(open, "x", 1, &err));
	assert_ok(zns_wimage_seal(open, &err));
	image_set(&im, 5, "late-%u", 1);
	assert_ok(feed(rig.w, &im, 5, &err));
	rig_finish(&rig);
	drop_checkpoint();
	/* more than the room that was given: the image would lack bytes, so the dump fails */
	start(false);
	assert_ok(zns_writer_image(rig.w, "open", true, &open, &err));
	assert_ok(zns_wimage_room(open, &buf, &len, &err));
	assert_int_equal(len, UNIT);
	assert_ok(zns_wimage_filled(open, 1, &err));
	assert_ok(zns_wimage_room(open, &buf, &len, &err));
	assert_int_equal(len, UNIT - 1);
	assert_int_equal(zns_wimage_filled(open, UNIT, &err), -EINVAL);
	assert_int_equal(zns_writer_error(rig.w, NULL), -EINVAL);
	drop_checkpoint();
}

/* The seal covers maps and marks: without the key no run can be exchanged. */
static void sealed(void **state)
{
	uint8_t tag[ZNS_TAG_BYTES], *runs;
	ZnsPb__Image *i;

	make_checkpoint(true);
	i = rig.m->images[NR_PARTS + 2];
	assert_non_null(i->map);
	runs = i->map->runs.data;
#define SEAL_SAYS(equal)                                                                     \
	do {                                                                                 \
		assert_ok(zns_crypt_seal_manifest(rig.crypt, rig.m, tag, &err));             \
		assert_true((memcmp(tag, rig.m->seal.data, ZNS_TAG_BYTES) == 0) == (equal)); \
	} while (0)
	SEAL_SAYS(true);
	for (size_t n = 0; n < i->map->runs.len; n += 7) {
		runs[n] ^= 1;
		SEAL_SAYS(false);
		runs[n] ^= 1;
	}
	i->map->from[0] ^= 1;
	SEAL_SAYS(false);
	i->map->from[0] ^= 1;
	rig.m->images[0]->part = 0;
	SEAL_SAYS(false);
	rig.m->images[0]->has_part = 0;
	SEAL_SAYS(false);
	rig.m->images[0]->has_part = rig.m->images[0]->part = 1;
	SEAL_SAYS(true);
	drop_checkpoint();
}

/* --- maps with lies in them --- */

#define LIE_UNIT KIB(64)

struct lie {
	ZnsPb__Manifest m;
	ZnsPb__Checkpoint c;
	ZnsPb__Image img[4], *imgp[4];
	ZnsPb__Segment seg[2], *segp[2];
	ZnsPb__Extent ext[2], *extp[2];
	ZnsPb__ImageMap map, map2;
	ZnsPb__ZoneUse use, *usep[1];
	uint32_t from[2];
	uint64_t csums[4];
	uint8_t id[ZNS_UUID_LEN], runs[64];
};

/* Two parts of two units, an image composed of both, and an empty one. */
static void lie_init(struct lie *a, const void *runs, size_t len)
{
	memset(a, 0, sizeof(*a));
	zns_pb__manifest__init(&a->m);
	zns_pb__checkpoint__init(&a->c);
	zns_pb__image_map__init(&a->map);
	a->id[0] = 7;
	a->m.device = a->c.id = (ProtobufCBinaryData){ ZNS_UUID_LEN, a->id };
	a->c.container = (char *)"redis";
	a->c.bytes = 4 * LIE_UNIT;
	a->c.nr_images = 4;
	a->m.checkpoint = &a->c;
	zns_pb__zone_use__init(&a->use);
	a->use.zone = 4;
	a->use.len = MIB(1);
	a->usep[0] = &a->use;
	a->c.zones = a->usep;
	a->c.n_zones = 1;
	for (int i = 0; i < 4; i++) {
		zns_pb__image__init(&a->img[i]);
		a->imgp[i] = &a->img[i];
		a->img[i].unit = LIE_UNIT;
	}
	for (int i = 0; i < 2; i++) {
		zns_pb__segment__init(&a->seg[i]);
		zns_pb__extent__init(&a->ext[i]);
		a->segp[i] = &a->seg[i];
		a->extp[i] = &a->ext[i];
		a->ext[i].zone = 4;
		a->ext[i].start = 2 * LIE_UNIT * i;
		a->seg[i].len = 2 * LIE_UNIT;
		a->seg[i].extents = &a->extp[i];
		a->seg[i].n_extents = 1;
		a->img[i].size = 2 * LIE_UNIT;
		a->img[i].segments = &a->segp[i];
		a->img[i].n_segments = 1;
		a->img[i].csums = a->csums;
		a->img[i].n_csums = 2;
		a->img[i].has_part = a->img[i].part = 1;
		a->from[i] = (uint32_t)i;
	}
	a->img[0].name = (char *)"live-0.img";
	a->img[1].name = (char *)"live-1.img";
	a->img[2].name = (char *)"pages-1.img";
	a->img[3].name = (char *)"other.img";
	memcpy(a->runs, runs, len);
	a->map.from = a->from;
	a->map.n_from = 2;
	a->map.runs = (ProtobufCBinaryData){ len, a->runs };
	a->img[2].map = &a->map;
	a->img[2].size = 5 * PAGE;
	a->m.images = a->imgp;
	a->m.n_images = 4;
}

static int judge(struct lie *a)
{
	struct zns_geometry geo = {
		.nr_zones = 8, .block_size = 4096, .zone_size = MIB(4), .zone_capacity = MIB(4)
	};

	return zns_manifest_check(&a->m, &geo, &err);
}

/* 3 pages of part 1 from its page 7, then 2 of part 0 from page 0. */
static const uint8_t fine[] = { 3, 1, 14, 2, 0, 0 };

static void lies(void **state)
{
	struct lie a;

#define LIE(...)                                       \
	do {                                           \
		lie_init(&a, fine, sizeof(fine));      \
		__VA_ARGS__;                           \
		assert_int_equal(judge(&a), -EBADMSG); \
	} while (0)
	lie_init(&a, fine, sizeof(fine));
	assert_ok(judge(&a));
	assert_ok(zns_manifest_agrees(&a.m, &a.c, &err));
	a.img[2].unit = 0; /* a field that is not checked */
	assert_ok(judge(&a));
	LIE(a.img[2].size += PAGE);
	LIE(a.img[2].size -= PAGE);
	LIE(a.img[2].size += 1);
	LIE(a.img[2].size = 0);
	LIE(a.img[2].size = UINT64_MAX);
	LIE(a.from[0] = 2); /* itself */
	LIE(a.from[0] = 3); /* no part */
	LIE(a.from[0] = 4);
	LIE(a.from[0] = UINT32_MAX);
	LIE(a.img[0].part = 0);
	LIE(a.map.n_from = 0);
	LIE(a.map.n_from = 1);
	LIE(a.map.runs.len = 0);
	LIE(a.map.runs.len--);
	LIE(a.map.runs.len -= 2);
	LIE(a.img[2].has_part = a.img[2].part = 1);
	LIE(a.img[2].has_beside = a.img[2].beside = 1);
	LIE(a.img[0].has_beside = a.img[0].beside = 1);
	LIE(a.img[2].segments = a.segp; a.img[2].n_segments = 1);
	LIE(a.img[2].csums = a.csums; a.img[2].n_csums = 1);
	LIE(a.img[2].piece_csums = a.csums; a.img[2].n_piece_csums = 1);
	LIE(a.img[2].has_piece = 1; a.img[2].piece = 4096);
	LIE(a.img[2].has_piece_sums = 1);
	LIE(a.img[2].has_tags = 1; a.img[2].tags = (ProtobufCBinaryData){ 16, a.runs });
	LIE(a.img[2].has_unit_base = 1);
	LIE(a.img[2].name = a.img[0].name);
	LIE(a.img[2].name = (char *)"../etc/passwd");
	/* composed of a composed image */
	LIE(a.img[3] = a.img[2]; a.img[3].name = (char *)"pages-2.img"; a.map2 = a.map;
	    a.img[3].map = &a.map2; a.map2.from = (uint32_t[]){ 0, 2 });
	LIE(a.img[3] = a.img[2]; a.img[3].name = (char *)"pages-2.img"; a.map2 = a.map;
	    a.img[3].map = &a.map2; a.img[3].part = a.img[3].has_part = 1;
	    a.map.from = (uint32_t[]){ 0, 3 });
	/* without the map, as an older reader would see it */
	lie_init(&a, fine, sizeof(fine));
	a.img[2].map = NULL;
	assert_fails(judge(&a), -EBADMSG, "0 checksums for 20480 bytes");
	a.img[2].csums = a.csums;
	a.img[2].n_csums = 1;
	assert_fails(judge(&a), -EBADMSG, "segments cover 0 of 20480 bytes");
}

/* Encoded runs are accepted only if they are inside their parts and add up to the size given. */
static void lying_runs(void **state)
{
	static const struct {
		const char *runs;
		size_t len;
		uint64_t pages;
		bool fine;
	} t[] = {
#define R(s, pages, fine) { s, sizeof(s) - 1, pages, fine }
		R("\x20\x00\x00", 32, true),
		R("\xa0\x00\x00\x00", 32, true), /* one byte more than it takes */
		R("\x21\x00\x00", 33, false), /* longer than the part */
		R("\x20\x00\x02", 32, false), /* from page 1 on */
		R("\x1f\x00\x02", 31, true),
		R("\x01\x00\x3e\x01\x00\x01", 2, true), /* page 31, and the same page again */
		R("\x01\x00\x40", 1, false), /* page 32 */
		R("\x01\x00\x01", 1, false), /* page -1 */
		R("\x01\x00\x00\x01\x00\x03", 2, false), /* 1 - 2 */
		R("\x01\x00\x00\x01\x00\x01", 2, true), /* 1 - 1 */
		R("\x01\x02\x00", 1, false), /* the third part: there are two */
		R("\x01\x80\x02\x00", 1, false), /* the 257th part */
		R("\x01\x80\x80\x80\x80\x10\x00", 1, false), /* of the 2^32nd */
		R("\x00\x00\x00", 0, false),
		R("\x00\x00\x00\x01\x00\x00", 1, false),
		R("\x01\x00", 1, false),
		R("\x01\x00\x80", 1, false),
		R("\x01\x00\x00\x80", 1, false),
		/* numbers: 2^64 - 1, and one beyond 64 bits */
		R("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00\x00", 1, false),
		R("\x01\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 1, false),
		R("\x01\x00\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", 1, false),
		R("\x81\x80\x80\x80\x80\x80\x80\x80\x80\x02\x00\x00", 1, false),
		R("\x81\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00\x00\x00", 1, false),
		/* 2^52 pages */
		R("\x80\x80\x80\x80\x80\x80\x80\x08\x00\x00", 1, false),
		R("\x01\x00\x80\x80\x80\x80\x80\x80\x80\x10", 1, false),
	};
	struct lie a;

	for (size_t n = 0; n < ZNS_ARRAY_SIZE(t); n++) {
		int ret;

		lie_init(&a, t[n].runs, t[n].len);
		a.img[2].size = t[n].pages * PAGE;
		ret = judge(&a);
		if (ret != (t[n].fine ? 0 : -EBADMSG))
			fail_msg("map %zu: %d", n, ret);
	}
}

/* Twice 2^63 bytes, and a page: in 64 bits that is a page. */
static void runs_beyond_64_bits(void **state)
{
#define HALF "\x80\x80\x80\x80\x80\x80\x80\x04" /* 2^51 pages */
#define BACK "\xff\xff\xff\xff\xff\xff\xff\x07" /* as far back */
	static const char runs[] = HALF "\x00\x00" HALF "\x00" BACK "\x01\x00" BACK;
	struct lie a;
	uint32_t nr;

	lie_init(&a, runs, sizeof(runs) - 1);
	a.img[0].size = UINT64_C(1) << 63;
	a.img[2].size = PAGE;
	assert_fails(zns_map_check(&a.m, 2, 9, &nr, &err), -EBADMSG, "leaves that or the image");
}

/* All maps together may have no more runs than a reader has memory for. */
static void too_many_runs(void **state)
{
	struct zns_geometry large = {
		.nr_zones = 8, .block_size = 4096, .zone_size = GIB(16), .zone_capacity = GIB(16)
	};
	struct lie a;
	uint32_t runs;
	int ret;

	lie_init(&a, fine, sizeof(fine));
	assert_ok(zns_map_check(&a.m, 2, 2, &runs, &err));
	assert_int_equal(runs, 2);
	assert_fails(zns_map_check(&a.m, 2, 1, &runs, &err), -EBADMSG, "too many runs");
	/* Two maps of half the limit each, of one page again and again; then one run more. */
	for (uint32_t more = 0; more < 2; more++) {
		size_t each = ZNS_MAP_RUNS_MAX / 2 + more, len = 3 * each;
		uint8_t *big = malloc(len);

		for (size_t n = 0; n < each; n++)
			memcpy(big + 3 * n, n ? "\x01\x00\x01" : "\x01\x00\x00", 3);
		lie_init(&a, fine, sizeof(fine));
		a.map.runs = (ProtobufCBinaryData){ len, big };
		a.map2 = a.map;
		a.map2.runs.len = 3 * (size_t)(ZNS_MAP_RUNS_MAX / 2);
		a.img[3].map = &a.map2;
		a.img[2].size = each * PAGE;
		a.img[3].size = (uint64_t)(ZNS_MAP_RUNS_MAX / 2) * PAGE;
		ret = zns_manifest_check(&a.m, &large, &err);
		assert_int_equal(ret, more ? -EBADMSG : 0);
		assert_true(!more || strstr(err.msg, "too many runs"));
		free(big);
	}
}

/* An encoded map decodes to the same runs, with adjacent ones merged. */
static void there_and_back(void **state)
{
	static struct zns_image_run in[2000], out;

	for (int round = 0; round < 50; round++) {
		uint32_t from[8] = { 0 }, nr;
		ZnsPb__ImageMap map = ZNS_PB__IMAGE_MAP__INIT;
		struct zns_map_reader r;
		size_t n = 0;

		for (size_t k = 0; k < ZNS_ARRAY_SIZE(in); k++)
			in[k] = (struct zns_image_run){ (1 + rnd(rnd(2) ? 3 : 1ull << 40)) * PAGE,
							(uint32_t)rnd(8),
							rnd(rnd(2) ? 9 : 1ull << 50) * PAGE };
		map.from = from;
		map.n_from = 8;
		assert_ok(zns_map_pack(in, ZNS_ARRAY_SIZE(in), 8, &map.runs.data, &map.runs.len,
				       &nr, &err));
		assert_ok(zns_map_open(&r, &map, &err));
		for (; zns_map_next(&r, &out) > 0; nr--) {
			uint64_t len = in[n].len;

			assert_int_equal(out.source, in[n].source);
			assert_int_equal(out.at, in[n].at);
			for (; len < out.len; len += in[n].len) {
				n++;
				assert_int_equal(in[n].source, out.source);
				assert_int_equal(in[n].at, out.at + len);
			}
			assert_int_equal(len, out.len);
			n++;
		}
		assert_int_equal(n, ZNS_ARRAY_SIZE(in));
		assert_int_equal(nr, 0);
		zns_map_close(&r);
		free(map.runs.data);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(every_way),     T(in_the_manifest),
		T(damage),        T(refused),
		T(sealed),        T(lies),
		T(lying_runs),    T(runs_beyond_64_bits),
		T(too_many_runs), T(there_and_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
