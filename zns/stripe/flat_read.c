/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Reads images of a flat view. Images that are composed from several levels are read by
 * composed.c. */
#include <string.h>
#include "composed.h"
#include "flat.h"
#include "reader.h"
#include "zns/util.h"

void zns_flat_read_task(struct zns_flat *f, uint32_t n, uint64_t off, struct zns_task task,
			const struct iovec *iov, uint32_t nr, zns_read_done done, void *arg)
{
	const struct flat_image *im = &f->img[n];

	if (im->runs.from)
		runs_read_task(&im->runs, off, task, iov, nr, done, arg);
	else
		zns_rimage_read_task(im->raw, off, task, iov, nr, done, arg);
}

void zns_flat_read_lazy(struct zns_flat *f, uint32_t n, uint64_t off, struct zns_task task,
			const struct iovec *iov, enum zns_read_how how, zns_read_done done,
			void *arg)
{
	const struct flat_image *im = &f->img[n];

	if (im->runs.from)
		runs_read_lazy(&im->runs, off, task, iov, how, done, arg);
	else
		zns_rimage_read_lazy(im->raw, off, task, iov, how, done, arg);
}

int zns_flat_read(struct zns_flat *f, uint32_t n, uint64_t off, void *buf, size_t len,
		  struct zns_err *err)
{
	const struct flat_image *im = &f->img[n];

	if (off > im->size || len > im->size - off)
		return zns_fail(err, -ENODATA, "image %s ends at %llu", zns_flat_name(f, n),
				(unsigned long long)im->size);
	if (im->bytes) {
		memcpy(buf, im->bytes + off, len);
		return 0;
	}
	if (im->runs.from)
		return runs_read(&im->runs, off, buf, len, err);
	return zns_rimage_read(im->raw, off, buf, len, err);
}

static int walk_runs(const struct runs *r, uint64_t off, uint64_t len, zns_flat_piece piece,
		     void *arg);

/* Calls @piece for each place from which a range is read. Runs of a composed image are in images
 * that have units of their own, so there is only one level of recursion. */
static int walk(const struct zns_rimage *i, uint64_t off, uint64_t len, zns_flat_piece piece,
		void *arg)
{
	return i->runs ? walk_runs(i->runs, off, len, piece, arg) :
			 piece(arg, i->level, i->place, off, len);
}

static int walk_runs(const struct runs *r, uint64_t off, uint64_t len, zns_flat_piece piece,
		     void *arg)
{
	int ret = 0;

	for (size_t n = runs_find(r, off); len && !ret; n++) {
		uint64_t part = zns_min(len, run_end(r, n) - off);

		ret = walk(r->from[r->run[n].source], r->run[n].at + (off - r->run[n].off), part,
			   piece, arg);
		off += part;
		len -= part;
	}
	return ret;
}

int zns_flat_walk(const struct zns_flat *f, uint32_t n, zns_flat_piece piece, void *arg)
{
	const struct flat_image *im = &f->img[n];

	if (f->m->images[n]->part)
		return 0;
	if (im->runs.from)
		return walk_runs(&im->runs, 0, im->size, piece, arg);
	return walk(im->raw, 0, f->m->images[n]->size, piece, arg);
}
