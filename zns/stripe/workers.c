/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The writer's workers: take a unit, gather task memory, hash, wait for the zone's turn, write.
 *
 * Units are placed and queued in one order, and workers take those of each zone in that order: who waits for a zone's
 * turn waits for a unit that another worker has already, so it cannot deadlock, whatever the number of workers.
 */
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include "writer.h"

#define HUGE_PAGE MIB(2)
#define SHORT KIB(128)		/* of a command where others wait behind it: no more than a die programs at once */

struct job *job_new(struct zns_wimage *img)
{
	struct job *j = calloc(1, sizeof(*j));

	if (j)
		j->img = img;
	return j;
}

/*
 * Units come from slabs of whole huge pages: a direct write of a megabyte then pins one page, not 256 (a third of the
 * write's CPU time; test/bench/compare.py). All of one size, and kept for the next one.
 */
static int slab_add(struct zns_writer *w)
{
	size_t align = zns_max((size_t)4096, (size_t)w->dev->geo.mem_align);
	size_t step = zns_align_up(w->unit, align), len = zns_align_up(step, HUGE_PAGE);
	struct slab *s = malloc(sizeof(*s));
	uint8_t *mem = aligned_alloc(HUGE_PAGE, len);

	if (!s || !mem) {
		free(s);
		free(mem);
		return -ENOMEM;
	}
	madvise(mem, len, MADV_HUGEPAGE);	/* without it just slower */
	*s = (struct slab){ mem, w->slabs };
	w->slabs = s;
	for (size_t at = 0; at + step <= len; at += step)
		unit_free(w, mem + at);
	return 0;
}

uint8_t *unit_alloc(struct zns_writer *w)
{
	uint8_t *u;

	if (!w->units && slab_add(w))
		return NULL;
	u = w->units;
	memcpy(&w->units, u, sizeof(w->units));
	return u;
}

void unit_free(struct zns_writer *w, uint8_t *u)
{
	memcpy(u, &w->units, sizeof(w->units));
	w->units = u;
}

void job_free(struct zns_writer *w, struct job *j)
{
	if (!j)
		return;
	if (j->data)
		unit_free(w, j->data);
	w->nr_data -= j->counted;
	free(j->iov);
	free(j);
}

void writer_set_error(struct zns_writer *w, const struct zns_err *e)
{
	if (!w->err.code)
		w->err = *e;
	zns_bucket_stop(w->bucket);
	pthread_cond_broadcast(&w->work);
	pthread_cond_broadcast(&w->idle);
	for (struct wzone *z = w->zones; z; z = z->next)
		pthread_cond_broadcast(&z->turn);
}

int writer_put_csum(struct zns_wimage *i, uint64_t k, uint64_t csum, const uint8_t tag[ZNS_TAG_BYTES])
{
	if (k >= i->max_csums) {
		size_t max = zns_max((size_t)16, zns_max((size_t)k + 1, 2 * i->max_csums));
		uint64_t *p = realloc(i->pb.csums, max * sizeof(*p));

		if (!p)
			return -ENOMEM;
		memset(p + i->max_csums, 0, (max - i->max_csums) * sizeof(*p));
		i->pb.csums = p;
		i->max_csums = max;
	}
	i->pb.csums[k] = csum;
	return i->w->crypt ? transform_keep(&i->pb, &i->max_tags, k, tag) : 0;
}

/* Units whose pieces have checksums of their own; none for one that is a single piece. */
static bool in_pieces(const struct zns_wimage *i, uint64_t k)
{
	uint32_t unit = i->w->unit;

	return i->pages && !i->w->crypt && unit > ZNS_PIECE && !(unit % ZNS_PIECE) &&
	       (k + 1) * (unit / ZNS_PIECE) <= ZNS_PIECES_MAX;
}

static int put_pieces(const struct job *j)
{
	struct zns_wimage *i = j->img;
	size_t per = i->w->unit / ZNS_PIECE, nr = (j->len + ZNS_PIECE - 1) / ZNS_PIECE, end = j->k * per + nr;

	if (!in_pieces(i, j->k))
		return 0;
	if (end > i->max_pieces) {
		size_t max = zns_max((size_t)64, zns_max(end, 2 * i->max_pieces));
		uint64_t *p = realloc(i->pb.piece_csums, max * sizeof(*p));

		if (!p)
			return -ENOMEM;
		i->pb.piece_csums = p;
		i->max_pieces = max;
	}
	memcpy(i->pb.piece_csums + j->k * per, j->piece, nr * sizeof(j->piece[0]));
	i->pb.n_piece_csums = zns_max(i->pb.n_piece_csums, end);
	return 0;
}

/* What process_vm_readv refuses (a mapping without read permission) /proc/PID/mem still gives. */
static int gather_slow(pid_t pid, const struct iovec *iov, uint32_t nr, size_t skip, uint8_t *buf, struct zns_err *err)
{
	cleanup_close int fd = -1;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return zns_fail_sys(err, -errno, "cannot open the memory of task %d", pid);
	for (uint32_t i = 0; i < nr; i++) {
		size_t from = zns_min(skip, iov[i].iov_len);
		int ret;

		skip -= from;
		ret = zns_pread_all(fd, buf + from, iov[i].iov_len - from, (off_t)((uintptr_t)iov[i].iov_base + from));
		if (ret)
			return zns_fail_sys(err, ret, "cannot read memory of task %d at %p", pid, iov[i].iov_base);
		buf += iov[i].iov_len;
	}
	return 0;
}

int writer_gather(pid_t pid, const struct iovec *iov, uint32_t nr_iov, uint8_t *buf, struct zns_err *err)
{
	for (uint32_t first = 0, nr; first < nr_iov; first += nr) {
		struct iovec local = { .iov_base = buf };
		ssize_t n;
		int ret;

		nr = zns_min(nr_iov - first, (uint32_t)IOV_MAX);
		for (uint32_t i = 0; i < nr; i++)
			local.iov_len += iov[first + i].iov_len;
		buf += local.iov_len;
		n = process_vm_readv(pid, &local, 1, iov + first, nr, 0);
		if (n == (ssize_t)local.iov_len)
			continue;
		if (n < 0 && errno != EFAULT)
			return zns_fail_sys(err, -errno, "cannot read the memory of task %d", pid);
		ret = gather_slow(pid, iov + first, nr, n < 0 ? 0 : (size_t)n, local.iov_base, err);
		if (ret)
			return ret;
	}
	return 0;
}

/* *ns: the device's time, without the bucket's. */
static int write_timed(struct zns_writer *w, uint32_t zone, uint64_t off, const uint8_t *buf, size_t len, uint64_t *ns,
		       struct zns_err *err)
{
	size_t max = w->dev->geo.max_io_bytes ? w->dev->geo.max_io_bytes : len, n;
	int ret = 0;

	max = zns_min(max, zns_bucket_slice(w->bucket));
	if (w->crowded)
		max = zns_min(max, (size_t)SHORT);
	max = zns_max(zns_align_down(max, w->block), w->block);
	for (size_t done = 0; done < len && !ret; done += n) {
		uint64_t start;

		n = zns_min(max, len - done);
		zns_bucket_take(w->bucket, n);
		start = zns_mono_ns();
		ret = zns_dev_write(w->dev, zone, off + done, buf + done, n, err);
		*ns += zns_mono_ns() - start;
	}
	return ret;
}

int writer_write(struct zns_writer *w, uint32_t zone, uint64_t off, const uint8_t *buf, size_t len, struct zns_err *err)
{
	uint64_t ns = 0;

	return write_timed(w, zone, off, buf, len, &ns, err);
}

/* The zone is bad, and the unit needs a new place. What was gathered goes with it, and the worker gets a new buffer. */
static int orphan(struct zns_writer *w, struct job *j, uint8_t **own, bool gathered, struct zns_err *err)
{
	if (gathered && !j->data) {
		uint8_t *other = unit_alloc(w);

		if (!other) {
			zns_fail(err, -ENOMEM, "no memory for a stripe unit of %u bytes", w->unit);
			return -ENOMEM;
		}
		j->data = *own;
		*own = other;
	}
	j->next = w->orphans;
	w->orphans = j;
	return 0;
}

/* -EAGAIN: the zone has failed, now or before. */
static int write_unit(struct zns_writer *w, struct job *j, uint8_t *buf, struct zns_err *err)
{
	size_t len = zns_align_up(j->len, w->block);
	uint64_t start, ns = 0;
	int ret;

	memset(buf + j->len, 0, len - j->len);
	pthread_mutex_lock(&w->lock);
	while (j->wz->written != j->off && !w->err.code && !j->wz->bad)
		pthread_cond_wait(&j->wz->turn, &w->lock);
	ret = w->err.code ? w->err.code : j->wz->bad ? -EAGAIN : 0;
	if (!ret && j->img && j->img->pages && !w->stats.first_submit_ns)
		w->stats.first_submit_ns = zns_mono_ns();
	pthread_mutex_unlock(&w->lock);
	start = zns_mono_ns();
	if (!ret)
		ret = write_timed(w, j->wz->slot.zone, j->off, buf, len, &ns, err);
	if (err->code && writer_zone_fault(ret)) {
		pthread_mutex_lock(&w->lock);
		writer_zone_failed(w, j->wz, err);
		pthread_mutex_unlock(&w->lock);
		*err = (struct zns_err)ZNS_ERR_INIT;
		ret = -EAGAIN;
	}
	if (!ret && j->lane) {
		pthread_mutex_lock(&w->lock);
		weights_sample(j->lane, j->wz, j->off, len, start, ns, w->bucket && zns_bucket_rate(w->bucket));
		pthread_mutex_unlock(&w->lock);
	}
	return ret;
}

/* Once for each unit: one that lost its zone goes to the next one as it is. */
static int make_ready(struct zns_writer *w, struct job *j, uint8_t *buf, struct zns_err *err)
{
	int ret = transform_out(w->crypt, j->img->index, j->img->pb.name, j->img->pb.unit_base + j->k, buf, j->len, j->tag, err);

	if (ret)
		return ret;
	if (in_pieces(j->img, j->k))
		j->csum = zns_hash_pieces(buf, j->len, ZNS_PIECE, j->piece);
	else
		j->csum = zns_hash(buf, j->len);
	j->ready = true;
	return 0;
}

static void run(struct zns_writer *w, struct job *j, uint8_t **own)
{
	struct zns_err err = ZNS_ERR_INIT;
	uint8_t *buf = j->data ? j->data : *own;
	bool gathered = false;
	int ret;

	pthread_mutex_lock(&w->lock);
	ret = w->err.code ? w->err.code : j->wz->bad ? -EAGAIN : 0;
	pthread_mutex_unlock(&w->lock);
	if (!j->data && ret != -EAGAIN) {
		if (!ret)
			ret = writer_gather(j->pid, j->iov, j->nr_iov, buf, &err);
		gathered = !ret;
		pthread_mutex_lock(&w->lock);
		if (err.code)	/* in one step with the count that settle looks at */
			writer_set_error(w, &err);
		j->img->ungathered--;
		pthread_cond_broadcast(&w->idle);
		pthread_mutex_unlock(&w->lock);
	}
	if (!ret && j->img && !j->ready)
		ret = make_ready(w, j, buf, &err);
	if (!ret)
		ret = write_unit(w, j, buf, &err);

	pthread_mutex_lock(&w->lock);
	if (ret == -EAGAIN && !err.code) {
		ret = orphan(w, j, own, gathered, &err);
		if (!ret)
			j = NULL;
	} else if (!ret && j->img) {
		ret = writer_put_csum(j->img, j->k, j->csum, j->tag);
		if (!ret)
			ret = put_pieces(j);
	}
	if (!j) {
		w->nr_running--;
		pthread_cond_broadcast(&w->idle);
		pthread_mutex_unlock(&w->lock);
		return;
	}
	if (ret) {
		if (!err.code)
			zns_fail(&err, ret, "a unit could not be written");
		writer_set_error(w, &err);
	} else {
		j->wz->written = j->off + zns_align_up(j->len, w->block);
		w->written_units++;
		if (j->lane)
			j->lane->backlog -= zns_align_up(j->len, w->block);
		pthread_cond_broadcast(&j->wz->turn);
		w->stats.written += j->len;
		if (j->img && j->img->pages)
			w->stats.last_complete_ns = zns_mono_ns();
		if (j->nr_iov)
			rescue_keep_mem(w, j);
	}
	w->nr_running--;
	job_free(w, j);
	pthread_cond_broadcast(&w->idle);
	pthread_mutex_unlock(&w->lock);
}

static uint32_t taken(const struct job *j)
{
	return j->lane ? j->lane->taken : 0;
}

/*
 * The next unit: the oldest one of a lane that has nothing to do; else, as long as hands are left for all lanes, of one
 * that has the least, to be read and hashed ahead. So a slow zone never has all the hands. NULL: not now.
 */
static struct job *pick(struct zns_writer *w)
{
	uint32_t spare = w->nr_started > w->nr_lanes ? w->nr_started - w->nr_lanes : 1;
	struct job **best = NULL, *j;

	for (struct job **p = &w->queue; *p; p = &(*p)->next)
		if (!best || taken(*p) < taken(*best))
			best = p;
	if (!best || (taken(*best) && w->nr_ahead >= spare && !w->stop && !w->err.code))
		return NULL;
	j = *best;
	*best = j->next;
	if (!j->next)
		w->queue_tail = best;
	if (j->lane)
		w->nr_ahead += j->lane->taken++ > 0;
	w->nr_queued--;
	return j;
}

static void *worker(void *arg)
{
	struct zns_writer *w = arg;
	struct zns_err err;
	uint8_t *own;

	pthread_mutex_lock(&w->lock);
	own = unit_alloc(w);
	if (!own) {
		zns_fail(&err, -ENOMEM, "no memory for a stripe unit of %u bytes", w->unit);
		writer_set_error(w, &err);
	}
	while (own) {
		struct lane *l;
		struct job *j;

		while (!(j = pick(w)) && !w->stop)
			pthread_cond_wait(&w->work, &w->lock);
		if (!j)
			break;
		l = j->lane;
		w->nr_running++;
		pthread_cond_broadcast(&w->idle);
		pthread_mutex_unlock(&w->lock);
		run(w, j, &own);
		pthread_mutex_lock(&w->lock);
		if (l)
			w->nr_ahead -= --l->taken > 0;
	}
	if (own)
		unit_free(w, own);
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

/* What a feeder does meanwhile is the work that only feeders do. */
void writer_wait(struct zns_writer *w, bool more)
{
	if (w->nr_unrepaired) {
		writer_repair(w);
	} else {
		pthread_cond_wait(&w->idle, &w->lock);
		weights_look(w, more);
	}
}

void writer_wait_room(struct zns_writer *w, bool data)
{
	/* Units of a bad zone never leave the queue's count otherwise. */
	while ((w->nr_unrepaired || w->nr_queued >= w->max_queued || (data && w->nr_data >= w->max_data)) && !w->err.code)
		writer_wait(w, true);
}

/*
 * From placement to queueing the lock stays held, or two units of one zone could be queued the wrong way round: a
 * caller that placed the job itself has waited for room before.
 */
int writer_enqueue(struct zns_writer *w, struct job *j, uint64_t hint_units)
{
	int ret = 0;

	if (j->img)
		writer_wait_room(w, j->data);
	if (w->err.code)
		ret = w->err.code;
	if (!ret && j->img) {
		j->k = j->img->nr_units;
		ret = writer_place(w, j, hint_units);
	}
	if (ret) {
		if (j->img && !j->data)
			j->img->ungathered--;
		job_free(w, j);
		pthread_cond_broadcast(&w->idle);
		return ret;
	}
	if (j->img) {
		j->img->nr_units++;
		j->img->pb.size += j->len;
		w->stats.bytes += j->len;
		if (j->img->pages)
			w->stats.page_bytes += j->len;
	}
	if (j->img && j->data)
		rescue_keep_data(w, j->img, j->k, j->data, j->len, j->ready);
	*w->queue_tail = j;
	w->queue_tail = &j->next;
	w->nr_queued++;
	j->counted = j->data != NULL;
	w->nr_data += j->counted;
	pthread_cond_signal(&w->work);
	return 0;
}

int writer_start_workers(struct zns_writer *w, uint32_t nr, struct zns_err *err)
{
	w->nr_started = w->nr_threads + nr;
	writer_set_depth(w);
	for (; nr; nr--, w->nr_threads++) {
		int ret = pthread_create(&w->thread[w->nr_threads], NULL, worker, w);

		/* Some will do, only slower: a container's limit of tasks may be near. */
		if (ret && w->nr_threads >= 2)
			return 0;
		if (ret)
			return zns_fail_sys(err, -ret, "cannot start a worker");
	}
	return 0;
}

void writer_stop_workers(struct zns_writer *w)
{
	pthread_mutex_lock(&w->lock);
	w->stop = true;
	pthread_cond_broadcast(&w->work);
	pthread_mutex_unlock(&w->lock);
	for (uint32_t i = 0; i < w->nr_threads; i++)
		pthread_join(w->thread[i], NULL);
	w->nr_threads = 0;
}
