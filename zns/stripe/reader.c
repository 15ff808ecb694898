/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The striping reader: requests are cut into checksum units, workers fetch, verify and deliver. See
 * zns/reader.h. */
#include <string.h>
#include <sys/mman.h>
#include "reader.h"

/* A helper stays below 32 MiB (design.md §3). */
#define CACHE_BYTES MIB(20)
#define HUGE_PAGE MIB(2)
#define SMALL_BYTES MIB(8) /* of a checkpoint */
#define AHEAD_REQUEST MIB(2) /* a request of no more than this is one that somebody waits for */
#define WORKERS_MAX 64

/* Of a verifying request: tell what became of a unit. */
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

/* The @n-th unit of a request, and how much of it the request wants. */
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

	return unit_get_part(r, q->img, k, (uint32_t)from, (uint32_t)(from + unit_part(q, k)), err);
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
		c = q->urgent ? get_part(r, q, k, &err) : unit_get(r, q->img, k, &err);
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

/* Its image goes to the end of the queue, unless it is in it. Lock held. */
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

static struct request *take_urgent(struct zns_reader *r, uint64_t *n)
{
	struct request *q = r->urgent;

	*n = q->next++;
	if (q->next == q->end)
		r->urgent = q->link;
	if (!r->urgent)
		r->urgent_tail = &r->urgent;
	else
		pthread_cond_signal(&r->work);
	return q;
}

/*
 * Images take turns, unit by unit, so that a page for one task does not wait for another task's
 * gigabytes. Requests of one image are served in order, so that its units go round the zones of the
 * stripe. If requests of one size took turns, all of them would be at the same zone at a time
 * (test_rates). What is left of a failed request is skipped.
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

/* One unit that nobody has asked for yet. */
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

/* How many images are read in order now; they share the cache. */
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
 * criu reads a forked child's memory a window at a time, and waits for each (hooks.md, "Restore").
 * While it compares pages, idle workers read what follows, from other zones. Lock held.
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

static void *worker(void *arg)
{
	struct zns_reader *r = arg;

	pthread_mutex_lock(&r->lock);
	for (;;) {
		struct request *q;
		uint64_t n;

		while (!r->urgent && !r->queue && !r->ahead && !r->stop)
			pthread_cond_wait(&r->work, &r->lock);
		if (!r->urgent && !r->queue && r->ahead && !r->stop) {
			run_ahead(r);
			continue;
		}
		if (!r->urgent && !r->queue)
			break;
		q = r->urgent ? take_urgent(r, &n) : queue_take(r, &n);
		pthread_mutex_unlock(&r->lock);
		run(r, q, n);
		pthread_mutex_lock(&r->lock);
	}
	pthread_mutex_unlock(&r->lock);
	return NULL;
}

static int image_init(struct zns_reader *r, uint32_t n, const ZnsPb__Image *pb, struct zns_err *err)
{
	struct zns_rimage *i = &r->img[n];
	int ret = 0;

	i->r = r;
	i->pb = pb;
	i->index = n;
	i->seg = calloc(pb->n_segments + 1, sizeof(*i->seg));
	if (!i->seg)
		return zns_fail(err, -ENOMEM, "no memory for image %s", pb->name);
	for (size_t s = 0; s < pb->n_segments && !ret; s++)
		ret = zns_seg_init(&i->seg[s], pb->segments[s], pb->unit, err);
	for (size_t s = 0; s < pb->n_segments && !ret; s++)
		r->width = zns_max(r->width, r->img[n].seg[s].nr);
	r->buf_len = zns_max(r->buf_len, (size_t)pb->unit + 2 * r->dev->geo.block_size);
	return ret;
}

static int cmp_name(const void *a, const void *b)
{
	const struct zns_rimage *const *x = a, *const *y = b;

	if ((*x)->level != (*y)->level)
		return (*x)->level < (*y)->level ? -1 : 1;
	return strcmp((*x)->pb->name, (*y)->pb->name);
}

/* Bytes of all images. */
static uint64_t bytes_of(const struct zns_reader *r)
{
	uint64_t all = 0;

	for (uint32_t i = 0; i < r->nr_img; i++)
		all += r->img[i].pb->size;
	return all;
}

/*
 * Two reads for each zone, so that it goes from one to the next without a pause. Every worker holds
 * a unit, so memory bounds their number. More workers than units, and two to look ahead, would have
 * nothing to do.
 */
static uint32_t choose_workers(const struct zns_reader *r, uint64_t bytes)
{
	uint32_t nr = zns_min((uint32_t)WORKERS_MAX, zns_max(8u, 2 * r->width));

	if (r->buf_len)
		nr = (uint32_t)zns_min((uint64_t)nr, bytes / r->buf_len + 2);
	return r->buf_len ? zns_min(nr, zns_max(2u, (uint32_t)(CACHE_BYTES / r->buf_len))) : nr;
}

static int images_init(struct zns_reader *r, const struct zns_reader_level *level, uint32_t nr,
		       struct zns_err *err)
{
	size_t all = 0;
	int ret = 0;

	for (uint32_t l = 0; l < nr; l++)
		all += level[l].m->n_images;
	r->img = calloc(all + 1, sizeof(*r->img));
	r->by_name = calloc(all + 1, sizeof(*r->by_name));
	if (!r->img || !r->by_name)
		return zns_fail(err, -ENOMEM, "no memory for the reader");
	for (uint32_t l = 0; l < nr; l++)
		for (uint32_t k = 0; k < level[l].m->n_images && !ret; k++) {
			struct zns_rimage *i = r->by_name[r->nr_img] = &r->img[r->nr_img];

			i->level = l;
			i->place = k;
			i->crypt = level[l].crypt;
			ret = image_init(r, r->nr_img, level[l].m->images[k], err);
			r->nr_img++;
		}
	if (!ret)
		qsort(r->by_name, r->nr_img, sizeof(*r->by_name), cmp_name);
	return ret;
}

int zns_reader_new(const struct zns_reader_params *p, const ZnsPb__Manifest *m,
		   struct zns_reader **out, struct zns_err *err)
{
	return zns_reader_new_levels(p, &(struct zns_reader_level){ m, p->crypt }, 1, out, err);
}

int zns_reader_new_levels(const struct zns_reader_params *p, const struct zns_reader_level *level,
			  uint32_t nr, struct zns_reader **out, struct zns_err *err)
{
	uint64_t bytes = 0;
	uint32_t workers;
	struct zns_reader *r = calloc(1, sizeof(*r));
	size_t align = zns_max((size_t)4096, (size_t)p->dev->geo.mem_align), step;
	int ret = 0;

	if (!r)
		return zns_fail(err, -ENOMEM, "no memory for the reader");
	r->dev = p->dev;
	r->bucket = p->bucket;
	r->urgent_tail = &r->urgent;
	r->tail = &r->queue;
	r->ahead_tail = &r->ahead;
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->work, NULL);
	pthread_cond_init(&r->change, NULL);
	ret = images_init(r, level, nr, err);
	bytes = ret ? 0 : bytes_of(r);
	workers = p->workers ? p->workers : choose_workers(r, bytes);
	r->depth = p->depth;
	r->nr_cache = 2 * workers;
	if (p->cache_units)
		r->nr_cache = zns_max(p->cache_units, workers);
	else if (r->buf_len)
		r->nr_cache = zns_max(workers,
				      zns_min(r->nr_cache, (uint32_t)(CACHE_BYTES / r->buf_len)));
	r->cache = calloc(r->nr_cache, sizeof(*r->cache));
	r->thread = calloc(workers, sizeof(*r->thread));
	if (!ret && (!r->cache || !r->thread))
		ret = zns_fail(err, -ENOMEM, "no memory for the reader");
	/* Huge pages: a direct read pins one page, not a hundred. For a few reads it costs more to
	 * clear them. */
	step = zns_align_up(zns_max(r->buf_len, align), align);
	r->buffers = aligned_alloc(HUGE_PAGE, zns_align_up(r->nr_cache * step, HUGE_PAGE));
	if (r->buffers && bytes > SMALL_BYTES)
		madvise(r->buffers, zns_align_up(r->nr_cache * step, HUGE_PAGE), MADV_HUGEPAGE);
	if (!r->buffers && !ret)
		ret = zns_fail(err, -ENOMEM, "no memory for %u units", r->nr_cache);
	for (uint32_t n = 0; n < r->nr_cache && !ret; n++)
		r->cache[n].buf = r->buffers + n * step;
	for (; !ret && r->nr_threads < workers; r->nr_threads++) {
		ret = -pthread_create(&r->thread[r->nr_threads], NULL, worker, r);
		if (!ret)
			continue;
		if (r->nr_threads >= 2) /* some will do, only slower */
			ret = 0;
		else
			zns_fail_sys(err, ret, "cannot start a worker");
		break;
	}
	if (ret) {
		zns_reader_free(r);
		return ret;
	}
	*out = r;
	return 0;
}

void zns_reader_free(struct zns_reader *r)
{
	if (!r)
		return;
	pthread_mutex_lock(&r->lock);
	r->stop = true;
	pthread_cond_broadcast(&r->work);
	pthread_mutex_unlock(&r->lock);
	for (uint32_t n = 0; n < r->nr_threads; n++)
		pthread_join(r->thread[n], NULL);
	for (uint32_t n = 0; n < r->nr_img; n++) {
		for (size_t s = 0; r->img[n].seg && s < r->img[n].pb->n_segments; s++)
			zns_seg_fini(&r->img[n].seg[s]);
		free(r->img[n].seg);
	}
	free(r->buffers);
	free(r->img);
	free(r->by_name);
	free(r->cache);
	free(r->thread);
	pthread_mutex_destroy(&r->lock);
	pthread_cond_destroy(&r->work);
	pthread_cond_destroy(&r->change);
	free(r);
}

struct zns_rimage *zns_reader_find(struct zns_reader *r, const char *name)
{
	return zns_reader_find_at(r, 0, name);
}

struct zns_rimage *zns_reader_find_at(struct zns_reader *r, uint32_t level, const char *name)
{
	ZnsPb__Image pb = { .name = (char *)name };
	struct zns_rimage key = { .pb = &pb, .level = level }, *keyp = &key, **hit;

	hit = bsearch(&keyp, r->by_name, r->nr_img, sizeof(*r->by_name), cmp_name);
	return hit ? *hit : NULL;
}

struct zns_rimage *zns_reader_image(struct zns_reader *r, uint32_t index)
{
	return index < r->nr_img ? &r->img[index] : NULL;
}

uint32_t zns_rimage_index(const struct zns_rimage *i)
{
	return i->index;
}

uint64_t zns_rimage_size(const struct zns_rimage *i)
{
	return i->pb->size;
}

const char *zns_rimage_name(const struct zns_rimage *i)
{
	return i->pb->name;
}

/* The units of a request for parts. */
static int want(struct request *q)
{
	uint64_t unit = q->img->pb->unit, nr = 0, end = 0, max = 0;

	for (size_t p = 0; p < q->nr_parts; p++) {
		const struct zns_part *a = &q->part[p];

		if (!a->len || a->off < end || a->len > UINT64_MAX - a->off)
			return zns_fail(&q->err, -EINVAL, "image %s: parts that are out of order",
					q->img->pb->name);
		end = a->off + a->len;
		max += (end - 1) / unit - a->off / unit + 1;
	}
	q->off = q->nr_parts ? q->part[0].off : 0;
	q->len = end - q->off;
	if (q->off > q->img->pb->size || q->len > q->img->pb->size - q->off)
		return 0; /* refused by submit */
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

/* Takes @q (filled in but for left). */
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
	if (!q->len || (!q->checked && may_deliver(q->img->crypt, q->img->pb, &q->err))) {
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
		while (n < stop) /* the last one frees it */
			run(r, q, n++);
		return;
	}
	if (!q->no_ahead)
		plan_ahead(r, q->img, first, end, q->len);
	queue_add(r, q);
	pthread_mutex_unlock(&r->lock);
}

static void read_task(struct zns_rimage *i, uint64_t off, pid_t pid, const struct iovec *iov,
		      uint32_t nr, enum zns_read_how how, zns_read_done done, void *arg)
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
	for (uint32_t n = 0; n < nr; n++) /* a sum beyond every image stays beyond it */
		q->len = iov[n].iov_len > UINT64_MAX - q->len ? UINT64_MAX :
								q->len + iov[n].iov_len;
	q->img = i;
	q->off = off;
	q->pid = pid;
	q->urgent = how == ZNS_READ_FAULT || how == ZNS_READ_FAULT_HERE;
	q->here = how == ZNS_READ_FAULT_HERE;
	q->no_ahead = how != ZNS_READ_ORDERLY;
	q->fd = -1;
	q->nr = nr;
	q->done = done;
	q->arg = arg;
	submit(q);
}

void zns_rimage_read_task(struct zns_rimage *i, uint64_t off, pid_t pid, const struct iovec *iov,
			  uint32_t nr, zns_read_done done, void *arg)
{
	read_task(i, off, pid, iov, nr, ZNS_READ_ORDERLY, done, arg);
}

void zns_rimage_read_lazy(struct zns_rimage *i, uint64_t off, pid_t pid, const struct iovec *iov,
			  enum zns_read_how how, zns_read_done done, void *arg)
{
	read_task(i, off, pid, iov, 1, how, done, arg);
}

void zns_rimage_read_parts(struct zns_rimage *i, pid_t pid, struct zns_part *part, size_t nr,
			   zns_read_done done, void *arg)
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
	q->pid = pid;
	q->fd = -1;
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
	q->len = i->pb->size;
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

static int read_sync(struct zns_rimage *i, uint64_t off, uint64_t len, void *buf, int fd,
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

int zns_rimage_read(struct zns_rimage *i, uint64_t off, void *buf, size_t len, struct zns_err *err)
{
	return read_sync(i, off, len, buf, -1, err);
}

int zns_rimage_to_fd(struct zns_rimage *i, uint64_t off, uint64_t len, int fd, struct zns_err *err)
{
	return read_sync(i, off, len, NULL, fd, err);
}

void zns_reader_stats(struct zns_reader *r, uint64_t *bytes, uint64_t *busy_us)
{
	pthread_mutex_lock(&r->lock);
	*bytes = r->bytes;
	*busy_us = r->last_ns > r->first_ns ? (r->last_ns - r->first_ns) / 1000 : 0;
	pthread_mutex_unlock(&r->lock);
}
