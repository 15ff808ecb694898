/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The pages that tasks touch first after a lazy restore (--zns-record). What the daemon fetches
 * while it records, for faults, is written down, in order, as a record of the checkpoint. The next
 * lazy restore gets it back as a list to be fetched before the tasks run.
 */
#include <stdio.h>
#include <string.h>
#include "../helper.h"
#include "zns-memfd.h"
#include "zns/first_pages.h"
#include "zns/flat.h"
#include "zns/grow.h"

#define RUNS_MAX (1u << 15) /* most runs noted; a record takes fewer */
/* Up to this size pages are read in the order of their first touches. Within it they are read in
 * the order of the device. */
#define BATCH MIB(64)

struct note {
	uint32_t image; /* index */
	uint64_t off, len;
};

static struct {
	bool on, ended;
	pthread_mutex_t lock; /* the loop notes, a thread stores */
	struct note *v;
	size_t nr, max, lost;
} noted = { .lock = PTHREAD_MUTEX_INITIALIZER };

void first_begin(void)
{
	noted.on = true;
}

void first_fetch(const struct zns_rimage *img, uint64_t off, uint64_t len)
{
	if (!noted.on || noted.ended)
		return;
	pthread_mutex_lock(&noted.lock);
	if (noted.nr == RUNS_MAX || zns_grow(noted.v, noted.nr, noted.max))
		noted.lost++;
	else
		noted.v[noted.nr++] = (struct note){ zns_rimage_index(img), off, len };
	pthread_mutex_unlock(&noted.lock);
}

/* ---- recording ---- */

static bool pages_number(const char *name, uint32_t *out)
{
	char again[ZW_NAME];
	unsigned n;

	if (sscanf(name, "pages-%u.img", &n) != 1)
		return false;
	*out = n;
	snprintf(again, sizeof(again), "pages-%u.img", n);
	return !strcmp(name, again);
}

static uint64_t bytes_of(const struct zns_first_run *run, size_t nr)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < nr; i++)
		bytes += run[i].len;
	return bytes;
}

static int store(struct helper *h, const struct zns_first_run *run, size_t nr, size_t *kept,
		 struct zns_err *err)
{
	ZnsPb__FirstPages f = ZNS_PB__FIRST_PAGES__INIT;
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	const struct zns_crypt *c = zns_chain_crypt(h->chain, 0);
	cleanup_free uint8_t *list = NULL;
	int ret = 0;

	*kept = 0;
	f.checkpoint = zns_chain_manifest(h->chain, 0)->checkpoint->id;
	f.has_sealed = f.sealed = c != NULL;
	if (nr) /* otherwise the earlier record is removed */
		ret = zns_first_pack(run, nr, c, &list, &f.runs.len, kept, err);
	f.runs.data = list;
	req.first_pages = &f;
	return ret ? ret : zns_session_tell(&h->s, &req, err);
}

static int record(struct helper *h, struct zw_reply *r, struct zns_err *err)
{
	cleanup_free struct zns_first_run *run = NULL;
	char size[32];
	size_t nr = 0, kept = 0, all;
	int ret;

	pthread_mutex_lock(&noted.lock);
	run = calloc(noted.nr + 1, sizeof(*run));
	for (size_t i = 0; run && i < noted.nr; i++) {
		const struct note *n = &noted.v[i];
		const struct zns_rimage *img = zns_reader_image(zns_chain_reader(h->chain),
								n->image);

		run[nr] = (struct zns_first_run){ .off = n->off, .len = n->len };
		nr += pages_number(zns_rimage_name(img), &run[nr].image);
	}
	all = nr + noted.lost;
	pthread_mutex_unlock(&noted.lock);
	ret = run ? store(h, run, nr, &kept, err) :
		    zns_fail(err, -ENOMEM, "no memory for a list of first pages");
	if (ret)
		return zns_wrap(err, "the pages touched first are not recorded");
	snprintf(r->msg, sizeof(r->msg), "first pages recorded: %zu of %zu reads, %s", kept, all,
		 zns_format_size(bytes_of(run, kept), size, sizeof(size)));
	return 0;
}

struct job {
	struct helper *h;
	int reply;
};

/* Beside the message loop: a fault does not wait until the record is durable. */
static void *record_run(void *arg)
{
	struct job *j = arg;
	struct zns_err err = ZNS_ERR_INIT;
	struct zw_reply r = { 0 };

	if (record(j->h, &r, &err))
		reply_error(j->reply, &err);
	else
		reply_send(j->reply, &r, -1);
	close(j->reply);
	free(j);
	return NULL;
}

static int record_start(struct helper *h, struct packet *p, struct zns_err *err)
{
	struct job *j = malloc(sizeof(*j));
	pthread_t t;

	if (!j)
		return zns_fail(err, -ENOMEM, "no memory for a list of first pages");
	*j = (struct job){ h, packet_take_fd(p, 0) };
	if (!pthread_create(&t, NULL, record_run, j)) {
		pthread_detach(t);
		return 0;
	}
	p->fd[0] = j->reply;
	free(j);
	return zns_fail(err, -EAGAIN, "cannot start a thread");
}

/* ---- the list for the next restore ---- */

struct list {
	struct zw_first *v;
	size_t nr, max;
};

static int by_place(const void *a, const void *b)
{
	const struct zw_first *x = a, *y = b;

	if (x->image != y->image)
		return x->image < y->image ? -1 : 1;
	return x->off < y->off ? -1 : x->off > y->off;
}

/* Neighbours become one, overlaps go, pieces are cut where the daemon's buffers end. */
static int add_sorted(struct list *out, const struct zw_first *v, size_t nr)
{
	uint64_t image = UINT64_MAX, end = 0;

	for (size_t i = 0; i < nr; i++) {
		uint64_t off = v[i].off, stop = v[i].off + v[i].len;

		if (v[i].image == image && off < end)
			off = end;
		while (off < stop) {
			struct zw_first *last = out->nr ? &out->v[out->nr - 1] : NULL;
			uint64_t part = zns_min(stop, (off / ZW_FIRST_LEN + 1) * ZW_FIRST_LEN);

			if (last && last->image == v[i].image && last->off + last->len == off &&
			    off % ZW_FIRST_LEN) {
				last->len += part - off;
			} else {
				if (zns_grow(out->v, out->nr, out->max))
					return -ENOMEM;
				out->v[out->nr++] = (struct zw_first){ v[i].image, off,
								       part - off };
			}
			off = part;
		}
		image = v[i].image;
		end = zns_max(end, stop);
	}
	return 0;
}

/*
 * A stripe's units lie in all of its zones in turn, each zone in order. So the order of the image
 * is that of the device, over all zones.
 */
static int in_order(struct zw_first *v, size_t nr, struct list *out, struct zns_err *err)
{
	for (size_t i = 0, from = 0; i < nr; from = i) {
		for (uint64_t bytes = 0; i < nr && bytes < BATCH; i++)
			bytes += v[i].len;
		qsort(v + from, i - from, sizeof(*v), by_place);
		if (add_sorted(out, v + from, i - from))
			return zns_fail(err, -ENOMEM, "no memory for it");
	}
	return 0;
}

/* Finds the images. Anybody may have written a record: it is not used at all if any part does not
 * fit. */
static int resolve(const struct helper *h, const struct zns_flat *flat,
		   const struct zns_first_run *run, size_t *nr, struct zw_first *v,
		   struct zns_err *err)
{
	uint64_t all = zns_chain_bytes(h->chain), bytes = 0;

	for (size_t i = 0; i < *nr; i++) {
		struct zns_rimage *img;
		char name[ZW_NAME];
		uint64_t size;
		uint32_t n;

		snprintf(name, sizeof(name), "pages-%u.img", run[i].image);
		img = zns_chain_find(h->chain, 0, name);
		if (!img)
			return zns_fail(err, -EBADMSG, "the checkpoint has no %s", name);
		n = zns_rimage_index(img);
		size = flat && zns_flat_is(flat, n) ? zns_flat_size(flat, n) : zns_rimage_size(img);
		if (run[i].len > size || run[i].off > size - run[i].len)
			return zns_fail(err, -EBADMSG, "%s is shorter than it says", name);
		/* Children of a fork touch the same pages again, but not without end. */
		bytes += run[i].len;
		if (bytes > all) {
			*nr = i;
			break;
		}
		v[i] = (struct zw_first){ n, run[i].off, run[i].len };
	}
	return 0;
}

static int make_list(const struct helper *h, const struct zns_flat *flat,
		     const ZnsPb__FirstPages *f, struct list *out, struct zns_err *err)
{
	cleanup_free struct zns_first_run *run = NULL;
	cleanup_free struct zw_first *v = NULL;
	size_t nr;
	const ZnsPb__Checkpoint *c = zns_chain_manifest(h->chain, 0)->checkpoint;
	int ret;

	if (f->checkpoint.len != c->id.len || memcmp(f->checkpoint.data, c->id.data, c->id.len))
		return zns_fail(err, -EBADMSG, "it is of another checkpoint");
	ret = zns_first_unpack(f, zns_chain_crypt(h->chain, 0), &run, &nr, err);
	if (ret)
		return ret;
	v = calloc(nr + 1, sizeof(*v));
	if (!v)
		return zns_fail(err, -ENOMEM, "no memory for it");
	ret = resolve(h, flat, run, &nr, v, err);
	return ret ? ret : in_order(v, nr, out, err);
}

static int list_memfd(const struct list *l, struct zns_err *err)
{
	int fd = zns_memfd("zns-first"), ret;

	if (fd < 0)
		return zns_fail_sys(err, -errno, "no memory for it");
	ret = zns_pwrite_all(fd, l->v, l->nr * sizeof(*l->v), 0);
	if (!ret)
		return fd;
	close(fd);
	return zns_fail_sys(err, ret, "no memory for it");
}

/* Without a record the restore works as usual, so errors here do not fail it. */
static void answer_list(struct helper *h, struct packet *p, const struct zns_flat *flat,
			const ZnsPb__FirstPages *recorded)
{
	struct zw_reply r = { .kind = ZW_KIND_NONE };
	struct zns_err err = ZNS_ERR_INIT;
	struct list list = { 0 };
	cleanup_close int fd = -1;
	int ret = recorded ? make_list(h, flat, recorded, &list, &err) : 0;

	if (!ret && list.nr)
		ret = fd = list_memfd(&list, &err);
	if (fd >= 0) {
		r.kind = ZW_KIND_FD;
		r.size = list.nr * sizeof(*list.v);
	}
	if (ret < 0) {
		r.warn = 1;
		snprintf(
			r.msg, sizeof(r.msg),
			"the record of the pages touched first is ignored: %s; --zns-record makes a new one",
			err.msg);
	}
	free(list.v);
	reply_send(p->fd[0], &r, fd);
}

int first_serve(struct helper *h, struct packet *p, const struct zns_flat *flat,
		const ZnsPb__FirstPages *recorded, struct zns_err *err)
{
	noted.ended = noted.on;
	if (noted.on)
		return record_start(h, p, err);
	answer_list(h, p, flat, recorded);
	return 0;
}
