/* SPDX-License-Identifier: GPL-2.0-only */
/* The striping writer: what goes in comes back, whatever the sizes, zones and threads. */
#include "stripe_fixture.h"
#include "../../zns/stripe/write/writer.h"

#define MAX_IMAGES 4000

static struct image im[MAX_IMAGES];

/* --- bytes --- */

static void sizes(uint32_t block, uint32_t unit, uint32_t width, size_t piece)
{
	const uint64_t len[] = { 0,
				 1,
				 7,
				 8,
				 9,
				 block - 1,
				 block,
				 block + 1,
				 unit / 2 - 1,
				 unit / 2,
				 unit / 2 + 1,
				 unit - block - 1,
				 unit - 1,
				 unit,
				 unit + 1,
				 unit + block,
				 2 * unit - 1,
				 2 * unit,
				 2 * unit + 1,
				 5 * unit + 123,
				 9 * unit,
				 17 * unit - 1 };
	struct zns_emu_params p = roomy(24, MIB(8) - KIB(64));
	struct rig r;

	p.block_size = block;
	unlink(dev_path);
	rig_init(&r, make_dev(&p), unit, width);
	rig_start(&r);
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(len); i++) {
		image_set(&im[i], len[i], "core-%u.img", i);
		im[i].pages = i % 3 == 1;
		assert_ok(feed(r.w, &im[i], piece, &err));
	}
	rig_verify(&r, im, ZNS_ARRAY_SIZE(len));
	rig_drop(&r);
	zns_dev_close(r.d);
}

static void every_size(void **state)
{
	sizes(4096, KIB(64), 1, 1 << 20);
	sizes(4096, KIB(64), 3, 5000);
	sizes(512, KIB(64), 4, KIB(64));
	sizes(4096, KIB(256), 2, KIB(256) + 1);
	sizes(512, KIB(72), 5, 12345);
	sizes(4096, MIB(1), 3, KIB(100));
}

/* Nothing is lost between images that share units, and they do share them. */
static void many_small(void **state)
{
	struct zns_emu_params p = roomy(16, MIB(1));
	uint64_t stored = 0;
	struct rig r;

	rig_init(&r, make_dev(&p), KIB(64), 4);
	rig_start(&r);
	for (size_t i = 0; i < MAX_IMAGES; i++) {
		image_set(&im[i], i % 50 == 7 ? rnd(KIB(40)) : rnd(300), "fdinfo-%u.img", i);
		assert_ok(feed(r.w, &im[i], 100, &err));
	}
	rig_verify(&r, im, MAX_IMAGES);
	for (size_t i = 0; i < r.c->n_zones; i++)
		stored += r.c->zones[i]->len;
	assert_true(stored < MIB(5)); /* a block each would be 16 MiB */
	rig_drop(&r);
	zns_dev_close(r.d);
}

/* Marks in @map, one byte for each of zone @zone's, what images hold there. */
static void mark_images(const struct rig *r, uint32_t zone, uint8_t *map)
{
	for (size_t i = 0; i < r->m->n_images; i++) {
		const ZnsPb__Image *pb = r->m->images[i];

		for (size_t n = 0; n < pb->n_segments; n++) {
			struct zns_place p;
			struct zns_seg seg;

			assert_ok(zns_seg_init(&seg, pb->segments[n], pb->unit, &err));
			for (uint64_t k = 0; k * pb->unit < seg.len; k++) {
				zns_seg_place(&seg, k, &p);
				if (p.zone == zone)
					memset(map + p.off, 1,
					       zns_min(pb->unit, seg.len - k * pb->unit));
			}
			zns_seg_fini(&seg);
		}
	}
}

/* A buffer serves one unit after the other: behind a short unit, there are no bytes of the previous
 * one. */
static void padding_is_zero(void **state)
{
	static const uint64_t len[] = { 640 * 1024, 65536 - 1000, 65536, 65536 - 3000,
					65536 * 2 - 1 };
	struct zns_emu_params p = roomy(16, MIB(8) - KIB(64));
	uint64_t padded = 0;
	struct rig r;

	unlink(dev_path);
	rig_init(&r, make_dev(&p), KIB(64), 1);
	r.workers = 1;
	rig_start(&r);
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(len); i++) {
		image_set(&im[i], len[i], "pages-%u.img", i);
		im[i].pages = true;
		assert_ok(feed(r.w, &im[i], 1 << 20, &err));
	}
	rig_verify(&r, im, ZNS_ARRAY_SIZE(len));
	for (uint32_t z = 0; z < r.d->geo.nr_zones; z++) {
		uint64_t end = z == r.c->manifest->zone ? r.c->manifest->start : UINT64_MAX;
		uint8_t *map, *got;
		struct zns_zone rep;

		assert_ok(zns_dev_report(r.d, z, 1, &rep, &err));
		end = zns_min(end, rep.wp);
		if (!r.given[z] || !end)
			continue;
		map = calloc(1, end);
		got = aligned_alloc(4096, end);
		mark_images(&r, z, map);
		assert_ok(zns_dev_read(r.d, z, 0, got, end, &err));
		for (uint64_t i = 0; i < end; i++) {
			padded += !map[i];
			if (!map[i] && got[i])
				fail_msg("zone %u holds %02x at %llu, where no image is", z, got[i],
					 (unsigned long long)i);
		}
		free(map);
		free(got);
	}
	assert_true(padded >= 4000);
	rig_drop(&r);
	zns_dev_close(r.d);
}

/* --- zones --- */

static void total_over(struct rig *r, uint64_t total, uint32_t small_every)
{
	uint64_t left = total;
	size_t nr;

	rig_start(r);
	for (nr = 0; left; nr++) {
		uint64_t len = 1 + rnd(small_every && nr % small_every ? 3000 : MIB(3));

		len = zns_min(left, len);
		assert_true(nr < MAX_IMAGES);
		image_set(&im[nr], len, "i-%u", nr);
		assert_ok(feed(r->w, &im[nr], KIB(100), &err));
		left -= len;
	}
	rig_verify(r, im, nr);
}

static void full_zones_are_replaced(void **state)
{
	struct zns_emu_params p = roomy(64, KIB(960));
	struct rig r;

	for (uint32_t width = 1; width <= 4; width++) {
		unlink(dev_path);
		rig_init(&r, make_dev(&p), KIB(64), width);
		total_over(&r, MIB(30), width % 2 ? 0 : 3);
		assert_true(r.nr_given >= 31);
		/* the last ones, and those that some lane was behind with when it was asked */
		assert_true(r.nr_done >= r.nr_given - 4 * width - 1);
		rig_drop(&r);
		zns_dev_close(r.d);
	}
}

static void weights_shape_the_stripe(void **state)
{
	struct zns_emu_params p = roomy(32, MIB(8));
	struct rig r;

	rig_init(&r, make_dev(&p), KIB(64), 3);
	r.weights[0] = 4;
	r.weights[1] = 1;
	r.weights[2] = 16;
	rig_start(&r);
	image_set(&im[0], KIB(64) * 21 * 3, "big", 0);
	assert_ok(feed(r.w, &im[0], MIB(2), &err));
	rig_verify(&r, im, 1);
	/* three whole turns; the manifest is the one thing beside */
	for (size_t i = 0; i < r.c->n_zones; i++) {
		uint32_t units = (uint32_t)(r.c->zones[i]->len / KIB(64)), want[] = { 12, 3, 48 };

		assert_int_equal(units,
				 want[r.c->zones[i]->zone - zns_store_meta_zones(&r.d->geo)]);
	}
	assert_int_equal(r.m->images[0]->n_segments, 1);
	rig_drop(&r);
	unlink(dev_path);
	zns_dev_close(r.d);
	p = roomy(64, KIB(960));
	rig_init(&r, make_dev(&p), KIB(64), 4);
	r.weights[1] = 2;
	r.weights[2] = 7;
	r.weights[3] = 16;
	total_over(&r, MIB(30), 2);
	rig_drop(&r);
	zns_dev_close(r.d);
}

/* Zones that earlier checkpoints left at any block, some with no room for a unit. */
static void continued_zones(void **state)
{
	struct zns_emu_params p = roomy(64, KIB(960));
	struct zns_dev *d = make_dev(&p);
	struct rig r;

	for (uint32_t z = 3; z < 60; z++) {
		size_t blocks = z % 4 == 1 ? 240 - rnd(16) : z % 4 == 3 ? 0 : rnd(240);

		if (blocks)
			assert_ok(put(d, z, 0, blocks * 4096, 5));
	}
	rig_init(&r, d, KIB(64), 3);
	total_over(&r, MIB(12), 4);
	rig_drop(&r);
	zns_dev_close(d);
}

/* The last write to a zone waits until the broker has refused another one: or every zone could be
 * written by the time the next one is asked for. */
static void not_full_yet(struct proxy *p, uint32_t zone, uint64_t end)
{
	const struct rig *r = p->arg;

	if (end + KIB(64) > p->dev.geo.zone_capacity)
		until(*(volatile const uint32_t *)&r->nr_busy);
}

/* Open and active limits as tight as the stripe is wide, on a device that enforces them. */
static void tight_limits(void **state)
{
	for (uint32_t width = 1; width <= 4; width++) {
		struct zns_emu_params p = roomy(96, KIB(960) + 4096 * width);
		struct proxy slow;
		struct rig r;

		p.max_open = p.max_active = width;
		unlink(dev_path);
		rig_init(&r, proxy_init(&slow, make_dev(&p)), KIB(64), width);
		slow.at_write = not_full_yet;
		slow.arg = &r;
		r.limit = width;
		r.finish_done = true;
		total_over(&r, MIB(20), width == 3 ? 0 : 2);
		assert_true(r.nr_busy > 0);
		rig_drop(&r);
		zns_dev_close(slow.inner);
	}
}

/* Small images use one lane; the zones it fills must make room for the others' first ones. */
static void tight_limits_narrow_first(void **state)
{
	struct zns_emu_params p = roomy(64, KIB(964));
	size_t nr = 0;
	struct rig r;

	p.max_open = p.max_active = 2;
	rig_init(&r, make_dev(&p), KIB(64), 2);
	r.limit = 2;
	r.finish_done = true;
	rig_start(&r);
	for (; nr < 500; nr++) {
		image_set(&im[nr], KIB(5) + nr, "s-%u", nr);
		assert_ok(feed(r.w, &im[nr], KIB(32), &err));
	}
	image_set(&im[nr], MIB(4), "b-%u", nr);
	assert_ok(feed(r.w, &im[nr], MIB(1), &err));
	rig_verify(&r, im, nr + 1);
	rig_drop(&r);
	zns_dev_close(r.d);
}

/* The manifest needs a run of its own size, in a new zone if no current one has it. */
static void large_manifest(void **state)
{
	struct zns_emu_params p = roomy(32, MIB(1));
	struct rig r;

	rig_init(&r, make_dev(&p), KIB(64), 2);
	rig_start(&r);
	for (size_t i = 0; i < MAX_IMAGES; i++) {
		image_set(&im[i], 1, "a-name-of-some-length-%u", i);
		assert_ok(feed(r.w, &im[i], 10, &err));
	}
	rig_verify(&r, im, MAX_IMAGES);
	assert_true(r.c->manifest->len > KIB(100));
	rig_drop(&r);
	zns_dev_close(r.d);
}

/* A manifest has so many checksums of pages as fit into a zone with the rest of it: the last pages
 * go without. */
static void pages_beyond_their_sums(void **state)
{
	struct zns_emu_params p = roomy(96, KIB(256));
	const uint64_t most = p.zone_capacity / 16 / ZNS_SUM_BYTES;
	struct rig r;

	rig_init(&r, make_dev(&p), KIB(64), 2);
	rig_start(&r);
	for (size_t i = 0; i < 2; i++) {
		image_set(&im[i], most / 3 * 2 * ZNS_PIECE, "pages-%u.img", i);
		im[i].pages = true;
		assert_ok(feed(r.w, &im[i], KIB(64), &err));
	}
	rig_verify(&r, im, 2);
	assert_int_equal(r.m->images[0]->piece_sums.len, most / 3 * 2 * ZNS_SUM_BYTES);
	assert_int_equal(r.m->images[1]->piece_sums.len,
			 zns_align_down(most - most / 3 * 2, KIB(64) / ZNS_PIECE) * ZNS_SUM_BYTES);
	rig_drop(&r);
	zns_dev_close(r.d);
}

static void nothing_at_all(void **state)
{
	struct zns_emu_params p = roomy(8, MIB(1));
	struct rig r;

	rig_init(&r, make_dev(&p), KIB(64), 2);
	rig_start(&r);
	rig_verify(&r, im, 0);
	rig_drop(&r);
	zns_dev_close(r.d);
}

/* --- threads --- */

#define THREADS 6
#define EACH 120

struct feeder {
	struct rig *r;
	uint32_t n;
	struct image im[EACH];
	struct zns_err e;
	int ret;
};

/* A segment that begins where an image is cut is not of it any more. */
static void cut_between_segments(void **state)
{
	struct zns_wimage i = { .pb = ZNS_PB__IMAGE__INIT };

	for (uint64_t n = 0; n < 3; n++)
		image_add_segment(&i, n * KIB(64), 1)->len = KIB(64);
	image_cut(&i, KIB(128));
	assert_int_equal(i.pb.n_segments, 2);
	assert_int_equal(i.pb.segments[1]->len, KIB(64));
	image_cut(&i, KIB(96));
	assert_int_equal(i.pb.n_segments, 2);
	assert_int_equal(i.pb.segments[1]->len, KIB(32));
	image_cut(&i, 0);
	assert_int_equal(i.pb.n_segments, 0);
	free(i.pb.segments);
}

static void *feeder(void *arg)
{
	struct feeder *f = arg;
	uint64_t rng = 1000 + f->n;

	for (uint32_t i = 0; i < EACH && !f->ret; i++) {
		image_set(&f->im[i], i % 10 == 9 ? rnd_of(&rng, MIB(1)) : rnd_of(&rng, KIB(31)),
			  "t-%u", f->n * EACH + i);
		if (i % 10 == 5) {
			int fd = memfd_of(&f->im[i]);
			struct zns_wimage *w;

			f->ret = zns_writer_image(f->r->w, f->im[i].name, false, &w, &f->e);
			if (!f->ret)
				f->ret = zns_wimage_from_fd(w, fd, &f->e);
			if (!f->ret)
				f->ret = zns_wimage_seal(w, &f->e);
			close(fd);
		} else {
			f->ret = feed(f->r->w, &f->im[i], 1 + rnd_of(&rng, KIB(40)), &f->e);
		}
	}
	return NULL;
}

/* Images from several threads at once: packed ones, wide ones, zones that roll meanwhile, few
 * workers and many. */
/*
 * Lanes come while an image is being written, in any state of the writer: what is read back is what
 * was given, and the new zones took their part of it.
 */
struct gainer {
	struct rig *r;
	uint32_t nr, first; /* zones, the first one: of groups width … */
	atomic_uint came; /* gained, or refused */
	uint32_t got, refused;
	struct proxy p;
};

#define BETWEEN 150 /* writes between two gains */

static void after_a_gain(struct proxy *p, uint32_t zone, uint64_t end)
{
	struct gainer *g = p->arg;

	until(atomic_load(&g->came) >=
	      zns_min((uint32_t)atomic_load(&p->written) / BETWEEN, g->nr));
}

static void *gain(void *arg)
{
	struct gainer *g = arg;

	for (uint32_t i = 0; i < g->nr; i++) {
		struct zns_zone_slot slot = { .zone = g->first + i, .group = g->r->width + i };
		struct zns_err e = ZNS_ERR_INIT;
		struct zns_zone z;
		bool waits;

		until(atomic_load(&g->p.written) >= (int)(BETWEEN * (i + 1)) - 8);
		if (zns_dev_report(g->r->d, slot.zone, 1, &z, &e))
			break;
		slot.start = z.wp;
		slot.capacity = z.capacity;
		g->r->given[slot.zone] = true;
		zns_writer_wants(g->r->w, &waits);
		zns_writer_told(g->r->w, i % g->r->width, 1 + i % 3);
		zns_writer_crowded(g->r->w, i % 2);
		if (zns_writer_gain(g->r->w, &slot, 1 + i % 2, &e))
			g->refused++;
		else
			g->got++;
		atomic_fetch_add(&g->came, 1);
	}
	return NULL;
}

static void come_in_between(uint32_t width)
{
	struct zns_emu_params p = roomy(200, KIB(960));
	struct gainer g = { .nr = 3, .first = 190 };
	struct zns_err e = ZNS_ERR_INIT;
	uint32_t used = 0;
	pthread_t t;
	struct rig r;

	rig_init(&r, proxy_init(&g.p, make_dev(&p)), KIB(64), width);
	g.p.at_write = after_a_gain;
	g.p.arg = &g;
	r.last = g.first; /* the rest is what it gains */
	r.zone_mibps = 1; /* slow, as told: so all weights change, again and again */
	rig_start(&r);
	g.r = &r;
	image_set(&im[0], MIB(40) + 12345, "pages-%u.img", 1);
	image_set(&im[1], MIB(20), "pages-%u.img", 2);
	assert_int_equal(pthread_create(&t, NULL, gain, &g), 0);
	assert_ok(feed(r.w, &im[0], KIB(200), &err));
	assert_ok(feed(r.w, &im[1], KIB(64), &err));
	pthread_join(t, NULL);
	assert_int_equal(g.got, 3);
	/* a zone twice, a group twice, one that is not there, none at all */
	assert_int_equal(zns_writer_gain(r.w, &(struct zns_zone_slot){ 190, 40, 0, KIB(960) }, 1,
					 &e),
			 -EEXIST);
	assert_int_equal(zns_writer_gain(r.w, &(struct zns_zone_slot){ 195, 0, 0, KIB(960) }, 1,
					 &e),
			 -EEXIST);
	assert_int_equal(zns_writer_gain(r.w, &(struct zns_zone_slot){ 200, 41, 0, KIB(960) }, 1,
					 &e),
			 -EPROTO);
	assert_int_equal(
		zns_writer_gain(r.w, &(struct zns_zone_slot){ 195, 41, KIB(940), KIB(960) }, 1, &e),
		-EINVAL);
	rig_verify(&r, im, 2);
	for (size_t i = 0; i < r.c->n_zones; i++)
		used += r.c->zones[i]->zone >= g.first;
	print_message("width %u: %u of %u gained zones were written\n", width, used, g.got);
	rig_drop(&r);
	zns_dev_close(g.p.inner);
}

static void lanes_come_to_one(void **state)
{
	come_in_between(1);
}

static void lanes_come_to_four(void **state)
{
	come_in_between(4);
}

static void threads(void **state)
{
	static struct feeder f[THREADS];

	for (uint32_t round = 0; round < 6; round++) {
		struct zns_emu_params p = roomy(128, KIB(960));
		pthread_t t[THREADS];
		struct rig r;

		unlink(dev_path);
		rig_init(&r, make_dev(&p), KIB(64), 1 + round % 4);
		r.workers = round < 3 ? 1 + round : 0;
		if (round & 1) {
			r.limit = r.width;
			r.finish_done = true;
		}
		rig_start(&r);
		memset(f, 0, sizeof(f));
		for (uint32_t n = 0; n < THREADS; n++) {
			f[n].r = &r;
			f[n].n = n;
			assert_int_equal(pthread_create(&t[n], NULL, feeder, &f[n]), 0);
		}
		for (uint32_t n = 0; n < THREADS; n++)
			pthread_join(t[n], NULL);
		for (uint32_t n = 0; n < THREADS; n++) {
			if (f[n].ret)
				fail_msg("thread %u: %d %s", n, f[n].ret, f[n].e.msg);
			memcpy(&im[n * EACH], f[n].im, sizeof(f[n].im));
		}
		rig_verify(&r, im, THREADS * EACH);
		rig_drop(&r);
		zns_dev_close(r.d);
	}
}

/* --- what it refuses --- */

/* Pages here, everything else there, also when both run out of zones and images come mixed. */
static void metadata_apart(void **state)
{
	struct zns_emu_params p = roomy(64, KIB(960));
	const uint32_t group = 7;
	struct image set[40];
	struct rig r;

	rig_init(&r, make_dev(&p), KIB(64), 3);
	r.metadata_group = &group;
	rig_start(&r);
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(set); i++) {
		image_set(&set[i], i % 3 ? KIB(300) + i * 5000 : i * 1000, "im%llu", i);
		set[i].pages = i % 3 == 1;
		assert_ok(feed(r.w, &set[i], KIB(100), &err));
	}
	rig_verify(&r, set, ZNS_ARRAY_SIZE(set));
	for (size_t i = 0; i < r.m->n_images; i++) {
		const ZnsPb__Image *mi = r.m->images[i];

		for (size_t s = 0; s < mi->n_segments; s++)
			for (size_t e = 0; e < mi->segments[s]->n_extents; e++)
				assert_int_equal(r.group_of[mi->segments[s]->extents[e]->zone] ==
							 group,
						 !set[i].pages);
	}
	assert_int_equal(r.group_of[r.c->manifest->zone], group);
	rig_drop(&r);
	zns_dev_close(r.d);
}

static void parameters(void **state)
{
	struct zns_emu_params ep = roomy(8, MIB(1));
	uint32_t groups[2] = { 0, 1 }, weights[2] = { 1, 1 };
	struct zns_writer_params p = { .dev = make_dev(&ep),
				       .unit = KIB(64),
				       .nr_groups = 2,
				       .groups = groups,
				       .weights = weights,
				       .zone_get = rig_zone_get };
	const uint32_t bad_units[] = {
		0, 4096, KIB(64) - 4096, KIB(64) + 512, MIB(4) + 4096, UINT32_MAX
	};
	struct zns_writer *w = NULL;

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(bad_units); i++) {
		p.unit = bad_units[i];
		assert_fails(zns_writer_new(&p, &w, &err), -EINVAL, "64K to 4M");
	}
	p.unit = KIB(64);
	p.nr_groups = 0;
	assert_fails(zns_writer_new(&p, &w, &err), -EINVAL, "1 to 256");
	p.nr_groups = 257;
	assert_fails(zns_writer_new(&p, &w, &err), -EINVAL, "1 to 256");
	p.nr_groups = 2;
	weights[1] = 0;
	assert_fails(zns_writer_new(&p, &w, &err), -EINVAL, "weight");
	weights[1] = 17;
	assert_fails(zns_writer_new(&p, &w, &err), -EINVAL, "weight");
	assert_null(w);
	zns_writer_free(NULL);
	zns_dev_close(p.dev);
}

static void misuse(void **state)
{
	struct zns_emu_params p = roomy(16, MIB(1));
	struct zns_dev *d = make_dev(&p);
	struct iovec v = { &p, 100 };
	struct zns_wimage *i, *again;
	char byte = 0;

	for (int what = 0; what < 6; what++) {
		struct zns_err e = ZNS_ERR_INIT;
		struct rig r;

		rig_init(&r, d, KIB(64), 2);
		rig_start(&r);
		assert_ok(zns_writer_image(r.w, "a", false, &i, &err));
		assert_fails(zns_writer_image(r.w, "a", false, &again, &err), -EEXIST, "image a");
		switch (what) {
		case 0: /* never closed: not a checkpoint */
			assert_fails(finish_raw(&r, &err), -EBUSY, "never closed");
			break;
		case 1:
			assert_ok(zns_wimage_seal(i, &err));
			assert_fails(zns_wimage_data(i, &byte, 1, &err), -EINVAL, "has ended");
			break;
		case 2:
			assert_ok(zns_wimage_seal(i, &err));
			assert_fails(zns_wimage_mem(i, getpid(), &v, 1, &err), -EINVAL,
				     "has ended");
			break;
		case 3: /* a settled short unit is the last one */
			assert_ok(zns_wimage_mem(i, getpid(), &v, 1, &err));
			assert_ok(zns_wimage_settle(i, &err));
			assert_fails(zns_wimage_mem(i, getpid(), &v, 1, &err), -EINVAL,
				     "has ended");
			break;
		case 4:
			assert_ok(zns_wimage_mem(i, getpid(), &v, 1, &err));
			assert_fails(zns_wimage_data(i, &byte, 1, &err), -EINVAL,
				     "cannot be appended");
			break;
		default:
			assert_ok(zns_wimage_mem(i, getpid(), &v, 1, &err));
			assert_fails(zns_wimage_mem(i, getpid() + 1, &v, 1, &err), -EINVAL,
				     "cannot be appended");
		}
		/* an image that lacks bytes can never be committed */
		assert_int_equal(zns_writer_error(r.w, &e), what ? -EINVAL : -EBUSY);
		if (what)
			assert_int_equal(finish_raw(&r, &err), -EINVAL);
		rig_drop(&r);
	}
	zns_dev_close(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(every_size),
		T(padding_is_zero),
		T(many_small),
		T(full_zones_are_replaced),
		T(weights_shape_the_stripe),
		T(continued_zones),
		T(tight_limits),
		T(tight_limits_narrow_first),
		T(large_manifest),
		T(pages_beyond_their_sums),
		T(nothing_at_all),
		T(cut_between_segments),
		T(threads),
		T(lanes_come_to_one),
		T(lanes_come_to_four),
		T(metadata_apart),
		T(parameters),
		T(misuse),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
