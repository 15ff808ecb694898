/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Reads of images. An image that has units of its own is read by reader.c. A read of an image that
 * is composed of others is split into one request to each of these, all at the same time. See
 * zns/reader.h and composed.h.
 */
#include <pthread.h>
#include <string.h>
#include "composed.h"
#include "reader.h"
#include "zns/grow.h"

/* most parts requested at a time (768 KiB of addresses); a longer read takes several rounds */
#define PARTS_MAX 32768
#define COPY_BYTES MIB(1) /* bytes of one read when the destination is a file */

/* The parts to read from one source image with the next request. */
struct wish {
	struct zns_part *part;
	size_t nr, room;
	bool unsorted;
};

struct job {
	const struct runs *r;
	struct zns_task task; /* pid 0: the destination is this process's own memory */
	enum zns_read_how how;
	/* the parts of the image that the caller wants, in any order; owned by this struct */
	struct zns_part *part;
	size_t nr, next; /* next: the first part that has not been requested completely */
	uint64_t used; /* how many bytes of that part have been requested */
	zns_read_done done;
	void *arg;
	pthread_mutex_t lock;
	/* number of running requests, plus one while next_turn() is still making requests */
	uint32_t running;
	struct zns_err err;
};

/* ---- which parts to request ---- */

static int add_part(struct wish *w, uint64_t at, uint64_t len, void *to)
{
	struct zns_part *last = w->nr ? &w->part[w->nr - 1] : NULL;

	if (last && last->off + last->len == at && (char *)last->to + last->len == to) {
		last->len += len;
		return 0;
	}
	w->unsorted |= last && last->off + last->len > at;
	if (zns_grow(w->part, w->nr, w->room))
		return -ENOMEM;
	w->part[w->nr++] = (struct zns_part){ at, len, to };
	return 0;
}

/* Sorts the next parts, at most PARTS_MAX, by the source image that holds them. */
static int collect(struct job *j, struct wish *wish)
{
	const struct runs *r = j->r;
	size_t n = r->nr; /* index of the present run; r->nr: none is selected yet */

	for (size_t parts = 0; j->next < j->nr && parts < PARTS_MAX; parts++) {
		const struct zns_part *p = &j->part[j->next];
		uint64_t off = p->off + j->used, len;

		if (n < r->nr && off == run_end(r, n))
			n++;
		if (n >= r->nr || off < r->run[n].off || off >= run_end(r, n))
			n = runs_find(r, off);
		len = zns_min(run_end(r, n) - off, p->len - j->used);
		if (add_part(&wish[r->run[n].source], r->run[n].at + (off - r->run[n].off), len,
			     (char *)p->to + j->used))
			return -ENOMEM;
		j->used += len;
		if (j->used == p->len) {
			j->next++;
			j->used = 0;
		}
	}
	return 0;
}

static int cmp_part(const void *a, const void *b)
{
	const struct zns_part *x = a, *y = b;

	return x->off < y->off ? -1 : x->off > y->off;
}

/* Moves parts that overlap an earlier part of the sorted list to *rest, which stays sorted. Needed
 * because a request delivers each byte of a source to only one destination. */
static int take_overlap(struct wish *w, struct wish *rest)
{
	size_t kept = 1;

	for (size_t n = 1; n < w->nr; n++) {
		const struct zns_part *last = &w->part[kept - 1];

		if (last->off + last->len <= w->part[n].off) {
			w->part[kept++] = w->part[n];
			continue;
		}
		if (zns_grow(rest->part, rest->nr, rest->room))
			return -ENOMEM;
		rest->part[rest->nr++] = w->part[n];
	}
	w->nr = kept;
	return 0;
}

/* ---- requests ---- */

static void next_turn(struct job *j);

/* Called when a request has ended. If it is the last one, starts the next round. */
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

static void started(struct job *j)
{
	pthread_mutex_lock(&j->lock);
	j->running++;
	pthread_mutex_unlock(&j->lock);
}

static void finish(struct job *j)
{
	if (j->err.code)
		zns_wrap(&j->err, "image %s", j->r->name);
	j->done(j->arg, &j->err);
	pthread_mutex_destroy(&j->lock);
	free(j->part);
	free(j);
}

static void read_parts(struct zns_rimage *i, struct zns_task task, struct zns_part *part, size_t nr,
		       enum zns_read_how how, zns_read_done done, void *arg);

/* Requests all parts in @w from one source; takes ownership of the parts. */
static int ask(struct job *j, uint32_t source, struct wish *w)
{
	if (w->unsorted)
		qsort(w->part, w->nr, sizeof(*w->part), cmp_part);
	while (w->nr) {
		struct wish rest = { 0 }, now = *w;

		if (now.unsorted && take_overlap(&now, &rest)) {
			free(rest.part);
			return -ENOMEM;
		}
		rest.unsorted = true;
		*w = rest;
		started(j);
		read_parts(j->r->from[source], j->task, now.part, now.nr, j->how, ended, j);
	}
	return 0;
}

static void next_turn(struct job *j)
{
	cleanup_free struct wish *wish = NULL;
	int ret;

	if (j->err.code || j->next == j->nr) {
		finish(j);
		return;
	}
	j->running = 1;
	wish = calloc(j->r->nr_from, sizeof(*wish));
	ret = wish ? collect(j, wish) : -ENOMEM;
	for (uint32_t s = 0; wish && s < j->r->nr_from; s++) {
		if (!ret)
			ret = ask(j, s, &wish[s]);
		free(wish[s].nr ? wish[s].part : NULL);
	}
	if (ret) {
		struct zns_err err;

		zns_fail(&err, ret, "no memory for a read request");
		ended(j, &err);
	} else {
		ended(j, NULL);
	}
}

static int check_range(const struct runs *r, uint64_t off, uint64_t len, struct zns_err *err)
{
	if (off <= r->size && len <= r->size - off)
		return 0;
	return zns_fail(err, -ENODATA, "image %s ends at %llu; %llu bytes were asked for at %llu",
			r->name, (unsigned long long)r->size, (unsigned long long)len,
			(unsigned long long)off);
}

/* Like zns_rimage_read_parts; takes ownership of @part. */
static void runs_read_parts(const struct runs *r, struct zns_task task, struct zns_part *part,
			    size_t nr, enum zns_read_how how, zns_read_done done, void *arg)
{
	struct job *j = calloc(1, sizeof(*j));
	struct zns_err err = ZNS_ERR_INIT;

	if (!j)
		zns_fail(&err, -ENOMEM, "no memory for a read request");
	for (size_t n = 0; n < nr && !err.code; n++)
		if (part[n].len)
			check_range(r, part[n].off, part[n].len, &err);
		else
			zns_fail(&err, -EINVAL, "image %s: a part of a read has no bytes", r->name);
	if (err.code) {
		free(part);
		free(j);
		done(arg, &err);
		return;
	}
	*j = (struct job){ .r = r,
			   .task = task,
			   .how = how,
			   .part = part,
			   .nr = nr,
			   .done = done,
			   .arg = arg,
			   .lock = PTHREAD_MUTEX_INITIALIZER };
	next_turn(j);
}

static void read_parts(struct zns_rimage *i, struct zns_task task, struct zns_part *part, size_t nr,
		       enum zns_read_how how, zns_read_done done, void *arg)
{
	if (i->runs)
		runs_read_parts(i->runs, task, part, nr, how, done, arg);
	else
		raw_read_parts(i, task, part, nr, how, done, arg);
}

/* Reads a range of the image into the destinations in @iov. */
static void runs_read_iov(const struct runs *r, uint64_t off, struct zns_task task,
			  const struct iovec *iov, uint32_t nr, enum zns_read_how how,
			  zns_read_done done, void *arg)
{
	struct zns_part *part = malloc((nr + 1u) * sizeof(*part));
	struct zns_err err = ZNS_ERR_INIT;
	uint64_t len = 0;
	size_t n = 0;

	/* an overflowing sum stays at its maximum, beyond the end of every image */
	for (uint32_t v = 0; v < nr; v++)
		len = iov[v].iov_len > UINT64_MAX - len ? UINT64_MAX : len + iov[v].iov_len;
	if (!part)
		zns_fail(&err, -ENOMEM, "no memory for a read request");
	else
		check_range(r, off, len, &err);
	if (err.code) {
		free(part);
		done(arg, &err);
		return;
	}
	for (uint32_t v = 0; v < nr; v++) {
		if (iov[v].iov_len)
			part[n++] = (struct zns_part){ off, iov[v].iov_len, iov[v].iov_base };
		off += iov[v].iov_len;
	}
	runs_read_parts(r, task, part, n, how, done, arg);
}

void runs_read_task(const struct runs *r, uint64_t off, struct zns_task task,
		    const struct iovec *iov, uint32_t nr, zns_read_done done, void *arg)
{
	runs_read_iov(r, off, task, iov, nr, ZNS_READ_ORDERLY, done, arg);
}

int runs_read(const struct runs *r, uint64_t off, void *buf, size_t len, struct zns_err *err)
{
	struct read_wait w = READ_WAIT_INIT;
	struct iovec iov = { buf, len };

	runs_read_iov(r, off, ZNS_TASK(0), &iov, 1, ZNS_READ_ORDERLY, read_woken, &w);
	return read_await(&w, err);
}

/* ---- page faults ---- */

struct fault {
	zns_read_done done;
	void *arg;
	pthread_mutex_t lock;
	/* number of running requests, plus one while requests are still being made */
	uint32_t running;
	struct zns_err err;
};

static void fault_ended(void *arg, const struct zns_err *err)
{
	struct fault *f = arg;
	bool last;

	pthread_mutex_lock(&f->lock);
	if (err->code && !f->err.code)
		f->err = *err;
	last = !--f->running;
	pthread_mutex_unlock(&f->lock);
	if (!last)
		return;
	f->done(f->arg, &f->err);
	pthread_mutex_destroy(&f->lock);
	free(f);
}

/* Reads a range for which a task waits. Each run is read from its source like a page fault, so that
 * no source reads more than this range needs. */
static void read_fault(const struct runs *r, uint64_t off, struct zns_task task, struct iovec iov,
		       enum zns_read_how how, struct fault *f)
{
	const struct zns_err none = ZNS_ERR_INIT;

	for (size_t n = runs_find(r, off); iov.iov_len; n++) {
		struct iovec part = { iov.iov_base, zns_min(iov.iov_len, run_end(r, n) - off) };

		pthread_mutex_lock(&f->lock);
		f->running++;
		pthread_mutex_unlock(&f->lock);
		zns_rimage_read_lazy(r->from[r->run[n].source],
				     r->run[n].at + (off - r->run[n].off), task, &part, how,
				     fault_ended, f);
		off += part.iov_len;
		iov.iov_base = (char *)iov.iov_base + part.iov_len;
		iov.iov_len -= part.iov_len;
	}
	fault_ended(f, &none);
}

void runs_read_lazy(const struct runs *r, uint64_t off, struct zns_task task,
		    const struct iovec *iov, enum zns_read_how how, zns_read_done done, void *arg)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct fault *f = NULL;

	if (how == ZNS_READ_ORDERLY || how == ZNS_READ_BACKGROUND) {
		runs_read_iov(r, off, task, iov, 1, how, done, arg);
		return;
	}
	if (!check_range(r, off, iov->iov_len, &err) && !(f = calloc(1, sizeof(*f))))
		zns_fail(&err, -ENOMEM, "no memory for a read request");
	if (err.code) {
		done(arg, &err);
		return;
	}
	*f = (struct fault){
		.done = done, .arg = arg, .lock = PTHREAD_MUTEX_INITIALIZER, .running = 1
	};
	read_fault(r, off, task, *iov, how, f);
}

/* ---- any image ---- */

void zns_rimage_read_task(struct zns_rimage *i, uint64_t off, struct zns_task task,
			  const struct iovec *iov, uint32_t nr, zns_read_done done, void *arg)
{
	if (i->runs)
		runs_read_task(i->runs, off, task, iov, nr, done, arg);
	else
		raw_read_task(i, off, task, iov, nr, ZNS_READ_ORDERLY, done, arg);
}

void zns_rimage_read_lazy(struct zns_rimage *i, uint64_t off, struct zns_task task,
			  const struct iovec *iov, enum zns_read_how how, zns_read_done done,
			  void *arg)
{
	if (i->runs)
		runs_read_lazy(i->runs, off, task, iov, how, done, arg);
	else
		raw_read_task(i, off, task, iov, 1, how, done, arg);
}

void zns_rimage_read_parts(struct zns_rimage *i, struct zns_task task, struct zns_part *part,
			   size_t nr, zns_read_done done, void *arg)
{
	read_parts(i, task, part, nr, ZNS_READ_ORDERLY, done, arg);
}

int zns_rimage_read(struct zns_rimage *i, uint64_t off, void *buf, size_t len, struct zns_err *err)
{
	return i->runs ? runs_read(i->runs, off, buf, len, err) :
			 raw_read(i, off, len, buf, -1, err);
}

int zns_rimage_to_fd(struct zns_rimage *i, uint64_t off, uint64_t len, int fd, struct zns_err *err)
{
	cleanup_free uint8_t *buf = NULL;
	int ret = 0;

	if (!i->runs)
		return raw_read(i, off, len, NULL, fd, err);
	ret = check_range(i->runs, off, len, err);
	if (ret)
		return ret;
	buf = malloc(COPY_BYTES);
	if (!buf)
		return zns_fail(err, -ENOMEM, "no memory for image %s", i->runs->name);
	for (size_t part; len && !ret; off += part, len -= part) {
		part = zns_min(len, COPY_BYTES);
		ret = runs_read(i->runs, off, buf, part, err);
		if (ret)
			break;
		ret = zns_pwrite_all(fd, buf, part, (off_t)off);
		if (ret)
			zns_fail_sys(err, ret, "image %s: cannot write its copy", i->runs->name);
	}
	return ret;
}
