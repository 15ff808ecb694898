/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Copies verified bytes to the requester: to a task's memory, to the caller's memory, or to a
 * file. */
#include <string.h>
#include <sys/uio.h>
#include "reader.h"

#define RANGES 64 /* most ranges written by one system call */

/* Copies @len bytes to the task; @skip is their offset within the requested range. */
static int deliver_task(const struct request *q, uint64_t skip, uint8_t *buf, size_t len,
			struct zns_err *err)
{
	struct iovec remote[RANGES], local;
	uint32_t n = 0;

	while (n < q->nr && skip >= q->iov[n].iov_len)
		skip -= q->iov[n++].iov_len;
	while (len) {
		uint32_t nr = 0;
		size_t sum = 0;
		int ret;

		for (; nr < ZNS_ARRAY_SIZE(remote) && n < q->nr && sum < len; nr++, n++) {
			remote[nr].iov_base = (char *)q->iov[n].iov_base + skip;
			remote[nr].iov_len = zns_min(q->iov[n].iov_len - skip, len - sum);
			sum += remote[nr].iov_len;
			skip = 0;
		}
		if (!nr) /* cannot happen, because the request is as long as all its iovecs */
			return zns_fail(err, -EFAULT, "a read for task %d has no destination",
					q->task.pid);
		local = (struct iovec){ buf, sum };
		ret = zns_task_write(q->task, &local, 1, remote, nr, sum, err);
		if (ret)
			return ret;
		buf += sum;
		len -= sum;
	}
	return 0;
}

/* Copies several ranges of one unit to as many destinations in the task. */
static int deliver_ranges(const struct request *q, const struct iovec *local,
			  const struct iovec *remote, uint32_t nr, struct zns_err *err)
{
	size_t sum = 0;

	for (uint32_t n = 0; n < nr; n++)
		sum += local[n].iov_len;
	return zns_task_write(q->task, local, nr, remote, nr, sum, err);
}

static int deliver_parts(const struct request *q, const struct wanted *w, const struct cached *c,
			 struct zns_err *err)
{
	uint64_t start = c->k * q->img->pb->unit, end = start + unit_len(q->img, c->k);
	struct iovec local[RANGES], remote[RANGES];
	uint32_t nr = 0;
	int ret = 0;

	for (size_t p = w->first; p < q->nr_parts && q->part[p].off < end && !ret; p++) {
		const struct zns_part *a = &q->part[p];
		uint64_t from = zns_max(start, a->off), to = zns_min(end, a->off + a->len);

		local[nr] = (struct iovec){ c->buf + c->skip + (from - start), to - from };
		remote[nr] = (struct iovec){ (char *)a->to + (from - a->off), to - from };
		if (!q->task.pid) {
			memcpy(remote[nr].iov_base, local[nr].iov_base, to - from);
		} else if (++nr == RANGES) {
			ret = deliver_ranges(q, local, remote, nr, err);
			nr = 0;
		}
	}
	return nr && !ret ? deliver_ranges(q, local, remote, nr, err) : ret;
}

int request_deliver(const struct request *q, uint64_t n, const struct cached *c,
		    struct zns_err *err)
{
	const struct zns_rimage *i = q->img;
	uint64_t start = c->k * i->pb->unit, from = zns_max(start, q->off);
	uint64_t to = zns_min(start + unit_len(i, c->k), q->off + q->len);
	uint8_t *src = c->buf + c->skip + (from - start);
	int ret;

	if (q->part)
		return deliver_parts(q, &q->wanted[n], c, err);
	if (q->task.pid > 0)
		return deliver_task(q, from - q->off, src, to - from, err);
	if (q->mem) {
		memcpy(q->mem + (from - q->off), src, to - from);
		return 0;
	}
	ret = zns_pwrite_all(q->fd, src, to - from, (off_t)from);
	return ret ? zns_fail_sys(err, ret, "image %s: cannot write its copy", i->pb->name) : 0;
}
