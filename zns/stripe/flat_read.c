/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Reading the images of a flat view; those put together from a chain by composed.c. */
#include <string.h>
#include "composed.h"
#include "flat.h"

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
