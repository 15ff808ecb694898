/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_STRIPE_READER_H
#define ZNS_STRIPE_READER_H
/* Inside of the striping reader: units.c keeps units in memory, reader.c has the requests and
 * the workers, composed.c reads images that are put together from others. */
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
	/* requests that still have units to hand out, in order of arrival */
	struct request *first, **last;
	struct zns_rimage *link; /* the next image in the reader's queue */
	/* for reading ahead, when the image is read in order and each read is waited for */
	uint64_t expected; /* the unit after the last one asked for */
	uint64_t ahead, ahead_end; /* range of units to read ahead */
	uint32_t ahead_depth; /* how many units to read ahead; grows while the guesses are right */
	bool ahead_queued;
	struct zns_rimage *ahead_next;
};

#define READER_STREAMS 8 /* how many sequential readers can be told apart */

enum unit_state { UNIT_IDLE, UNIT_LOADING, UNIT_READY };

/* One cached unit. It may be replaced only while nobody uses it (users == 0). */
struct cached {
	const struct zns_rimage *img;
	uint64_t k;
	enum unit_state state;
	uint32_t users;
	bool fresh; /* it was read ahead, and no request has asked for it yet */
	bool urgent; /* a page fault reads it */
	uint64_t stamp; /* time of its last use, as a counter */
	uint64_t load; /* number of the read that brought it */
	/* the unit and two blocks of slack, since packed images do not start on the block grid */
	uint8_t *buf;
	size_t skip; /* bytes of buf before the unit */
};

/* A unit that holds some parts of a request for parts. */
struct wanted {
	uint64_t k;
	uint64_t len; /* how many of its bytes the request wants */
	size_t first; /* index of the first part in it */
};

struct request {
	struct zns_rimage *img;
	/* the next request of the same image that has units left to hand out */
	struct request *link;
	uint64_t off, len;
	/* the units to hand out; in a request for parts: indexes into wanted[] */
	uint64_t next, end;
	uint64_t left; /* units that are not delivered yet */
	/* pid > 0: the destination is iov in that task; else it is mem, or fd if mem is NULL */
	struct zns_task task;
	struct iovec *iov;
	uint32_t nr;
	/* not NULL: the parts to read. off, iov, mem and fd are not used then; without a task
	 * each part goes into our own memory */
	struct zns_part *part;
	size_t nr_parts;
	struct wanted *wanted;
	uint8_t *mem;
	int fd;
	struct zns_err err;
	/* goes before all other requests, and reads only the bytes it needs of a unit */
	bool urgent;
	bool waited; /* a task waits for it: before all others at the token bucket */
	bool here; /* the caller's own thread does the reading */
	bool no_ahead; /* do not read ahead: the caller announces itself what it will want */
	bool background; /* low priority: no task waits for it */
	/* set for verification: it is called for each unit, and nothing is delivered */
	zns_unit_checked checked;
	zns_read_done done;
	void *arg;
};

/* Delivers the bytes of unit @c that the request wants; @n is the unit's index in the request.
 * Any thread may call it, without a lock (deliver.c). */
int request_deliver(const struct request *q, uint64_t n, const struct cached *c,
		    struct zns_err *err);

/* A thread of @r: takes units of requests, and reads ahead, until the reader stops (reader.c). */
void *reader_worker(void *r);

/* Reads of an image that has units of its own (reader.c). */
void raw_read_task(struct zns_rimage *i, uint64_t off, struct zns_task task,
		   const struct iovec *iov, uint32_t nr, enum zns_read_how how, zns_read_done done,
		   void *arg);
/* @how must not be that of a page fault */
void raw_read_parts(struct zns_rimage *i, struct zns_task task, struct zns_part *part, size_t nr,
		    enum zns_read_how how, zns_read_done done, void *arg);
int raw_read(struct zns_rimage *i, uint64_t off, uint64_t len, void *buf, int fd,
	     struct zns_err *err); /* into @buf, or to the same offset of @fd */

/* For a caller that waits for its read: give zns_read_done read_woken and this as its argument;
 * read_await() waits, ends the wait and returns the read's error. */
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
	/* width: the most zones over which the units of one image go round */
	uint32_t nr_img, width;
	size_t buf_len;
	pthread_mutex_t lock;
	pthread_cond_t work, change;
	bool stop;
	struct request *urgent, **urgent_tail; /* in order of arrival */
	struct zns_rimage *queue, **tail; /* images that have requests; served in turns */
	/* images with units to read ahead, for workers that have nothing else to do */
	struct zns_rimage *ahead, **ahead_tail;
	/* the images with the most recent small requests, latest first */
	const struct zns_rimage *recent[READER_STREAMS];
	uint32_t nr_recent;
	struct cached *cache;
	uint8_t *buffers;
	uint32_t nr_cache;
	uint64_t clock, nr_loads;
	pthread_t *thread;
	/* nr_background: how many threads serve a background request now */
	uint32_t nr_threads, nr_background;
	uint64_t bytes, first_ns, last_ns;
	_Atomic uint64_t shared; /* bytes */
};

static inline uint32_t unit_len(const struct zns_rimage *i, uint64_t k)
{
	return (uint32_t)zns_min((uint64_t)i->pb->unit, i->pb->size - k * i->pb->unit);
}

/*
 * Reads the unit at @p through the memory that restores share (hot_unit.c), into @c: its bytes
 * go to c->buf + c->skip, and [@from, @to) are the whole blocks around them. No lock held.
 * -EAGAIN: the shared memory is of no use for this unit, read it from the device. -EBADMSG: the
 * device holds something other than the unit.
 */
int hot_unit(struct zns_reader *r, struct cached *c, const struct zns_place *p, uint64_t from,
	     uint64_t to, struct zns_err *err);
/* Finds the place of unit @k of an image. -EBADMSG: the manifest names none. */
int unit_locate(const struct zns_rimage *i, uint64_t k, struct zns_place *p);
/* Reads a unit into the cache, or waits until another thread has read it. Returns it with a
 * reference. @urgent: before all others at the token bucket. Lock held. */
struct cached *unit_get(struct zns_reader *r, const struct zns_rimage *i, uint64_t k, bool urgent,
			struct zns_err *err);
/*
 * As unit_get(), for the bytes [from, to) of the unit. If the manifest has checksums of pieces,
 * only the pieces with these bytes are read; such a buffer is the caller's alone, since the rest
 * of the unit is missing.
 */
struct cached *unit_get_part(struct zns_reader *r, const struct zns_rimage *i, uint64_t k,
			     uint32_t from, uint32_t to, bool urgent, struct zns_err *err);
/* Reads a unit into the cache before somebody asks for it, unless a thread has or reads it
 * already or no buffer is free. Errors are dropped. Lock held. */
void unit_ahead(struct zns_reader *r, const struct zns_rimage *i, uint64_t k);

#endif
