/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Reading a pages image that is put together from a chain: one request for each level it comes
 * from, all at once. */
#include <pthread.h>
#include <string.h>
#include "flat.h"
#include "reader.h"
#include "zns/util.h"
#include "zns/grow.h"

#define PARTS_MAX 32768 /* on their way for one read: 768 KiB of addresses; more go in turns */

/* What of one level is asked for next. */
struct wish {
	struct zns_part *part;
	size_t nr, room;
};

struct job {
	struct zns_flat *f;
	const struct flat_image *im;
	uint64_t off, left; /* what has not been asked for, bytes */
	struct zns_task task; /* its pid 0: our own memory */
	struct iovec *iov; /* where it goes; iov[0] is cut off as it is used */
	uint32_t nr;
	zns_read_done done;
	void *arg;
	pthread_mutex_t lock;
	uint32_t running; /* requests, and one while they are being made */
	struct zns_err err;
};

static size_t run_at(const struct flat_image *im, uint64_t off)
{
	size_t lo = 0, hi = im->nr_runs;

	while (hi - lo > 1) {
		size_t mid = lo + (hi - lo) / 2;

		if (im->run[mid].off <= off)
			lo = mid;
		else
			hi = mid;
	}
	return lo;
}

static int add_part(struct wish *w, uint64_t at, uint64_t len, void *to)
{
	struct zns_part *last = w->nr ? &w->part[w->nr - 1] : NULL;

	if (last && last->off + last->len == at && (char *)last->to + last->len == to) {
		last->len += len;
		return 0;
	}
	if (zns_grow(w->part, w->nr, w->room))
		return -ENOMEM;
	w->part[w->nr++] = (struct zns_part){ at, len, to };
	return 0;
}

/* The next parts, by level. */
static int collect(struct job *j, struct wish *wish)
{
	const struct flat_image *im = j->im;
	size_t r = run_at(im, j->off);

	for (size_t n = 0; j->left && n < PARTS_MAX; n++) {
		uint64_t end = r + 1 < im->nr_runs ? im->run[r + 1].off : im->size,
			 skip = j->off - im->run[r].off;
		uint64_t len = zns_min(zns_min(end - j->off, j->left), (uint64_t)j->iov->iov_len);

		if (len &&
		    add_part(&wish[im->run[r].level], im->run[r].at + skip, len, j->iov->iov_base))
			return -ENOMEM;
		j->off += len;
		j->left -= len;
		j->iov->iov_base = (char *)j->iov->iov_base + len;
		j->iov->iov_len -= len;
		if (!j->iov->iov_len) {
			j->iov++;
			j->nr--;
		}
		if (j->off == end)
			r++;
	}
	return 0;
}

static void next_turn(struct job *j);

/* One that was running has ended; the last one goes on with what is left. */
static void ended(void *arg, const struct zns_err *err)
{
	struct job *j = arg;
	bool last;

	pthread_mutex_lock(&j->lock);
	if (err && err->code && !j->err.code)
		j->err = *err;
	last = !--j->running;
	pthread_mutex_unlock(&j->lock);
	if (last)
		next_turn(j);
}

static void finish(struct job *j)
{
	j->done(j->arg, &j->err);
	pthread_mutex_destroy(&j->lock);
	free(j);
}

static void next_turn(struct job *j)
{
	uint32_t levels = zns_chain_levels(j->f->c);
	cleanup_free struct wish *wish = NULL;

	if (j->err.code || !j->left) {
		finish(j);
		return;
	}
	wish = calloc(levels, sizeof(*wish));
	if (!wish || collect(j, wish)) {
		for (uint32_t l = 0; wish && l < levels; l++)
			free(wish[l].part);
		zns_fail(&j->err, -ENOMEM, "no memory for a read request");
		finish(j);
		return;
	}
	j->running = 1;
	for (uint32_t l = 0; l < levels; l++) {
		if (!wish[l].nr)
			continue;
		pthread_mutex_lock(&j->lock);
		j->running++;
		pthread_mutex_unlock(&j->lock);
		zns_rimage_read_parts(j->im->from[l], j->task, wish[l].part, wish[l].nr, ended, j);
	}
	ended(j, NULL);
}

void zns_flat_read_task(struct zns_flat *f, uint32_t n, uint64_t off, struct zns_task task,
			const struct iovec *iov, uint32_t nr, zns_read_done done, void *arg)
{
	const struct flat_image *im = &f->img[n];
	struct zns_err err = ZNS_ERR_INIT;
	uint64_t len = 0;
	struct job *j;

	if (!im->from) {
		zns_rimage_read_task(im->raw, off, task, iov, nr, done, arg);
		return;
	}
	for (uint32_t v = 0; v < nr; v++) /* a sum beyond every image stays beyond it */
		len = iov[v].iov_len > UINT64_MAX - len ? UINT64_MAX : len + iov[v].iov_len;
	j = calloc(1, sizeof(*j) + nr * sizeof(*iov));
	if (off > im->size || len > im->size - off)
		zns_fail(&err, -ENODATA, "image %s ends at %llu; %llu bytes were asked for at %llu",
			 zns_flat_name(f, n), (unsigned long long)im->size, (unsigned long long)len,
			 (unsigned long long)off);
	else if (!j)
		zns_fail(&err, -ENOMEM, "no memory for a read request");
	if (err.code) {
		free(j);
		done(arg, &err);
		return;
	}
	*j = (struct job){ .f = f,
			   .im = im,
			   .off = off,
			   .left = len,
			   .task = task,
			   .iov = (struct iovec *)(j + 1),
			   .nr = nr,
			   .done = done,
			   .arg = arg,
			   .lock = PTHREAD_MUTEX_INITIALIZER };
	memcpy(j + 1, iov, nr * sizeof(*iov));
	next_turn(j);
}

int zns_flat_read(struct zns_flat *f, uint32_t n, uint64_t off, void *buf, size_t len,
		  struct zns_err *err)
{
	struct read_wait w = READ_WAIT_INIT;
	const struct flat_image *im = &f->img[n];
	struct iovec iov = { buf, len };

	if (off > im->size || len > im->size - off)
		return zns_fail(err, -ENODATA, "image %s ends at %llu", zns_flat_name(f, n),
				(unsigned long long)im->size);
	if (im->bytes) {
		memcpy(buf, im->bytes + off, len);
		return 0;
	}
	if (!im->from)
		return zns_rimage_read(im->raw, off, buf, len, err);
	zns_flat_read_task(f, n, off, ZNS_TASK(0), &iov, 1, read_woken, &w);
	return read_await(&w, err);
}
