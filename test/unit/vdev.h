/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TEST_VDEV_H
#define TEST_VDEV_H
/*
 * A zoned device in virtual time (vtime.h): the emulator's timing model says when a command is
 * done, and the calling thread sleeps until then. It keeps write pointers and no data but what is
 * not VDEV_WORD, that is manifests: so all task memory written to it must consist of that word.
 */
#include "emu_common.h"
#include "vtime.h"
#include "zns/layout.h"
#include "zns/store.h"

#define VDEV_WORD UINT64_C(0x5a4e5320766465f7)

struct vdev_run { /* bytes kept */
	struct vdev_run *next;
	uint32_t zone;
	uint64_t off;
	size_t len;
	uint8_t data[];
};

struct vdev {
	struct zns_dev dev;
	struct zns_dev *model;
	struct zns_emu_params p;
	uint64_t *wp;
	struct vdev_run *runs;
	uint32_t in_flight, most_in_flight;
	struct {
		uint64_t ns;
		size_t len;
	} * log; /* of submissions, if the test made room for it */
	size_t nr_log, max_log;
};

static inline void vdev_model(struct vdev *v, enum zns_emu_op op, uint32_t zone, size_t len)
{
	uint64_t done = 0;

	assert_ok(zns_emu_model_submit(v->model, op, zone, len, vt.now_ns, &done, &err));
	if (v->nr_log < v->max_log) {
		v->log[v->nr_log].ns = vt.now_ns;
		v->log[v->nr_log++].len = len;
	}
	v->in_flight++;
	v->most_in_flight = zns_max(v->most_in_flight, v->in_flight);
	vt_sleep_until(done);
	v->in_flight--;
}

static inline int vdev_report(struct zns_dev *d, uint32_t first, uint32_t nr, struct zns_zone *out,
			      struct zns_err *e)
{
	struct vdev *v = (struct vdev *)d;

	for (uint32_t i = 0; i < nr; i++) {
		uint64_t wp = v->wp[first + i], cap = d->geo.zone_capacity;

		out[i] = (struct zns_zone){ .index = first + i, .wp = wp, .capacity = cap };
		out[i].state = !wp ? ZNS_ZONE_EMPTY : wp == cap ? ZNS_ZONE_FULL : ZNS_ZONE_IMP_OPEN;
	}
	return 0;
}

static inline bool vdev_plain(const void *buf, size_t len)
{
	const uint64_t *w = buf;

	for (size_t i = 0; i < len / 8; i++)
		if (w[i] != VDEV_WORD)
			return false;
	return true;
}

static inline int vdev_write(struct zns_dev *d, uint32_t zone, uint64_t off, const void *buf,
			     size_t len, struct zns_err *e)
{
	struct vdev *v = (struct vdev *)d;

	if (off != v->wp[zone] || off + len > d->geo.zone_capacity || !len ||
	    len % d->geo.block_size || len > d->geo.max_io_bytes)
		return zns_fail(e, -EIO, "zone %u: %zu bytes at %llu, the write pointer is at %llu",
				zone, len, (unsigned long long)off,
				(unsigned long long)v->wp[zone]);
	v->wp[zone] += len;
	if (!vdev_plain(buf, len)) {
		struct vdev_run *r = malloc(sizeof(*r) + len);

		*r = (struct vdev_run){ v->runs, zone, off, len };
		memcpy(r->data, buf, len);
		v->runs = r;
	}
	vdev_model(v, ZNS_EMU_OP_WRITE, zone, len);
	return 0;
}

static inline int vdev_read(struct zns_dev *d, uint32_t zone, uint64_t off, void *buf, size_t len,
			    struct zns_err *e)
{
	struct vdev *v = (struct vdev *)d;
	uint64_t *w = buf;

	if (off + len > v->wp[zone])
		return zns_fail(e, -ENODATA, "zone %u: a read beyond the write pointer", zone);
	for (size_t i = 0; i < len / 8; i++)
		w[i] = VDEV_WORD;
	for (struct vdev_run *r = v->runs; r; r = r->next) {
		uint64_t from = zns_max(off, r->off), to = zns_min(off + len, r->off + r->len);

		if (r->zone == zone && from < to)
			memcpy((uint8_t *)buf + (from - off), r->data + (from - r->off), to - from);
	}
	if (vt_self)
		vdev_model(v, ZNS_EMU_OP_READ, zone, len);
	return 0;
}

static inline int vdev_flush(struct zns_dev *d, struct zns_err *e)
{
	vdev_model((struct vdev *)d, ZNS_EMU_OP_FLUSH, 0, 0);
	return 0;
}

/* In the directory of the test; the timing must be on. */
static inline struct zns_dev *vdev_make(struct vdev *v, const struct zns_emu_params *p)
{
	static const struct zns_dev_ops ops = { .name = "vdev",
						.report = vdev_report,
						.write = vdev_write,
						.read = vdev_read,
						.flush = vdev_flush };
	struct zns_emu_params sparse = *p;

	memset(v, 0, sizeof(*v));
	sparse.prealloc = ZNS_EMU_SPARSE;
	v->p = *p;
	v->model = make_dev(&sparse);
	v->dev.ops = &ops;
	v->dev.geo = v->model->geo;
	v->wp = calloc(p->nr_zones, sizeof(*v->wp));
	return &v->dev;
}

static inline void vdev_close(struct vdev *v)
{
	while (v->runs) {
		struct vdev_run *r = v->runs;

		v->runs = r->next;
		free(r);
	}
	free(v->wp);
	free(v->log);
	zns_dev_close(v->model);
	unlink(dev_path);
}

#endif
