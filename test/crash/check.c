/* SPDX-License-Identifier: GPL-2.0-only */
/* Checks the state after a cut: see check.h. */
#include <stdlib.h>
#include <string.h>
#include "check.h"
#include "zns/layout.h"

static int broken(struct zns_err *err, const struct load_ckpt *k, const char *what)
{
	char id[ZNS_UUID_STR], why[ZNS_ERR_MAX] = "";

	if (err->code)
		snprintf(why, sizeof(why), ": %s", err->msg);
	return zns_fail(err, -EFAULT, "checkpoint %s of %s: %s%s", zns_uuid_format(k->id, id),
			k->container, what, why);
}

struct opened {
	const struct zns_crypt *crypt; /* NULL: plain */
	uint32_t image; /* its number */
};

/* Compares one unit on the device with its checksum and with what was dumped. */
static int check_unit(struct zns_dev *dev, const struct opened *o, const struct load_image *img,
		      const ZnsPb__Image *pb, const struct zns_place *p, uint64_t off,
		      struct zns_err *err)
{
	uint32_t block = dev->geo.block_size,
		 len = (uint32_t)zns_min(img->len - off, (uint64_t)pb->unit);
	uint64_t from = zns_align_down(p->off, block), to = zns_align_up(p->off + len, block);
	static uint8_t buf[ZNS_STRIPE_UNIT_MAX + 8192];
	int ret = zns_dev_read(dev, p->zone, from, buf, to - from, err);

	if (ret)
		return ret;
	if (zns_unit_csum(pb, buf + (p->off - from), len) != pb->csums[off / pb->unit])
		return zns_fail(err, -EBADMSG, "%s: wrong checksum at %llu", img->name,
				(unsigned long long)off);
	if (o->crypt &&
	    zns_crypt_open_unit(o->crypt, o->image, pb->name, pb->unit_base + off / pb->unit,
				buf + (p->off - from), len,
				pb->tags.data + off / pb->unit * ZNS_TAG_BYTES, err))
		return -EBADMSG;
	if (memcmp(buf + (p->off - from), img->data + off, len))
		return zns_fail(err, -EFAULT, "%s reads as something else, with a good checksum",
				img->name);
	return 0;
}

static int check_image(struct zns_dev *dev, const struct opened *o, const struct load_image *img,
		       const ZnsPb__Image *pb, struct zns_err *err)
{
	uint64_t off = 0;
	int ret = 0;

	if (pb->size != img->len)
		return zns_fail(err, -EFAULT, "%s has %llu bytes, not %u", img->name,
				(unsigned long long)pb->size, img->len);
	for (size_t s = 0; s < pb->n_segments && !ret; s++) {
		struct zns_seg seg;
		struct zns_place p;

		ret = zns_seg_init(&seg, pb->segments[s], pb->unit, err);
		for (uint64_t k = 0; !ret && k * pb->unit < seg.len; k++) {
			zns_seg_place(&seg, k, &p);
			ret = check_unit(dev, o, img, pb, &p, seg.off + k * pb->unit, err);
		}
		off += pb->segments[s]->len;
		zns_seg_fini(&seg);
	}
	return !ret && off != img->len ? zns_fail(err, -EFAULT, "%s has holes", img->name) : ret;
}

/* Compares the runs of a composed image, in its parts, which are checked like any image. */
static int check_composed(const struct load_ckpt *k, const struct load_image *img,
			  const ZnsPb__Manifest *m, size_t n, struct zns_err *err)
{
	const ZnsPb__Image *pb = m->images[n];
	struct zns_map_reader r;
	struct zns_image_run run;
	uint64_t off = 0;
	uint32_t runs;
	int ret;

	if (!pb->map || pb->n_segments)
		return zns_fail(err, -EFAULT, "%s is not composed", img->name);
	ret = zns_map_check(m, n, LOAD_RUNS_MAX, &runs, err);
	if (!ret)
		ret = zns_map_open(&r, pb->map, err);
	if (ret)
		return ret;
	while ((ret = zns_map_next(&r, &run)) == 1) {
		const char *name = m->images[pb->map->from[run.source]]->name;
		uint32_t i = 0;

		while (i < LOAD_PARTS && strcmp(k->img[i].name, name))
			i++;
		if (i == LOAD_PARTS || off + run.len > img->len ||
		    memcmp(img->data + off, k->img[i].data + run.at, run.len))
			break;
		off += run.len;
	}
	zns_map_close(&r);
	return ret || off != img->len || pb->size != img->len ?
		       zns_fail(err, -EFAULT, "%s is composed of something else", img->name) :
		       0;
}

static int check_images(struct zns_dev *dev, const struct load_ckpt *k, const ZnsPb__Manifest *m,
			struct zns_err *err)
{
	struct opened o = { NULL, 0 };
	struct zns_crypt *c = NULL;
	uint8_t tag[ZNS_TAG_BYTES];
	int ret = 0;

	if (k->encrypted != (m->checkpoint->crypt != NULL))
		return zns_fail(err, -EFAULT, "it is encrypted, or it is not");
	if (k->encrypted) {
		ret = zns_crypt_open(load_master(), k->id, m->checkpoint->crypt, &c, err);
		if (!ret)
			ret = zns_crypt_seal_manifest(c, m, tag, err);
		if (!ret && (!m->has_seal || memcmp(tag, m->seal.data, sizeof(tag))))
			ret = zns_fail(err, -EBADMSG, "its seal does not fit");
	}
	o.crypt = c;
	for (uint32_t i = 0; i < k->nr_img && !ret; i++) {
		const ZnsPb__Image *pb = NULL;

		for (size_t n = 0; n < m->n_images; n++)
			if (!strcmp(m->images[n]->name, k->img[i].name)) {
				pb = m->images[n];
				o.image = (uint32_t)n;
			}
		if (!pb)
			ret = zns_fail(err, -EFAULT, "%s is missing", k->img[i].name);
		else if (pb->part != k->img[i].part)
			ret = zns_fail(err, -EFAULT, "%s is a part, or not", k->img[i].name);
		else if (k->img[i].nr_runs)
			ret = check_composed(k, &k->img[i], m, o.image, err);
		else
			ret = check_image(dev, &o, &k->img[i], pb, err);
	}
	zns_crypt_free(c);
	return ret;
}

int check_checkpoint(struct zns_dev *dev, const struct load_ckpt *k, const ZnsPb__Checkpoint *c,
		     bool *wrong, struct zns_err *err)
{
	ZnsPb__Manifest *m = NULL;
	int ret = zns_manifest_read(dev, c, &m, err);

	if (!ret && m->n_images != k->nr_img)
		ret = zns_fail(err, -EFAULT, "%zu images, not %u", m->n_images, k->nr_img);
	if (!ret)
		ret = check_images(dev, k, m, err);
	if (m)
		zns_pb__manifest__free_unpacked(m, NULL);
	*wrong = ret == -EFAULT;
	return ret ? broken(err, k, "it is listed and cannot be read") : 0;
}

/* @extra: one more checkpoint that must be there, or NULL. @dev: NULL checks only the catalogue. */
static int check_catalogue(struct zns_dev *dev, const struct zns_store *s, const struct load *l,
			   uint32_t epoch, const struct load_ckpt *extra, struct zns_err *err)
{
	size_t seen = 0;
	int ret = 0;

	for (uint32_t i = 0; i < l->nr && !ret; i++) {
		const struct load_ckpt *k = &l->ckpt[i];
		const ZnsPb__Checkpoint *c = k->begun == LOAD_NEVER ? NULL :
								      zns_store_find(s, k->id);
		bool must = k->acked <= epoch && k->rm_begun > epoch,
		     may = k->begun <= epoch && k->rm_acked > epoch;

		if (must && !c)
			return broken(err, k, "it was acknowledged and is gone");
		if (c && !may)
			return broken(err, k,
				      k->rm_acked <= epoch ? "it was removed and is back" :
							     "it is visible before its commit");
		if (c) {
			seen++;
			ret = dev ? check_checkpoint(dev, k, c, &(bool){ false }, err) : 0;
		}
	}
	if (!ret && extra) {
		const ZnsPb__Checkpoint *c = zns_store_find(s, extra->id);

		ret = c ? check_checkpoint(dev, extra, c, &(bool){ false }, err) :
			  broken(err, extra, "the dump after the cut is gone");
		seen++;
	}
	if (!ret && seen != zns_store_nr_checkpoints(s))
		ret = zns_fail(err, -EFAULT, "%zu checkpoints are listed, %zu are known",
			       zns_store_nr_checkpoints(s), seen);
	return ret;
}

/* Checks that no metadata zone has the wrapped key of a checkpoint whose removal with its key
 * was acknowledged. */
static int check_erased(struct zns_dev *dev, const struct zns_store *s, const struct load *l,
			uint32_t epoch, struct zns_err *err)
{
	for (uint32_t i = 0; i < l->nr; i++) {
		const struct load_ckpt *k = &l->ckpt[i];

		if (!k->secure || k->rm_acked > epoch)
			continue;
		for (uint32_t z = 0; z < zns_store_nr_meta(s); z++) {
			cleanup_free uint8_t *buf = NULL;
			struct zns_zone rep;

			if (zns_dev_report(dev, z, 1, &rep, err))
				return err->code;
			buf = rep.wp ? aligned_alloc(4096, zns_align_up(rep.wp, 4096)) : NULL;
			if (buf && !zns_dev_read(dev, z, 0, buf, rep.wp, NULL) &&
			    memmem(buf, rep.wp, k->wrapped, ZNS_WRAPPED_BYTES))
				return broken(err, k, "its key was erased and is back");
		}
	}
	return 0;
}

static int check_readonly(struct zns_dev *dev, const struct load *l, uint32_t epoch,
			  const struct load_ckpt *extra, struct zns_err *err)
{
	struct zns_store *s;
	int ret = zns_store_open(dev, ZNS_STORE_RDONLY, &s, err);

	if (ret)
		return zns_wrap(err, "the store does not open");
	ret = check_catalogue(dev, s, l, epoch, extra, err);
	if (!ret && dev)
		ret = check_erased(dev, s, l, epoch, err);
	zns_store_close(s);
	return ret;
}

static int check_leaks(struct znsd *d, struct zns_err *err)
{
	for (uint32_t i = 0; i < d->nr_zones; i++)
		if (!d->zones[i].meta && !zone_live(d, i) && d->zones[i].z.state != ZNS_ZONE_EMPTY)
			return zns_fail(err, -EFAULT,
					"zone %u leaks: %s, no live data, and not reset", i,
					zns_zone_state_name(d->zones[i].z.state));
	return 0;
}

static const struct load_ckpt *next_checkpoint(void)
{
	static struct load_ckpt k;

	if (!k.nr_img) {
		strcpy(k.container, "next");
		k.nr_img = 2;
		strcpy(k.img[0].name, "pages-1.img");
		k.img[0].pages = true;
		k.img[0].len = 70000;
		strcpy(k.img[1].name, "core-1.img");
		k.img[1].len = 500;
		for (uint32_t i = 0; i < k.nr_img; i++)
			load_fill(&k.img[i], 4711 + i);
	}
	return &k;
}

static int check_goes_on(struct zns_dev *dev, const struct load *l, uint32_t epoch,
			 struct zns_err *err)
{
	struct load_ckpt next = *next_checkpoint();
	struct znsd d;
	bool dumped;
	int ret;

	ret = broker_open(dev, &d, err);
	if (ret) {
		broker_close(&d);
		return zns_wrap(err, "the broker does not start");
	}
	ret = check_catalogue(NULL, d.store, l, epoch, NULL, err);
	broker_idle(&d);
	if (!ret)
		ret = check_leaks(&d, err);
	dumped = false;
	if (!ret) {
		ret = load_dump(&d, &next, 100, err);
		/* Zones are finished to make room: a client would wait for that. */
		for (int i = 0; ret == -EBUSY && i < 8; i++) {
			broker_idle(&d);
			ret = load_dump(&d, &next, 100, err);
		}
		dumped = !ret;
		/* The store is full of data that must be kept, so the error must say so. */
		if (ret == -ENOSPC)
			ret = 0;
		else if (ret)
			zns_wrap(err, "the next dump");
	}
	broker_close(&d);
	return ret ? ret : check_readonly(dev, l, epoch, dumped ? &next : NULL, err);
}

int check_state(struct trace *t, const struct load *l, uint32_t epoch, const uint32_t *pos,
		struct zns_err *err)
{
	struct zns_dev *dev = view_new(t, pos);
	int ret = check_readonly(dev, l, epoch, NULL, err);

	if (!ret)
		ret = check_goes_on(dev, l, epoch, err);
	dev->ops->close(dev);
	return ret;
}
