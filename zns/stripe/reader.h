/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_STRIPE_READER_H
#define ZNS_STRIPE_READER_H
/* Inside of the striping reader: units in memory (units.c), requests and workers (reader.c), images
 * that are put together from others (composed.c). */
#include <pthread.h>
#include "zns/reader.h"
#include "zns/layout.h"
#include "zns/util.h"
#include "runs.h"
#include "transform.h"

struct zns_rimage {
	struct zns_reader *r;
	const ZnsPb__Image *pb;
	const struct zns_crypt *crypt; /* NULL: none, or no key */
	struct zns_memory_key *memory; /* key of a memory context's units, if there is one */
	uint32_t index, level;
	uint32_t place; /* index in its own manifest */
	struct zns_seg *seg;
	struct runs *runs; /* of a composed image; NULL: the image has units of its own */
	struct request *first, **last; /* requests with units to hand out, in order of arrival */
	struct zns_rimage *link; /* in the reader's queue, while there are any */
	/* for reading ahead, when somebody reads in order and waits for each piece */
	uint64_t expected; /* the unit after the last one asked for */
	uint64_t ahead, ahead_end; /* units to be read before they are asked for */
	uint32_t ahead_depth; /* how far ahead; grows while the guesses are right */
	bool ahead_queued;
	struct zns_rimage *ahead_next;
};

#define READER_STREAMS 8 /* readers in order that are told apart */

enum unit_state { UNIT_IDLE, UNIT_LOADING, UNIT_READY };

/* One cached unit. Only idle-referenced ones (users == 0) are replaced. */
struct cached {
	const struct zns_rimage *img;
	uint64_t k;
	enum unit_state state;
	uint32_t users;
	bool fresh; /* it was read ahead, and nobody has asked for it yet */
	uint64_t stamp; /* when it was used last */
	uint64_t load; /* number of the load that brought it */
	uint8_t *buf; /* unit and two blocks of slack: packed images start off the block grid */
	size_t skip; /* bytes of buf before the unit */
};

/* Of a request for parts: a unit that holds some of them. */
struct wanted {
	uint64_t k;
	uint64_t len; /* how many of its bytes the request wants */
	size_t first; /* the first part in it */
};

struct request {
	struct zns_rimage *img;
	struct request *link; /* in the image's list, while units are left to hand out */
	uint64_t off, len;
	uint64_t next, end; /* units to hand out; of a request for parts: places in wanted[] */
	uint64_t left; /* units not done */
	struct zns_task task; /* its pid > 0: into its iov; else into mem, else into fd */
	struct iovec *iov;
	uint32_t nr;
	/*
	 * if not NULL: the parts to read, in place of off, iov, mem and fd; without a task into
	 * our own memory
	 */
	struct zns_part *part;
	size_t nr_parts;
	struct wanted *wanted;
	uint8_t *mem;
	int fd;
	struct zns_err err;
	bool urgent; /* before all others, and of a unit only what it takes */
	bool here; /* the caller's thread reads */
	bool no_ahead; /* do not read ahead: the caller asks for what comes next */
	/* for verification: called for each unit, and nothing is delivered */
	zns_unit_checked checked;
	zns_read_done done;
	void *arg;
};

/*
 * Delivers what the request wants of unit @c, which is its @n-th (deliver.c). Any thread; no lock
 * is needed.
 */
int request_deliver(const struct request *q, uint64_t n, const struct cached *c,
		    struct zns_err *err);

/* A thread of @r: takes units of requests, and reads ahead, until the reader stops (reader.c). */
void *reader_worker(void *r);

/* Reads of an image that has units of its own (reader.c). */
void raw_read_task(struct zns_rimage *i, uint64_t off, struct zns_task task,
		   const struct iovec *iov, uint32_t nr, enum zns_read_how how, zns_read_done done,
		   void *arg);
/* @how: not for a fault */
void raw_read_parts(struct zns_rimage *i, struct zns_task task, struct zns_part *part, size_t nr,
		    enum zns_read_how how, zns_read_done done, void *arg);
int raw_read(struct zns_rimage *i, uint64_t off, uint64_t len, void *buf, int fd,
	     struct zns_err *err); /* to @buf, or to the same place of @fd */

/* One read that its caller waits for: read_woken with it is the zns_read_done, read_await returns
 * its error and ends it. */
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
	bool sealed; /* encrypted units are handed out as they are */
	struct zns_rimage *img, **by_name;
	uint32_t nr_img, width; /* width: most zones that one image's units go round */
	size_t buf_len;
	pthread_mutex_t lock;
	pthread_cond_t work, change;
	bool stop;
	struct request *urgent, **urgent_tail; /* in order of arrival */
	struct zns_rimage *queue, **tail; /* images that are asked for, by turns */
	struct zns_rimage *ahead, **ahead_tail; /* for workers that have nothing else to do */
	/* images that were asked for a little, the latest first */
	const struct zns_rimage *recent[READER_STREAMS];
	uint32_t nr_recent;
	struct cached *cache;
	uint8_t *buffers;
	uint32_t nr_cache;
	uint32_t depth, in_flight; /* reads at the device; depth 0: as many as there are workers */
	uint64_t clock, nr_loads;
	pthread_t *thread;
	uint32_t nr_threads;
	uint64_t bytes, first_ns, last_ns;
	_Atomic uint64_t shared; /* bytes */
};

static inline uint32_t unit_len(const struct zns_rimage *i, uint64_t k)
{
	return (uint32_t)zns_min((uint64_t)i->pb->unit, i->pb->size - k * i->pb->unit);
}

/*
 * A unit whose place is @p through shared memory into @c, its bytes at c->buf + c->skip
 * (hot_unit.c). -EAGAIN: nothing there is of use, read it from the device alone. -EBADMSG: what the
 * device has is not the unit. @from, @to: whole blocks around it. No lock held.
 */
int hot_unit(struct zns_reader *r, struct cached *c, const struct zns_place *p, uint64_t from,
	     uint64_t to, struct zns_err *err);
/* Where unit @k of an image stands; -EBADMSG: nowhere. */
int unit_locate(const struct zns_rimage *i, uint64_t k, struct zns_place *p);
/* Get a unit into the cache, or wait until another thread has got it. Returns it referenced. Lock
 * held. */
struct cached *unit_get(struct zns_reader *r, const struct zns_rimage *i, uint64_t k,
			struct zns_err *err);
/*
 * The same for the bytes [from, to) of it. Where there are checksums of pieces, only the pieces
 * with these bytes are read. Then the buffer has nothing else, and nobody but the caller finds it.
 */
struct cached *unit_get_part(struct zns_reader *r, const struct zns_rimage *i, uint64_t k,
			     uint32_t from, uint32_t to, struct zns_err *err);
/* unit_get(), but not if somebody has or loads the unit, or if no buffer is free. Errors are
 * dropped. Lock held. */
void unit_ahead(struct zns_reader *r, const struct zns_rimage *i, uint64_t k);

#endif
