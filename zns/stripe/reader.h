/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_STRIPE_READER_H
#define ZNS_STRIPE_READER_H
/* Internals of the striping reader: units.c reads and caches units, reader.c has the requests and
 * the workers, composed.c reads images that are composed of others. */
#include <pthread.h>
#include "zns/reader.h"
#include "zns/layout.h"
#include "zns/util.h"
#include "runs.h"
#include "transform.h"

struct zns_rimage {
	struct zns_reader *r;
	const ZnsPb__Image *pb;
	/* NULL: the checkpoint is not encrypted, or its key is not known */
	const struct zns_crypt *crypt;
	/* the key of units that a memory context wrote; NULL: there are no such units, or the key
	 * is not known */
	struct zns_memory_key *memory;
	uint32_t index, level;
	uint32_t place; /* index of the image in its own manifest */
	struct zns_seg *seg;
	struct runs *runs; /* set for a composed image; NULL: the image has units of its own */
	/* requests that still have units to be read, in order of arrival */
	struct request *first, **last;
	struct zns_rimage *link; /* the next image in the reader's queue */
	/* for reading ahead, if the image is read sequentially by a caller that waits for each
	 * read */
	uint64_t expected; /* the unit after the last one that was requested */
	uint64_t ahead, ahead_end; /* range of units to read ahead */
	/* how many units to read ahead; grows as long as the units are then requested */
	uint32_t ahead_depth;
	bool ahead_queued;
	struct zns_rimage *ahead_next;
};

#define READER_STREAMS 8 /* how many sequential readers can be told apart */

enum unit_state { UNIT_IDLE, UNIT_LOADING, UNIT_READY };

/* One cached unit. It may be replaced only while it is not in use (users == 0). */
struct cached {
	const struct zns_rimage *img;
	uint64_t k;
	enum unit_state state;
	uint32_t users;
	bool fresh; /* it was read ahead, and no request has used it yet */
	bool urgent; /* a page fault reads it */
	uint64_t stamp; /* time of its last use, by a counter of uses */
	/* number of the read that filled it, so that a waiting thread notices when it is filled
	 * again */
	uint64_t load;
	/* room for the unit and two more blocks, since the units of packed images need not start at
	 * a block */
	uint8_t *buf;
	size_t skip; /* offset of the unit in buf */
};

/* A unit that contains parts of a request for parts. */
struct wanted {
	uint64_t k;
	uint64_t len; /* how many bytes of the unit the request wants */
	size_t first; /* index of the first part that is in the unit */
};

struct request {
	struct zns_rimage *img;
	/* the next request to the same image that has units to be read */
	struct request *link;
	uint64_t off, len;
	/* the units still to be read; in a request for parts they are indices of wanted[] */
	uint64_t next, end;
	uint64_t left; /* units that are not delivered yet */
	/* pid > 0: the destination is iov in that task; else it is mem, or fd if mem is NULL */
	struct zns_task task;
	struct iovec *iov;
	uint32_t nr;
	/* not NULL: the parts to read; off, iov, mem and fd are not used then. Without a task each
	 * part goes to our own memory */
	struct zns_part *part;
	size_t nr_parts;
	struct wanted *wanted;
	uint8_t *mem;
	int fd;
	struct zns_err err;
	/* served before all other requests; reads only those bytes of a unit that it needs */
	bool urgent;
	bool waited; /* a task waits for it, so it also goes first at the token bucket */
	bool here; /* the calling thread reads */
	bool no_ahead; /* do not read ahead, since the caller decides what is read next */
	bool background; /* low priority: no task waits for it */
	/* for verification: called for each unit; nothing is delivered */
	zns_unit_checked checked;
	zns_read_done done;
	void *arg;
};

/* Delivers the bytes of unit @c that the request wants; @n is the unit's index in the request. May
 * be called by any thread, without a lock (deliver.c). */
int request_deliver(const struct request *q, uint64_t n, const struct cached *c,
		    struct zns_err *err);

/* The function of a worker thread of @r: processes units of requests, and reads ahead, until the
 * reader is stopped (reader.c). */
void *reader_worker(void *r);

/* Read an image that has units of its own (reader.c). */
void raw_read_task(struct zns_rimage *i, uint64_t off, struct zns_task task,
		   const struct iovec *iov, uint32_t nr, enum zns_read_how how, zns_read_done done,
		   void *arg);
/* @how must not be that of a page fault */
void raw_read_parts(struct zns_rimage *i, struct zns_task task, struct zns_part *part, size_t nr,
		    enum zns_read_how how, zns_read_done done, void *arg);
int raw_read(struct zns_rimage *i, uint64_t off, uint64_t len, void *buf, int fd,
	     struct zns_err *err); /* reads to @buf, or to the same offset of @fd if @buf is NULL */

/* For a caller that waits for its read: pass read_woken as zns_read_done with this struct as its
 * argument. read_await() waits for the read, destroys the struct's contents and returns the read's
 * error. */
struct read_wait {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool done;
	struct zns_err err;
};
#define READ_WAIT_INIT                                                                   \
	{                                                                                \
		PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, ZNS_ERR_INIT \
	}
void read_woken(void *arg, const struct zns_err *err);
int read_await(struct read_wait *w, struct zns_err *err);

struct zns_reader {
	struct zns_dev *dev;
	struct zns_bucket *bucket;
	struct zns_hot *hot;
	bool sealed; /* encrypted units are delivered in their encrypted form */
	struct zns_rimage *img, **by_name;
	/* width: the largest number of zones over which the units of one image are striped */
	uint32_t nr_img, width;
	size_t buf_len;
	pthread_mutex_t lock;
	pthread_cond_t work, change;
	bool stop;
	struct request *urgent, **urgent_tail; /* urgent requests in order of arrival */
	struct zns_rimage *queue, **tail; /* images that have requests; they take turns */
	/* images with units to be read ahead by idle workers */
	struct zns_rimage *ahead, **ahead_tail;
	/* the images of the last small requests, latest first */
	const struct zns_rimage *recent[READER_STREAMS];
	uint32_t nr_recent;
	struct cached *cache;
	uint8_t *buffers;
	uint32_t nr_cache;
	uint64_t clock, nr_loads;
	pthread_t *thread;
	/* nr_background: how many threads are serving a background request */
	uint32_t nr_threads, nr_background;
	uint64_t bytes, first_ns, last_ns;
	_Atomic uint64_t shared; /* bytes that came from the cache shared with other restores */
};

static inline uint32_t unit_len(const struct zns_rimage *i, uint64_t k)
{
	return (uint32_t)zns_min((uint64_t)i->pb->unit, i->pb->size - k * i->pb->unit);
}

/*
 * Reads the unit at @p into @c through the cache that restores share (hot_unit.c): its bytes go to
 * c->buf + c->skip; [@from, @to) are the whole blocks around them. No lock held. -EAGAIN: the cache
 * is not used for this unit, so it must be read from the device. -EBADMSG: the device has something
 * other than the unit.
 */
int hot_unit(struct zns_reader *r, struct cached *c, const struct zns_place *p, uint64_t from,
	     uint64_t to, struct zns_err *err);
/* Finds the place of unit @k of an image. -EBADMSG: the manifest has no place for it. */
int unit_locate(const struct zns_rimage *i, uint64_t k, struct zns_place *p);
/* Reads a unit into the cache, or waits until another thread has read it. Returns it with a
 * reference. @urgent: goes first at the token bucket. Lock held. */
struct cached *unit_get(struct zns_reader *r, const struct zns_rimage *i, uint64_t k, bool urgent,
			struct zns_err *err);
/*
 * Like unit_get(), for the bytes [from, to) of the unit. If the manifest has checksums of pieces,
 * only the pieces with these bytes are read. The buffer is then not shared with other requests,
 * since the rest of the unit is missing.
 */
struct cached *unit_get_part(struct zns_reader *r, const struct zns_rimage *i, uint64_t k,
			     uint32_t from, uint32_t to, bool urgent, struct zns_err *err);
/* Reads a unit into the cache before it is requested, unless it is there, is being read, or no
 * buffer is free. Errors are ignored. Lock held. */
void unit_ahead(struct zns_reader *r, const struct zns_rimage *i, uint64_t k);

#endif
