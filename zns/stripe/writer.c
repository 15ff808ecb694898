/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The striping writer's surface: images and how bytes enter them. See zns/writer.h. */
#include <string.h>
#include <sys/stat.h>
#include "writer.h"

#define PACK_ALIGN 8u
/*
 * A helper stays below 32 MiB (design.md §3): what the workers' buffers for task memory take together, and the units
 * that bring their bytes along. A few more are being filled.
 */
#define WORKER_BYTES MIB(12)
#define DATA_BYTES MIB(8)
/*
 * Units whose memory is not read yet are addresses only. So many are kept that the zones do not run dry while the
 * broker is asked for the next ones, which all zones of a stripe need at the same time.
 */
#define QUEUED_PER_WORKER 16

/* Each zone has one write in flight; a few units more are being read and hashed, for whichever zone ends first. */
uint32_t writer_wanted_workers(uint32_t width)
{
	return zns_max(4u, width + zns_max(2u, width / 4));
}

uint32_t zns_writer_unit(const struct zns_geometry *geo, uint32_t width)
{
	uint64_t fits = WORKER_BYTES / writer_wanted_workers(width);

	return (uint32_t)zns_min((uint64_t)zns_stripe_unit(geo), zns_max(zns_align_down(fits, ZNS_STRIPE_UNIT_MIN),
									ZNS_STRIPE_UNIT_MIN));
}

static uint32_t choose_workers(const struct zns_writer_params *p)
{
	if (p->workers)
		return p->workers;
	return zns_max(2u, zns_min(writer_wanted_workers(p->nr_groups), (uint32_t)(WORKER_BYTES / p->unit)));
}

/* But not so far ahead that small zones would be full of what is not written yet: each counts in the limits. */
void writer_set_depth(struct zns_writer *w)
{
	w->max_queued = zns_max(4 * w->nr_started,
				zns_min(QUEUED_PER_WORKER * w->nr_started,
					(uint32_t)(w->dev->geo.zone_capacity / w->unit / 2 * w->nr_lanes)));
}

int zns_writer_new(const struct zns_writer_params *p, struct zns_writer **out, struct zns_err *err)
{
	uint32_t workers;
	struct zns_writer *w;
	int ret;

	if (!p->nr_groups || p->nr_groups > ZNS_STRIPE_MAX_WIDTH)
		return zns_fail(err, -EINVAL, "a stripe has 1 to %d zones, not %u", ZNS_STRIPE_MAX_WIDTH, p->nr_groups);
	if (p->unit < ZNS_STRIPE_UNIT_MIN || p->unit > ZNS_STRIPE_UNIT_MAX || p->unit % p->dev->geo.block_size ||
	    p->unit % 4096)
		return zns_fail(err, -EINVAL, "stripe unit of %u bytes: it must be 64K to 4M and a multiple of the block",
				p->unit);
	w = calloc(1, sizeof(*w));
	if (!w)
		return zns_fail(err, -ENOMEM, "no memory for the writer");
	w->dev = p->dev;
	w->bucket = p->bucket;
	w->crypt = p->crypt;
	w->unit = p->unit;
	w->zone_mibps = p->zone_mibps;
	w->block = p->dev->geo.block_size;
	w->zone_get = p->zone_get;
	w->arg = p->arg;
	w->images_tail = &w->images;
	w->queue_tail = &w->queue;
	workers = choose_workers(p);
	w->max_threads = zns_max(workers, p->workers ? 0 : (uint32_t)(WORKER_BYTES / p->unit));
	w->max_data = zns_max(2u, (uint32_t)(DATA_BYTES / p->unit));
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->work, NULL);
	pthread_cond_init(&w->idle, NULL);
	w->lane = calloc(ZNS_STRIPE_MAX_WIDTH + 1, sizeof(*w->lane));
	w->thread = calloc(w->max_threads, sizeof(*w->thread));
	ret = w->lane && w->thread ? 0 : zns_fail(err, -ENOMEM, "no memory for the writer");
	for (uint32_t i = 0; i < p->nr_groups && !ret; i++) {
		w->lane[i].group = p->groups[i];
		w->lane[i].weight = p->weights[i];
		w->nr_lanes++;
		if (!p->weights[i] || p->weights[i] > ZNS_STRIPE_MAX_WEIGHT)
			ret = zns_fail(err, -EINVAL, "weight %u of group %u is out of range", p->weights[i], p->groups[i]);
	}
	if (!ret && p->metadata_group) {
		w->meta_lane = &w->lane[ZNS_STRIPE_MAX_WIDTH];
		*w->meta_lane = (struct lane){ .group = *p->metadata_group, .weight = 1 };
	}
	if (!ret)
		ret = writer_start_workers(w, workers, err);
	if (ret) {
		zns_writer_free(w);
		return ret;
	}
	*out = w;
	return 0;
}

static void wimage_free(struct zns_wimage *i)
{
	for (size_t s = 0; s < i->pb.n_segments; s++) {
		for (size_t e = 0; e < i->pb.segments[s]->n_extents; e++)
			free(i->pb.segments[s]->extents[e]);
		free(i->pb.segments[s]->extents);
		free(i->pb.segments[s]);
	}
	free(i->pb.segments);
	free(i->pb.csums);
	free(i->pb.piece_csums);
	free(i->pb.tags.data);
	rescue_drop(i);
	free(i->pb.name);
	job_free(i->w, i->open);
	free(i);
}

void zns_writer_free(struct zns_writer *w)
{
	if (!w)
		return;
	zns_writer_cancel(w, -ECANCELED, "the dump ended");
	writer_stop_workers(w);
	while (w->queue) {
		struct job *j = w->queue;

		w->queue = j->next;
		job_free(w, j);
	}
	while (w->orphans) {
		struct job *j = w->orphans;

		w->orphans = j->next;
		job_free(w, j);
	}
	while (w->images) {
		struct zns_wimage *i = w->images;

		w->images = i->next;
		wimage_free(i);
	}
	while (w->zones) {
		struct wzone *z = w->zones;

		w->zones = z->next;
		pthread_cond_destroy(&z->turn);
		free(z);
	}
	zns_seg_fini(&w->seg);
	job_free(w, w->pack);
	while (w->slabs) {
		struct slab *s = w->slabs;

		w->slabs = s->next;
		free(s->mem);
		free(s);
	}
	free(w->packed);
	free(w->lane);
	free(w->thread);
	pthread_mutex_destroy(&w->lock);
	pthread_cond_destroy(&w->work);
	pthread_cond_destroy(&w->idle);
	free(w);
}

int zns_writer_error(struct zns_writer *w, struct zns_err *err)
{
	int ret;

	pthread_mutex_lock(&w->lock);
	ret = w->err.code;
	if (ret && err)
		*err = w->err;
	pthread_mutex_unlock(&w->lock);
	return ret;
}

void zns_writer_cancel(struct zns_writer *w, int code, const char *why)
{
	struct zns_err err;

	zns_fail(&err, code, "%s", why);
	pthread_mutex_lock(&w->lock);
	writer_set_error(w, &err);
	pthread_mutex_unlock(&w->lock);
}

void zns_writer_stats(struct zns_writer *w, struct zns_writer_stats *out)
{
	pthread_mutex_lock(&w->lock);
	*out = w->stats;
	out->written = zns_min(out->written, out->bytes);	/* small images have gaps between them */
	out->nr_zones = w->nr_zones;
	out->nr_bad = w->nr_bad;
	out->bad[0] = 0;
	if (w->nr_bad == 1)
		snprintf(out->bad, sizeof(out->bad), "zone %u failed and was replaced: %s", w->bad[0], w->bad_err.msg);
	else if (w->nr_bad)
		snprintf(out->bad, sizeof(out->bad), "%u zones failed and were replaced, the last one: %s", w->nr_bad,
			 w->bad_err.msg);
	pthread_mutex_unlock(&w->lock);
}

void zns_writer_rate(struct zns_writer *w, ZnsPb__Checkpoint *c)
{
	struct zns_writer_stats st;

	zns_writer_stats(w, &st);
	if (st.last_complete_ns <= st.first_submit_ns)
		return;
	c->has_data_phase_us = 1;
	c->data_phase_us = (st.last_complete_ns - st.first_submit_ns) / 1000;
	c->qos_achieved_mibps = zns_rate_mibps(st.page_bytes, c->data_phase_us);
	c->has_qos_achieved_mibps = c->qos_achieved_mibps > 0;
}

static int copy_error(struct zns_writer *w, int ret, struct zns_err *err)
{
	if (ret && err && w->err.code)
		*err = w->err;
	return ret;
}

int zns_writer_image(struct zns_writer *w, const char *name, bool pages, struct zns_wimage **out, struct zns_err *err)
{
	struct zns_wimage *i, **bucket = &w->by_name[zns_hash(name, strlen(name)) % NAME_BUCKETS];
	int ret = 0;

	pthread_mutex_lock(&w->lock);
	ret = copy_error(w, w->err.code, err);
	for (i = *bucket; i && !ret; i = i->next_name)
		if (!strcmp(i->pb.name, name))
			ret = zns_fail(err, -EEXIST, "image %s was written twice", name);
	i = ret ? NULL : calloc(1, sizeof(*i));
	if (i) {
		zns_pb__image__init(&i->pb);
		i->w = w;
		i->pages = pages;
		i->pb.name = strdup(name);
		i->pb.unit = w->unit;
		if (!i->pb.name) {
			free(i);
			i = NULL;
		}
	}
	if (i) {
		i->index = w->nr_images++;
		i->pb.has_unit_base = w->unit_base != 0;
		i->pb.unit_base = w->unit_base;
		*w->images_tail = i;
		w->images_tail = &i->next;
		i->next_name = *bucket;
		*bucket = i;
		*out = i;
	} else if (!ret) {
		ret = zns_fail(err, -ENOMEM, "no memory for image %s", name);
	}
	pthread_mutex_unlock(&w->lock);
	return ret;
}

/* An image that lacks bytes must never be committed: such an error is the writer's. Lock held. */
static int broken(struct zns_writer *w, const struct zns_err *e, struct zns_err *err)
{
	writer_set_error(w, e);
	return copy_error(w, w->err.code, err);
}

/* Places count whole units: after a short one nothing can follow. */
static int check_open(const struct zns_wimage *i, struct zns_err *err)
{
	if (!i->sealed && !(i->pb.size % i->w->unit))
		return 0;
	return zns_fail(err, -EINVAL, "image %s has ended and takes no more", i->pb.name);
}

/* Put one piece of task memory into the open unit; iovecs that touch are merged. */
static int job_add_iov(struct job *j, void *base, size_t len)
{
	if (j->nr_iov && (char *)j->iov[j->nr_iov - 1].iov_base + j->iov[j->nr_iov - 1].iov_len == base) {
		j->iov[j->nr_iov - 1].iov_len += len;
	} else {
		if (j->nr_iov == j->max_iov) {
			uint32_t max = j->max_iov ? 2 * j->max_iov : 8;
			void *p = realloc(j->iov, max * sizeof(*j->iov));

			if (!p)
				return -ENOMEM;
			j->iov = p;
			j->max_iov = max;
		}
		j->iov[j->nr_iov++] = (struct iovec){ base, len };
	}
	j->len += (uint32_t)len;
	return 0;
}

/* The open unit with room for memory of @pid. NULL: @err says why. Lock held. */
static struct job *mem_job(struct zns_wimage *i, pid_t pid, struct zns_err *err)
{
	if (check_open(i, err))
		return NULL;
	if (!i->open) {
		i->open = job_new(i);
		if (!i->open) {
			zns_fail(err, -ENOMEM, "no memory for a unit of image %s", i->pb.name);
			return NULL;
		}
		i->open->pid = pid;
		i->ungathered++;
	}
	if (i->open->data || i->open->pid != pid) {
		zns_fail(err, -EINVAL, "image %s: memory of task %d cannot follow what it holds", i->pb.name, pid);
		return NULL;
	}
	return i->open;
}

int zns_wimage_mem(struct zns_wimage *i, pid_t pid, const struct iovec *iov, uint32_t nr, struct zns_err *err)
{
	struct zns_err e = ZNS_ERR_INIT;
	struct zns_writer *w = i->w;
	uint64_t left = 0;
	int ret;

	for (uint32_t n = 0; n < nr; n++)
		left += iov[n].iov_len;
	pthread_mutex_lock(&w->lock);
	ret = copy_error(w, w->err.code, err);
	for (uint32_t n = 0; n < nr && !ret; n++) {
		uint8_t *base = iov[n].iov_base;
		size_t len = iov[n].iov_len;

		while (len && !ret) {
			struct job *j = mem_job(i, pid, &e);
			size_t take;

			if (!j) {
				ret = broken(w, &e, err);
				break;
			}
			take = zns_min(len, (size_t)(w->unit - j->len));
			if (job_add_iov(j, base, take)) {
				zns_fail(&e, -ENOMEM, "no memory for a unit of image %s", i->pb.name);
				ret = broken(w, &e, err);
				break;
			}
			base += take;
			len -= take;
			if (j->len == w->unit) {
				i->open = NULL;
				ret = copy_error(w, writer_enqueue(w, j, zns_max((uint64_t)1, left / w->unit)), err);
			}
			left -= take;
		}
	}
	pthread_mutex_unlock(&w->lock);
	return ret;
}

/* The open unit with room for bytes. NULL: @err says why. */
static struct job *data_job(struct zns_wimage *i, struct zns_err *err)
{
	if (check_open(i, err))
		return NULL;
	if (!i->open) {
		struct job *j = job_new(i);

		pthread_mutex_lock(&i->w->lock);
		if (j)
			j->data = unit_alloc(i->w);
		pthread_mutex_unlock(&i->w->lock);
		if (!j || !j->data) {
			free(j);
			zns_fail(err, -ENOMEM, "no memory for a unit of image %s", i->pb.name);
			return NULL;
		}
		i->open = j;
	}
	if (!i->open->data) {
		zns_fail(err, -EINVAL, "image %s: bytes cannot follow task memory", i->pb.name);
		return NULL;
	}
	return i->open;
}

static int data_broken(struct zns_wimage *i, const struct zns_err *e, struct zns_err *err)
{
	int ret;

	pthread_mutex_lock(&i->w->lock);
	ret = broken(i->w, e, err);
	pthread_mutex_unlock(&i->w->lock);
	return ret;
}

static int data_dispatch(struct zns_wimage *i, uint64_t hint_units, struct zns_err *err)
{
	struct job *j = i->open;
	int ret;

	i->open = NULL;
	pthread_mutex_lock(&i->w->lock);
	ret = copy_error(i->w, writer_enqueue(i->w, j, hint_units), err);
	pthread_mutex_unlock(&i->w->lock);
	return ret;
}

int zns_wimage_data(struct zns_wimage *i, const void *buf, size_t len, struct zns_err *err)
{
	struct zns_err e = ZNS_ERR_INIT;
	const uint8_t *p = buf;
	int ret = zns_writer_error(i->w, err);

	while (len && !ret) {
		struct job *j = data_job(i, &e);
		size_t take;

		if (!j)
			return data_broken(i, &e, err);
		take = zns_min(len, (size_t)(i->w->unit - j->len));
		memcpy(j->data + j->len, p, take);
		j->len += (uint32_t)take;
		p += take;
		len -= take;
		if (j->len == i->w->unit)
			ret = data_dispatch(i, len / i->w->unit + 1, err);
	}
	return ret;
}

int zns_wimage_from_fd(struct zns_wimage *i, int fd, struct zns_err *err)
{
	struct stat st;
	bool known = !fstat(fd, &st) && S_ISREG(st.st_mode);
	struct zns_err e = ZNS_ERR_INIT;
	uint64_t left = 0;
	int ret = zns_writer_error(i->w, err);

	if (ret)
		return ret;
	if (known) {
		left = (uint64_t)st.st_size;
		if (lseek(fd, 0, SEEK_SET) < 0) {
			zns_fail_sys(&e, -errno, "image %s: cannot rewind", i->pb.name);
			return data_broken(i, &e, err);
		}
	}
	for (;;) {
		struct job *j = data_job(i, &e);
		ssize_t n;

		if (!j)
			return data_broken(i, &e, err);
		n = read(fd, j->data + j->len, i->w->unit - j->len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			zns_fail_sys(&e, -errno, "image %s: cannot read what criu wrote", i->pb.name);
			return data_broken(i, &e, err);
		}
		if (!n)
			return 0;
		j->len += (uint32_t)n;
		left -= zns_min(left, (uint64_t)n);
		if (j->len < i->w->unit)
			continue;
		ret = data_dispatch(i, known ? left / i->w->unit + 1 : UINT64_MAX, err);
		if (ret)
			return ret;
	}
}

int zns_wimage_settle(struct zns_wimage *i, struct zns_err *err)
{
	struct zns_writer *w = i->w;
	int ret;

	pthread_mutex_lock(&w->lock);
	if (i->open && !i->open->data) {	/* the short last unit */
		struct job *j = i->open;

		i->open = NULL;
		writer_enqueue(w, j, 1);
	}
	while (i->ungathered && !w->err.code)
		writer_wait(w, false);
	/* After an error workers may still be reading; they must let go of the task before it runs on. */
	while (w->err.code && w->nr_running)
		pthread_cond_wait(&w->idle, &w->lock);
	ret = copy_error(w, w->err.code, err);
	pthread_mutex_unlock(&w->lock);
	return ret;
}

int writer_flush_pack(struct zns_writer *w)
{
	cleanup_free struct packed *list = NULL;
	struct job *j;
	uint32_t nr;
	int ret;

	writer_wait_room(w, true);
	j = w->pack;
	if (!j || w->err.code)
		return w->err.code;
	/* Placing may drop the lock: the next pack unit starts from nothing meanwhile. */
	list = w->packed;
	nr = w->nr_packed;
	w->pack = NULL;
	w->packed = NULL;
	w->nr_packed = w->max_packed = 0;
	ret = writer_place_single(w, j->len, &j->wz, &j->off);
	for (uint32_t n = 0; n < nr && !ret; n++) {
		struct zns_wimage *i = list[n].img;
		ZnsPb__Segment *s = writer_add_segment(i, 0, 1);

		if (!s) {
			ret = -ENOMEM;
			break;
		}
		s->len = i->pb.size;
		s->extents[0]->zone = j->wz->slot.zone;
		s->extents[0]->start = j->off + list[n].off;
	}
	if (ret) {
		struct zns_err e;

		job_free(w, j);
		zns_fail(&e, ret, "no memory for the layout of small images");
		writer_set_error(w, &e);	/* which keeps what writer_place_single said, if it was that */
		return w->err.code;
	}
	return writer_enqueue(w, j, 1);
}

/* A small image ends: into the shared unit instead of a unit of its own. Lock held. */
static int pack(struct zns_writer *w, struct zns_wimage *i, struct job *j, uint64_t csum, const uint8_t *tag)
{
	uint32_t at;
	int ret;

	/* Flushing may drop the lock: another image may have begun the next one meanwhile, or filled it. */
	while (w->pack && zns_align_up(w->pack->len, PACK_ALIGN) + j->len > w->unit) {
		ret = writer_flush_pack(w);
		if (ret)
			return ret;
	}
	at = w->pack ? (uint32_t)zns_align_up(w->pack->len, PACK_ALIGN) : 0;
	if (!w->pack) {
		w->pack = job_new(NULL);
		if (!w->pack)
			return -ENOMEM;
		w->pack->data = unit_alloc(w);
		if (!w->pack->data)
			return -ENOMEM;
	}
	if (w->nr_packed == w->max_packed) {
		uint32_t max = w->max_packed ? 2 * w->max_packed : 64;
		void *p = realloc(w->packed, max * sizeof(*w->packed));

		if (!p)
			return -ENOMEM;
		w->packed = p;
		w->max_packed = max;
	}
	memset(w->pack->data + w->pack->len, 0, at - w->pack->len);
	memcpy(w->pack->data + at, j->data, j->len);
	w->pack->len = at + j->len;
	w->packed[w->nr_packed++] = (struct packed){ i, at };
	rescue_keep_data(w, i, 0, j->data, j->len, true);
	i->nr_units = 1;
	i->pb.size = j->len;
	w->stats.bytes += j->len;
	if (i->pages)
		w->stats.page_bytes += j->len;
	return writer_put_csum(i, 0, csum, tag);
}

void zns_wimage_set_beside(struct zns_wimage *i)
{
	i->pb.has_beside = i->pb.beside = 1;
}

int zns_wimage_seal(struct zns_wimage *i, struct zns_err *err)
{
	struct zns_writer *w = i->w;
	struct job *j = i->open;
	bool small = j && j->len && j->data && !i->nr_units && j->len <= w->unit / 2;
	struct zns_err e = ZNS_ERR_INIT;
	uint8_t tag[ZNS_TAG_BYTES];
	int ret = small ? transform_out(w->crypt, i->index, i->pb.name, i->pb.unit_base, j->data, j->len, tag, &e) : 0;
	uint64_t csum = small ? zns_hash(j->data, j->len) : 0;

	pthread_mutex_lock(&w->lock);
	i->open = NULL;
	if (ret) {
		writer_set_error(w, &e);
		job_free(w, j);
	} else if (small) {
		ret = w->err.code ? w->err.code : pack(w, i, j, csum, tag);
		job_free(w, j);
	} else if (j && j->len) {
		ret = writer_enqueue(w, j, 1);
	} else {
		job_free(w, j);
	}
	i->sealed = true;
	if (ret && !w->err.code) {
		zns_fail(&e, ret, "image %s: no memory", i->pb.name);
		writer_set_error(w, &e);
	}
	ret = copy_error(w, w->err.code, err);
	pthread_mutex_unlock(&w->lock);
	return ret;
}
