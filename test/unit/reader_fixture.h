/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef READER_FIXTURE_H
#define READER_FIXTURE_H
/* For test_reader*.c: a checkpoint with images of all sizes, and callers that wait for a read. */
#include "stripe_fixture.h"

#define NR_IMAGES 12

static struct image im[NR_IMAGES];
static struct rig rig;

/* Makes a checkpoint of some images: packed, striped, with several segments. */
static inline void make_checkpoint(uint32_t unit, uint32_t width, bool weighted)
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

static inline void drop_checkpoint(void)
{
	struct zns_dev *d = rig.d;

	rig_drop(&rig);
	zns_dev_close(d);
}

/* Chooses a range of an image, mostly around borders of units. */
static inline void random_range(const struct image *i, uint32_t unit, uint64_t *rng, uint64_t *off,
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

/* Reads end in other threads. */
struct done {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	unsigned nr;
	int code;
	char msg[ZNS_ERR_MAX];
};

static struct done done_sync = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, "" };

static inline void on_done(void *arg, const struct zns_err *e)
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

static inline struct done *done_new(void)
{
	done_sync.nr = 0;
	done_sync.code = 0;
	return &done_sync;
}

static inline int done_wait(struct done *d, unsigned nr)
{
	pthread_mutex_lock(&d->lock);
	while (d->nr < nr)
		pthread_cond_wait(&d->cond, &d->lock);
	assert_int_equal(d->nr, nr);
	pthread_mutex_unlock(&d->lock);
	return d->code;
}

/* Offset in the device's file of a byte of an image. */
static inline off_t file_pos(const struct zns_rimage *i, const ZnsPb__Image *pb, uint64_t off)
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

static inline void flip(off_t pos)
{
	struct emu *e = (struct emu *)rig.d;
	uint8_t b;

	assert_int_equal(pread(e->fd, &b, 1, pos), 1);
	b ^= 0x40;
	assert_int_equal(pwrite(e->fd, &b, 1, pos), 1);
	assert_int_equal(fsync(e->fd), 0);
}

#endif
