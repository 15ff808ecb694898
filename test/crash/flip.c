/* SPDX-License-Identifier: GPL-2.0-only */
/* Damages one byte at a time: see flip.h. */
#include <stdlib.h>
#include <string.h>
#include "check.h"
#include "flip.h"
#include "zns/frame.h"
#include "zns/layout.h"

#define SHOW 5

const char *const flip_place_name[] = { "data", "manifest", "footer", "log" };

struct range {
	uint32_t zone;
	uint64_t off, len;
};

struct ranges {
	struct range *v;
	size_t nr, max;
	uint64_t bytes;
};

static void add(struct ranges *r, uint32_t zone, uint64_t off, uint64_t len)
{
	if (r->nr == r->max) {
		r->max = r->max ? 2 * r->max : 64;
		r->v = realloc(r->v, r->max * sizeof(*r->v));
		if (!r->v)
			abort();
	}
	r->v[r->nr++] = (struct range){ zone, off, len };
	r->bytes += len;
}

static void pick(const struct ranges *r, uint64_t *rng, uint32_t *zone, uint64_t *off)
{
	uint64_t n = load_rnd(rng, r->bytes);

	for (size_t i = 0; i < r->nr; i++) {
		if (n < r->v[i].len) {
			*zone = r->v[i].zone;
			*off = r->v[i].off + n;
			return;
		}
		n -= r->v[i].len;
	}
}

/* Length of header and payload of the frame at @off; 0 if there is none. */
static uint64_t frame_len(struct zns_dev *dev, uint32_t zone, uint64_t off, uint64_t end)
{
	cleanup_free uint8_t *buf = malloc(end - off);
	struct zns_frame f;

	if (!buf || zns_dev_read(dev, zone, off, buf, end - off, NULL) ||
	    zns_frame_parse(buf, end - off, &f, NULL))
		return 0;
	return (uint64_t)(f.payload - buf) + f.len;
}

static int data_ranges(struct zns_dev *dev, const ZnsPb__Checkpoint *c, struct ranges *r,
		       struct zns_err *err)
{
	uint32_t block = dev->geo.block_size;
	ZnsPb__Manifest *m;
	uint64_t footer;
	int ret = zns_manifest_read(dev, c, &m, err);

	if (ret)
		return ret;
	for (size_t i = 0; i < m->n_images && !ret; i++)
		for (size_t s = 0; s < m->images[i]->n_segments && !ret; s++) {
			struct zns_seg seg;
			struct zns_place p;

			ret = zns_seg_init(&seg, m->images[i]->segments[s], m->images[i]->unit,
					   err);
			for (uint64_t k = 0; !ret && k * seg.unit < seg.len; k++) {
				zns_seg_place(&seg, k, &p);
				add(&r[FLIP_DATA], p.zone, p.off,
				    zns_min(seg.len - k * seg.unit, (uint64_t)seg.unit));
			}
			zns_seg_fini(&seg);
		}
	zns_pb__manifest__free_unpacked(m, NULL);
	add(&r[FLIP_MANIFEST], c->manifest->zone, c->manifest->start, c->manifest->len);
	footer = c->manifest->start + zns_align_up(c->manifest->len, block);
	add(&r[FLIP_FOOTER], c->manifest->zone, footer,
	    frame_len(dev, c->manifest->zone, footer, footer + block));
	return ret;
}

/* Every record of the newest generation. */
static void log_ranges(struct trace *t, struct zns_dev *dev, uint64_t generation, struct ranges *r)
{
	uint32_t block = dev->geo.block_size;
	struct zns_zone z;

	for (uint32_t i = 0; i < t->nr_meta; i++) {
		if (zns_dev_report(dev, i, 1, &z, NULL))
			continue;
		for (uint64_t off = 0; off < z.wp;) {
			cleanup_free uint8_t *buf = malloc(z.wp - off);
			struct zns_frame f;

			if (zns_dev_read(dev, i, off, buf, z.wp - off, NULL) ||
			    zns_frame_parse(buf, z.wp - off, &f, NULL))
				break;
			if (f.generation == generation)
				add(r, i, off, (uint64_t)(f.payload - buf) + f.len);
			off += zns_frame_size(f.len, block);
		}
	}
}

static void judge(struct trace *t, const struct load *l, const uint32_t *pos, enum flip_place place,
		  uint32_t zone, uint64_t off, uint8_t bit, struct flip_count *sum)
{
	struct zns_dev *dev = view_new(t, pos);
	struct zns_err err = ZNS_ERR_INIT;
	uint64_t bad = 0, *what = &sum->harmless[place];
	struct zns_store *s;

	view_flip(dev, zone, off, bit);
	sum->flips[place]++;
	if (zns_store_open(dev, ZNS_STORE_RDONLY, &s, &err)) {
		sum->refused[place]++;
		dev->ops->close(dev);
		return;
	}
	for (uint32_t i = 0; i < l->nr; i++) {
		const struct load_ckpt *k = &l->ckpt[i];
		const ZnsPb__Checkpoint *c = k->begun == LOAD_NEVER ? NULL :
								      zns_store_find(s, k->id);
		bool must = k->acked != LOAD_NEVER && k->rm_begun == LOAD_NEVER, wrong;

		if (must != !!c) {
			what = &sum->lost[place];
			zns_fail(&err, -EFAULT,
				 must ? "a checkpoint is gone" : "a removed checkpoint is back");
		} else if (c && check_checkpoint(dev, k, c, &wrong, &err)) {
			what = wrong ? &sum->wrong[place] : &sum->noticed[place];
		}
		if (what == &sum->lost[place] || what == &sum->wrong[place])
			break;
	}
	(*what)++;
	for (int p = 0; p < FLIP_PLACES; p++)
		bad += sum->wrong[p] + sum->lost[p];
	if ((what == &sum->lost[place] || what == &sum->wrong[place]) && bad <= SHOW)
		printf("FAIL %s of zone %u, byte %llu, bit %u: %s\n", flip_place_name[place], zone,
		       (unsigned long long)off, bit, err.msg);
	zns_store_close(s);
	dev->ops->close(dev);
}

int flip_run(struct trace *t, const struct load *l, uint64_t nr, uint64_t *rng,
	     struct flip_count *sum, struct zns_err *err)
{
	cleanup_free uint32_t *pos = calloc(t->dev.geo.nr_zones, sizeof(*pos));
	struct ranges r[FLIP_PLACES] = { 0 };
	struct zns_store *s;
	struct zns_dev *dev;
	int ret;

	for (uint32_t z = 0; z < t->dev.geo.nr_zones; z++)
		pos[z] = t->h[z].nr - 1;
	dev = view_new(t, pos);
	ret = zns_store_open(dev, ZNS_STORE_RDONLY, &s, err);
	if (!ret) {
		for (size_t i = 0; i < zns_store_nr_checkpoints(s) && !ret; i++)
			ret = data_ranges(dev, zns_store_checkpoint(s, i), r, err);
		log_ranges(t, dev, zns_store_generation(s), &r[FLIP_LOG]);
		zns_store_close(s);
	}
	dev->ops->close(dev);
	for (uint64_t n = 0; n < nr && !ret; n++) {
		enum flip_place place = (enum flip_place)load_rnd(rng, FLIP_PLACES);
		uint64_t off = 0;
		uint32_t zone = 0;

		if (!r[place].bytes)
			continue;
		pick(&r[place], rng, &zone, &off);
		judge(t, l, pos, place, zone, off, (uint8_t)load_rnd(rng, 8), sum);
	}
	for (int p = 0; p < FLIP_PLACES; p++)
		free(r[p].v);
	return ret;
}
