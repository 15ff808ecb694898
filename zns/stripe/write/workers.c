/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The writer's workers. Each takes a unit and does everything for it: reads the task's memory,
 * encrypts and hashes, waits until all earlier units are written to the zone, writes, and records
 * that the unit is done. This file decides how many workers there are, and how many units may wait
 * for them.
 *
 * Units are placed and queued in one order, and workers take those of each zone in that order. So a
 * worker that waits for earlier units of a zone waits for units that other workers have already
 * taken. Therefore there is no deadlock, however few workers there are.
 */
#include <string.h>
#include "writer.h"

/* A helper may use less than 32 MiB (design.md §3). The first limit is for the workers' buffers for
 * task memory, the second for units that have buffers of their own. Some more are being filled. */
#define WORKER_BYTES MIB(12)
#define DATA_BYTES MIB(8)
/*
 * A unit whose memory is not read yet consists of addresses only, so many can be queued. All zones
 * of a stripe become full at about the same time; the queue is long enough to keep the device busy
 * while the broker is asked for new zones.
 */
#define QUEUED_PER_WORKER 16

/* The unit that a worker is processing. */
struct hand {
	struct job *j;
	struct lane *lane; /* the lane that the unit had when it was taken */
	uint8_t *own; /* the worker's own buffer for task memory */
	uint8_t *buf; /* where the unit's bytes are: in the unit's own buffer or in the worker's */
	bool gathered; /* the bytes were read from a task into `own` */
};

/* ---- how many workers, how long a queue ---- */

/* How many workers are wanted. Each zone has one write under way; additional workers read and hash
 * the next units for the zone that becomes free first. */
static uint32_t wanted(uint32_t width)
{
	return zns_max(4u, width + zns_max(2u, width / 4));
}

uint32_t zns_writer_unit(const struct zns_geometry *geo, uint32_t width)
{
	uint64_t fits = WORKER_BYTES / wanted(width);

	return (uint32_t)zns_min((uint64_t)zns_stripe_unit(geo),
				 zns_max(zns_align_down(fits, ZNS_STRIPE_UNIT_MIN),
					 ZNS_STRIPE_UNIT_MIN));
}

static uint32_t choose_workers(const struct zns_writer_params *p)
{
	uint64_t nr = zns_min(wanted(p->nr_groups), (uint32_t)(WORKER_BYTES / p->unit));

	if (p->workers)
		return p->workers;
	if (p->expected)
		nr = zns_min(nr, p->expected / p->unit + 1);
	return (uint32_t)zns_max(nr, (uint64_t)2);
}

/* Limits the length of the queue. With small zones fewer units may wait, since unwritten units
 * would be spread over several zones, each of which counts against the device's limits. */
NEEDS_LOCK static void set_depth(struct zns_writer *w)
{
	w->queue.max = zns_max(4 * w->crew.wanted, zns_min(QUEUED_PER_WORKER * w->crew.wanted,
							   (uint32_t)(w->dev->geo.zone_capacity /
								      w->unit / 2 * w->lanes.nr)));
}

/* ---- the path of a unit ---- */

/* May the unit be processed further? 0; the writer's error; or -EAGAIN: its zone has failed. */
NEEDS_LOCK static int may_go_on(const struct zns_writer *w, const struct job *j)
{
	return w->err.code ? w->err.code : j->wz->bad ? -EAGAIN : 0;
}

/* Reads the task's memory. If the unit's zone has failed, it is read later, when the unit is
 * moved. */
static int gather(struct zns_writer *w, struct hand *h, struct zns_err *err)
{
	struct job *j = h->j;
	int ret;

	writer_lock(w);
	ret = may_go_on(w, j);
	writer_unlock(w);
	if (j->data || ret == -EAGAIN)
		return ret;
	if (!ret)
		ret = io_gather(j->pid, j->iov, j->nr_iov, h->buf, err);
	h->gathered = !ret;
	writer_lock(w);
	if (!ret)
		unsteady_note(w, j->pid, j->iov, j->nr_iov, h->buf);
	if (err->code) /* locked, because settle() reads the counter under this lock */
		writer_set_error(w, err);
	if (!--j->img->ungathered)
		pthread_cond_broadcast(&w->idle);
	writer_unlock(w);
	return ret;
}

/* Encrypts and hashes the unit. That is done only once: if its zone fails, the same bytes are
 * written to the next zone. */
static int make_ready(struct hand *h, struct zns_err *err)
{
	struct job *j = h->j;
	int ret;

	if (!j->img || j->ready)
		return 0;
	ret = image_outgoing(j->img, j->k, h->buf, j->len, j->tag, err);
	if (ret)
		return ret;
	ret = image_csum(j->img, j->k, h->buf, j->len, &j->csum);
	j->ready = !ret;
	return ret;
}

/* Waits until everything before the unit was written to its zone. */
static int wait_turn(struct zns_writer *w, struct job *j)
{
	int ret;

	writer_lock(w);
	while (j->wz->written != j->off && !may_go_on(w, j))
		writer_sleep(w, &j->wz->turn);
	ret = may_go_on(w, j);
	if (!ret && j->img && j->img->pages && !w->stats.first_submit_ns)
		w->stats.first_submit_ns = zns_mono_ns();
	writer_unlock(w);
	return ret;
}

static int write_unit(struct zns_writer *w, struct hand *h, struct zns_err *err)
{
	struct job *j = h->j;
	size_t len = zns_align_up(j->len, w->block);
	uint64_t start, ns = 0;
	int ret;

	memset(h->buf + j->len, 0, len - j->len);
	ret = wait_turn(w, j);
	if (ret)
		return ret;
	start = zns_mono_ns();
	ret = io_write(w, j->wz->slot.zone, j->off, h->buf, len, &ns, err);
	writer_lock(w);
	if (ret && err->code && zones_is_fault(ret)) {
		zones_failed(w, j->wz, err);
		*err = (struct zns_err)ZNS_ERR_INIT;
		ret = -EAGAIN;
	}
	if (!ret && j->lane)
		weights_sample(j->lane, j->wz, j->off, len, start, ns,
			       w->bucket && zns_bucket_rate(w->bucket));
	writer_unlock(w);
	return ret;
}

/* ---- the end of a unit ---- */

/* Called when the unit's zone has failed, so the unit needs a new place. The unit keeps the buffer
 * with its bytes, and the worker gets a new buffer. */
NEEDS_LOCK static int orphan(struct zns_writer *w, struct hand *h, struct zns_err *err)
{
	if (h->gathered && !h->j->data) {
		uint8_t *other = pool_get(&w->pool);

		if (!other)
			return zns_fail(err, -ENOMEM, "no memory for a stripe unit of %u bytes",
					w->unit);
		h->j->data = h->own;
		h->own = other;
	}
	h->j->next = w->queue.orphans;
	w->queue.orphans = h->j;
	h->j = NULL;
	return 0;
}

NEEDS_LOCK static int written(struct zns_writer *w, struct job *j)
{
	uint64_t len = zns_align_up(j->len, w->block);
	int ret = j->img ? image_put_csum(j->img, j->k, j->csum, j->tag) : 0;

	if (ret)
		return ret;
	j->wz->written = j->off + len;
	pthread_cond_broadcast(&j->wz->turn);
	w->tune.written++;
	if (j->lane)
		j->lane->backlog -= len;
	w->stats.written += j->len;
	if (j->img && j->img->pages)
		w->stats.last_complete_ns = zns_mono_ns();
	if (j->nr_iov)
		rescue_keep_mem(w, j);
	return 0;
}

/* Called at the end of a unit. @ret: 0, or the error at which it stopped. */
NEEDS_LOCK static void end(struct zns_writer *w, struct hand *h, int ret, struct zns_err *err)
{
	if (ret == -EAGAIN && !err->code)
		ret = orphan(w, h, err);
	else if (!ret)
		ret = written(w, h->j);
	if (ret) {
		if (!err->code)
			zns_fail(err, ret, "a unit of an image could not be written");
		writer_set_error(w, err);
	}
	if (h->j && h->j->counted)
		pthread_cond_broadcast(&w->room);
	job_free(w, h->j);
	queue_done(w, h->lane);
	pthread_cond_broadcast(&w->idle);
}

static void *worker(void *arg)
{
	struct zns_writer *w = arg;
	struct hand h = { 0 };

	writer_lock(w);
	h.own = pool_get(&w->pool);
	if (!h.own) {
		struct zns_err err;

		zns_fail(&err, -ENOMEM, "no memory for a stripe unit of %u bytes", w->unit);
		writer_set_error(w, &err);
	}
	while (h.own) {
		struct zns_err err = ZNS_ERR_INIT;
		int ret;

		while (!(h.j = queue_take(w)) && !w->stop)
			writer_sleep(w, &w->work);
		if (!h.j)
			break;
		h.lane = h.j->lane;
		h.buf = h.j->data ? h.j->data : h.own;
		h.gathered = false;
		queue_tell_room(w);
		writer_unlock(w);

		ret = gather(w, &h, &err);
		if (!ret)
			ret = make_ready(&h, &err);
		if (!ret)
			ret = write_unit(w, &h, &err);

		writer_lock(w);
		end(w, &h, ret, &err);
	}
	if (h.own)
		pool_put(&w->pool, h.own);
	writer_unlock(w);
	return NULL;
}

/* ---- start and stop ---- */

/* Starts @nr more workers. */
NEEDS_LOCK static int start(struct zns_writer *w, uint32_t nr, struct zns_err *err)
{
	w->crew.wanted = w->crew.nr + nr;
	set_depth(w);
	for (; nr; nr--, w->crew.nr++) {
		int ret = pthread_create(&w->crew.thread[w->crew.nr], NULL, worker, w);

		/* two workers are enough, only slower; the container may have a limit of tasks */
		if (ret && w->crew.nr >= 2)
			return 0;
		if (ret)
			return zns_fail_sys(err, -ret, "cannot start a worker");
	}
	return 0;
}

/* To be called when lanes, unit and the caller's parameters are known, before any worker runs. */
int workers_init(struct zns_writer *w, const struct zns_writer_params *p, struct zns_err *err)
{
	uint32_t nr = choose_workers(p);

	w->crew.max = zns_max(nr, p->workers ? 0 : (uint32_t)(WORKER_BYTES / p->unit));
	w->queue.max_data = zns_max(2u, (uint32_t)(DATA_BYTES / p->unit));
	w->crew.thread = calloc(w->crew.max, sizeof(*w->crew.thread));
	if (!w->crew.thread)
		return zns_fail(err, -ENOMEM, "no memory for the writer");
	return start(w, nr, err);
}

void workers_widen(struct zns_writer *w)
{
	uint32_t more = zns_min(wanted(w->lanes.nr), w->crew.max);

	if (more > w->crew.nr)
		/* if they cannot be started, the dump is only slower */
		start(w, more - w->crew.nr, NULL);
	else
		set_depth(w);
}

UNSHARED void workers_stop(struct zns_writer *w)
{
	writer_lock(w);
	w->stop = true;
	pthread_cond_broadcast(&w->work);
	writer_unlock(w);
	for (uint32_t i = 0; i < w->crew.nr; i++)
		pthread_join(w->crew.thread[i], NULL);
	w->crew.nr = 0;
}
