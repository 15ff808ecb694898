/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The striping reader: splits requests into units, which worker threads read, verify and deliver.
 * See zns/reader.h. */
#include <stdatomic.h>
#include <string.h>
#include "reader.h"

/* for a request up to this size the reader assumes that somebody waits for it, and reads ahead */
#define AHEAD_REQUEST MIB(2)

/* Tells the caller of a verifying request whether unit @k is intact. */
static void tell(const struct request *q, uint64_t k, const struct zns_err *err)
{
	struct zns_unit_check u = { .image = q->img,
				    .off = k * q->img->pb->unit,
				    .len = unit_len(q->img, k),
				    .zone = UINT32_MAX,
				    .err = err };
	struct zns_place p;

	if (!unit_locate(q->img, k, &p)) {
		u.zone = p.zone;
		u.zone_off = p.off;
	}
	q->checked(q->arg, &u);
}

static void request_end(struct request *q)
{
	q->done(q->arg, &q->err);
	free(q->wanted);
	free(q->part);
	free(q->iov);
	free(q);
}

/* The number of the @n-th unit of a request, and how many bytes of it the request wants. */
static uint64_t unit_of(const struct request *q, uint64_t n)
{
	return q->part ? q->wanted[n].k : n;
}

static uint64_t unit_part(const struct request *q, uint64_t n)
{
	uint64_t start = n * q->img->pb->unit, end = start + unit_len(q->img, n);

	return q->part ? q->wanted[n].len : zns_min(end, q->off + q->len) - zns_max(start, q->off);
}

static struct cached *get_part(struct zns_reader *r, const struct request *q, uint64_t k,
			       struct zns_err *err)
{
	uint64_t start = k * q->img->pb->unit, from = zns_max(start, q->off) - start;

	return unit_get_part(r, q->img, k, (uint32_t)from, (uint32_t)(from + unit_part(q, k)),
			     q->waited, err);
}

/* Does the request read only those bytes of a unit that it needs? A page fault does. A background
 * read of a lazy restore does too, unless other restores share the whole unit. */
static bool takes_part(const struct zns_reader *r, const struct request *q, uint64_t k)
{
	struct zns_place p;

	if (q->urgent || q->part || !q->no_ahead)
		return q->urgent;
	return !r->hot || unit_locate(q->img, k, &p) || !zns_hot_wanted(r->hot, p.zone);
}

static void run(struct zns_reader *r, struct request *q, uint64_t n)
{
	uint64_t k = unit_of(q, n);
	struct zns_err err = ZNS_ERR_INIT;
	struct cached *c = NULL;
	bool last;
	int ret;

	pthread_mutex_lock(&r->lock);
	ret = q->err.code;
	if (!ret) {
		c = takes_part(r, q, k) ? get_part(r, q, k, &err) :
					  unit_get(r, q->img, k, q->waited, &err);
		ret = c ? 0 : err.code;
	}
	pthread_mutex_unlock(&r->lock);
	if (q->checked) {
		tell(q, k, &err);
		ret = 0;
	} else if (!ret) {
		ret = request_deliver(q, n, c, &err);
	}
	pthread_mutex_lock(&r->lock);
	if (c) {
		c->users--;
		pthread_cond_broadcast(&r->change);
	}
	if (ret && !q->err.code)
		q->err = err;
	if (!ret && !q->checked)
		r->bytes += unit_part(q, n);
	r->last_ns = zns_mono_ns();
	last = !--q->left;
	pthread_mutex_unlock(&r->lock);
	if (last)
		request_end(q);
}

/* Appends the image to the queue unless it is in it. Lock held. */
static void queue_image(struct zns_reader *r, struct zns_rimage *i)
{
	i->link = NULL;
	*r->tail = i;
	r->tail = &i->link;
}

static void queue_add(struct zns_reader *r, struct request *q)
{
	struct zns_rimage *i = q->img;

	q->link = NULL;
	if (q->urgent) {
		*r->urgent_tail = q;
		r->urgent_tail = &q->link;
		pthread_cond_signal(&r->work);
		return;
	}
	if (!i->first)
		queue_image(r, i);
	*(i->first ? i->last : &i->first) = q;
	i->last = &q->link;
	if (q->end - q->next > 1)
		pthread_cond_broadcast(&r->work);
	else
		pthread_cond_signal(&r->work);
}

/* May a worker take a request from the queue? One worker and one buffer are kept free of background
 * requests, so that a fault never waits for them. Lock held. */
static bool may_take(const struct zns_reader *r)
{
	return r->queue && (!r->queue->first->background || r->nr_threads == 1 ||
			    r->nr_background < r->nr_threads - 1);
}

static struct request *take_urgent(struct zns_reader *r, uint64_t *n)
{
	struct request *q = r->urgent;

	*n = q->next++;
	if (q->next == q->end)
		r->urgent = q->link;
	if (!r->urgent)
		r->urgent_tail = &r->urgent;
	if (r->urgent || may_take(r))
		pthread_cond_signal(&r->work);
	return q;
}

/*
 * Images take turns, one unit each, so that a page for one task does not wait for gigabytes of
 * another task. Requests of one image are served in order, so that its units use the zones of the
 * stripe in turn. If requests of equal size took turns, all of them would use the same zone at a
 * time (test_rates). The remaining units of a failed request are skipped.
 */
static struct request *queue_take(struct zns_reader *r, uint64_t *n)
{
	struct zns_rimage *i = r->queue;
	struct request *q = i->first;

	r->queue = i->link;
	if (!r->queue)
		r->tail = &r->queue;
	*n = q->next++;
	if (q->err.code) {
		q->left -= q->end - q->next;
		q->next = q->end;
	}
	if (q->next == q->end)
		i->first = q->link;
	if (i->first)
		queue_image(r, i);
	return q;
}

static uint64_t nr_units(const struct zns_rimage *i)
{
	return (i->pb->size + i->pb->unit - 1) / i->pb->unit;
}

static void ahead_add(struct zns_reader *r, struct zns_rimage *i)
{
	if (i->ahead_queued || i->ahead >= i->ahead_end)
		return;
	i->ahead_queued = true;
	i->ahead_next = NULL;
	*r->ahead_tail = i;
	r->ahead_tail = &i->ahead_next;
	pthread_cond_broadcast(&r->work);
}

/* Reads one unit ahead. */
static void run_ahead(struct zns_reader *r)
{
	struct zns_rimage *i = r->ahead;
	uint64_t k = i->ahead++;

	r->ahead = i->ahead_next;
	if (!r->ahead)
		r->ahead_tail = &r->ahead;
	i->ahead_queued = false;
	ahead_add(r, i);
	unit_ahead(r, i, k);
}

/* Returns how many images are being read sequentially; they share the cache. */
static uint32_t streams(struct zns_reader *r, const struct zns_rimage *i)
{
	uint32_t n = 0;

	r->recent[r->nr_recent++ % READER_STREAMS] = i;
	for (uint32_t a = 0; a < READER_STREAMS; a++) {
		bool seen = !r->recent[a];

		for (uint32_t b = 0; b < a; b++)
			seen |= r->recent[b] == r->recent[a];
		n += !seen;
	}
	return n;
}

/*
 * Plans which units to read ahead. criu reads a forked child's memory in windows, and waits for
 * each (hooks.md, "Restore"). While it compares the pages of a window, idle workers read the
 * following units, which are in other zones. Lock held.
 */
static void plan_ahead(struct zns_reader *r, struct zns_rimage *i, uint64_t first, uint64_t end,
		       uint64_t len)
{
	uint32_t max;

	if (len > AHEAD_REQUEST || r->queue)
		return;
	max = zns_max(2u, r->nr_cache * 3 / 4 / streams(r, i));
	if (first != i->expected && first + 1 != i->expected)
		i->ahead_depth = i->ahead = i->ahead_end = 0;
	else
		i->ahead_depth = zns_min(i->ahead_depth ? 2 * i->ahead_depth : 2, max);
	i->expected = end;
	if (!i->ahead_depth)
		return;
	i->ahead = zns_max(i->ahead, end);
	i->ahead_end = zns_min(end + i->ahead_depth, nr_units(i));
	ahead_add(r, i);
}

void *reader_worker(void *arg)
{
	struct zns_reader *r = arg;

	pthread_mutex_lock(&r->lock);
	for (;;) {
		struct request *q;
		bool background;
		uint64_t n;

		while (!r->urgent && !may_take(r) && !r->ahead && !r->stop)
			pthread_cond_wait(&r->work, &r->lock);
		if (!r->urgent && !may_take(r)) {
			if (r->stop)
				break;
			run_ahead(r);
			continue;
		}
		q = r->urgent ? take_urgent(r, &n) : queue_take(r, &n);
		background = q->background;
		r->nr_background += background;
		pthread_mutex_unlock(&r->lock);
		run(r, q, n);
		pthread_mutex_lock(&r->lock);
		r->nr_background -= background;
	}
	pthread_mutex_unlock(&r->lock);
	return NULL;
}

/* Lists the units that a request for parts needs. */
static int want(struct request *q)
{
	uint64_t unit = q->img->pb->unit, nr = 0, end = 0, max = 0;

	for (size_t p = 0; p < q->nr_parts; p++) {
		const struct zns_part *a = &q->part[p];

		if (!a->len || a->off < end || a->len > UINT64_MAX - a->off)
			return zns_fail(&q->err, -EINVAL,
					"image %s: the parts of a read are out of order",
					q->img->pb->name);
		end = a->off + a->len;
		max += (end - 1) / unit - a->off / unit + 1;
	}
	q->off = q->nr_parts ? q->part[0].off : 0;
	q->len = end - q->off;
	if (q->off > q->img->pb->size || q->len > q->img->pb->size - q->off)
		return 0; /* submit() refuses a request beyond the end of the image */
	q->wanted = malloc(max * sizeof(*q->wanted) + 1);
	if (!q->wanted)
		return zns_fail(&q->err, -ENOMEM, "no memory for a read request");
	for (size_t p = 0; p < q->nr_parts; p++) {
		uint64_t at = q->part[p].off;

		for (end = at + q->part[p].len; at < end;) {
			uint64_t k = at / unit, to = zns_min(end, (k + 1) * unit);

			if (!nr || q->wanted[nr - 1].k != k)
				q->wanted[nr++] = (struct wanted){ .k = k, .first = p };
			q->wanted[nr - 1].len += to - at;
			at = to;
		}
	}
	q->end = nr;
	return 0;
}

/* Takes ownership of @q, whose fields must all be set except `left`. */
static void submit(struct request *q)
{
	struct zns_reader *r = q->img->r;
	uint64_t size = q->img->pb->size, unit = q->img->pb->unit;
	uint64_t first, end;

	if (q->part && want(q)) {
		request_end(q);
		return;
	}
	if (q->off > size || q->len > size - q->off) {
		zns_fail(&q->err, -ENODATA,
			 "image %s ends at %llu; %llu bytes were asked for at %llu",
			 q->img->pb->name, (unsigned long long)size, (unsigned long long)q->len,
			 (unsigned long long)q->off);
		request_end(q);
		return;
	}
	if (!q->len ||
	    (!q->checked && !r->sealed && may_deliver(q->img->crypt, q->img->pb, &q->err))) {
		request_end(q);
		return;
	}
	first = q->off / unit;
	end = (q->off + q->len - 1) / unit + 1;
	if (!q->part) {
		q->next = first;
		q->end = end;
	}
	q->left = q->end - q->next;
	pthread_mutex_lock(&r->lock);
	if (!r->first_ns)
		r->first_ns = zns_mono_ns();
	if (q->here) {
		uint64_t n = q->next, stop = q->end;

		pthread_mutex_unlock(&r->lock);
		while (n < stop) /* the thread that completes the last unit frees the request */
			run(r, q, n++);
		return;
	}
	if (!q->no_ahead)
		plan_ahead(r, q->img, first, end, q->len);
	queue_add(r, q);
	pthread_mutex_unlock(&r->lock);
}

void raw_read_task(struct zns_rimage *i, uint64_t off, struct zns_task task,
		   const struct iovec *iov, uint32_t nr, enum zns_read_how how, zns_read_done done,
		   void *arg)
{
	struct request *q = calloc(1, sizeof(*q));
	struct zns_err err;

	if (q)
		q->iov = malloc(nr * sizeof(*iov) + 1);
	if (!q || !q->iov) {
		free(q);
		zns_fail(&err, -ENOMEM, "no memory for a read request");
		done(arg, &err);
		return;
	}
	memcpy(q->iov, iov, nr * sizeof(*iov));
	/* an overflowing sum stays at its maximum, beyond the end of every image */
	for (uint32_t n = 0; n < nr; n++)
		q->len = iov[n].iov_len > UINT64_MAX - q->len ? UINT64_MAX :
								q->len + iov[n].iov_len;
	q->img = i;
	q->off = off;
	q->task = task;
	q->waited = how == ZNS_READ_FAULT || how == ZNS_READ_FAULT_HERE;
	q->urgent = q->waited || how == ZNS_READ_EARLY;
	q->here = how == ZNS_READ_FAULT_HERE;
	q->no_ahead = how != ZNS_READ_ORDERLY;
	q->background = how == ZNS_READ_BACKGROUND;
	q->fd = -1;
	q->nr = nr;
	q->done = done;
	q->arg = arg;
	submit(q);
}

void raw_read_parts(struct zns_rimage *i, struct zns_task task, struct zns_part *part, size_t nr,
		    enum zns_read_how how, zns_read_done done, void *arg)
{
	struct request *q = calloc(1, sizeof(*q));
	struct zns_err err;

	if (!q) {
		free(part);
		zns_fail(&err, -ENOMEM, "no memory for a read request");
		done(arg, &err);
		return;
	}
	q->img = i;
	q->task = task;
	q->fd = -1;
	q->no_ahead = how != ZNS_READ_ORDERLY;
	q->background = how == ZNS_READ_BACKGROUND;
	q->part = part;
	q->nr_parts = nr;
	q->done = done;
	q->arg = arg;
	submit(q);
}

void zns_rimage_verify(struct zns_rimage *i, zns_unit_checked unit, zns_read_done done, void *arg)
{
	struct request *q = calloc(1, sizeof(*q));
	struct zns_err err;

	if (!q) {
		zns_fail(&err, -ENOMEM, "no memory for a read request");
		done(arg, &err);
		return;
	}
	q->img = i;
	q->len = i->runs ? 0 : i->pb->size; /* a composed image has no units of its own */
	q->fd = -1;
	q->checked = unit;
	q->done = done;
	q->arg = arg;
	submit(q);
}

void read_woken(void *arg, const struct zns_err *err)
{
	struct read_wait *w = arg;

	pthread_mutex_lock(&w->lock);
	w->err = *err;
	w->done = true;
	pthread_cond_signal(&w->cond);
	pthread_mutex_unlock(&w->lock);
}

int read_await(struct read_wait *w, struct zns_err *err)
{
	pthread_mutex_lock(&w->lock);
	while (!w->done)
		pthread_cond_wait(&w->cond, &w->lock);
	pthread_mutex_unlock(&w->lock);
	pthread_mutex_destroy(&w->lock);
	pthread_cond_destroy(&w->cond);
	if (w->err.code && err)
		*err = w->err;
	return w->err.code;
}

int raw_read(struct zns_rimage *i, uint64_t off, uint64_t len, void *buf, int fd,
	     struct zns_err *err)
{
	struct read_wait w = READ_WAIT_INIT;
	struct request *q = calloc(1, sizeof(*q));

	if (!q)
		return zns_fail(err, -ENOMEM, "no memory for a read request");
	q->img = i;
	q->off = off;
	q->len = len;
	q->mem = buf;
	q->fd = fd;
	q->done = read_woken;
	q->arg = &w;
	submit(q);
	return read_await(&w, err);
}

uint64_t zns_reader_shared(struct zns_reader *r)
{
	return atomic_load(&r->shared);
}

void zns_reader_stats(struct zns_reader *r, uint64_t *bytes, uint64_t *busy_us)
{
	pthread_mutex_lock(&r->lock);
	*bytes = r->bytes;
	*busy_us = r->last_ns > r->first_ns ? (r->last_ns - r->first_ns) / 1000 : 0;
	pthread_mutex_unlock(&r->lock);
}
