/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_STRIPE_WRITER_H
#define ZNS_STRIPE_WRITER_H
/* Inside of the striping writer, shared by its files: lanes and segments (lanes.c), workers, images, repair, finish. */
#include <pthread.h>
#include "zns/layout.h"
#include "zns/util.h"
#include "zns/writer.h"
#include "transform.h"

#define MAX_BAD 16	/* zones that may fail in one dump; more is no matter of zones */
#define NAME_BUCKETS 1024	/* a tree of thousands of tasks has tens of thousands of images */

/* One zone being written by this dump. Lives until the writer is freed: segments point at it. */
struct wzone {
	struct zns_zone_slot slot;
	uint64_t pos;		/* assigned up to here */
	uint64_t written;	/* on the device up to here; the order of writes hangs on it */
	pthread_cond_t turn;	/* written moved on, or bad */
	bool bad;		/* a write failed, or it is read-only or offline: takes no more */
	bool repaired;		/* bad, and nothing waits for it any more */
	bool checked;		/* bad, and what it holds was read back after a flush */
	struct wzone *next;
	struct wzone *next_retired;
};

/* One of the stripe's `width` places: a group and its current zone (none before it is needed). */
struct lane {
	uint32_t group, weight;
	uint64_t load;		/* bytes given to it so far, over its weight */
	struct wzone *wz;
	uint64_t backlog;	/* bytes placed and not written */
	uint32_t taken;		/* units of it in workers' hands */
	/* How fast it takes them (weights.c): running means over the last writes. */
	uint32_t samples, run;	/* run: writes of the next sample */
	uint64_t run_ns, run_bytes;
	double ns_per_byte, deviation, last;	/* last: sample */
	uint64_t end_ns;	/* of the last write */
	uint32_t writers;	/* of its group, as told; 0: not */
	uint8_t row;		/* a bit for each of the last writes, newest lowest: it followed at once on the one before */
};

struct packed {
	struct zns_wimage *img;
	uint32_t off;		/* in the pack unit */
};

/* Where a unit can be had again: task memory, or a copy of its bytes. */
struct source {
	bool ready;		/* as they are on the device; else as they were given */
	pid_t pid;
	uint32_t nr_iov;	/* 0: bytes stand where iov is */
	struct iovec iov[];
};

struct job {
	struct zns_wimage *img;	/* NULL: a pack unit */
	uint64_t k;		/* unit of the image */
	uint32_t len;
	struct wzone *wz;
	struct lane *lane;	/* that it was placed on; NULL: by itself (a pack unit) */
	uint64_t off;		/* in the zone */
	uint8_t *data;		/* owned; or NULL and the memory of a task: */
	bool counted;		/* in nr_data */
	bool ready;		/* its bytes are as they shall be on the device, which is what these are of: */
	uint64_t csum;
	uint64_t piece[ZNS_STRIPE_UNIT_MAX / ZNS_PIECE];	/* of pages that are not encrypted */
	uint8_t tag[ZNS_TAG_BYTES];
	pid_t pid;
	struct iovec *iov;
	uint32_t nr_iov, max_iov;
	struct job *next;
};

struct zns_wimage {
	struct zns_writer *w;
	struct zns_wimage *next, *next_name;
	bool pages, sealed;
	uint32_t index;		/* its place in the manifest */
	uint64_t nr_units;	/* dispatched */
	uint32_t ungathered;	/* units whose task memory is not read yet */
	struct job *open;	/* unit being filled */
	ZnsPb__Image pb;	/* what the manifest says of it */
	size_t max_segments, max_csums, max_tags, max_pieces;
	struct source **source;	/* of each unit; NULL: not kept */
	size_t max_sources;
};

struct slab {
	uint8_t *mem;
	struct slab *next;
};

struct zns_writer {
	struct zns_dev *dev;
	struct zns_bucket *bucket;
	const struct zns_crypt *crypt;	/* NULL: plain */
	uint32_t unit, block;
	uint32_t zone_mibps;	/* of one zone alone; 0: not known */
	_Atomic bool crowded;	/* short commands, see zns_writer_crowded */
	int (*zone_get)(void *arg, const struct zns_zone_wish *wish, struct zns_zone_slot *out, struct zns_err *err);
	void *arg;

	pthread_mutex_t lock;
	pthread_cond_t work;	/* queue not empty, or stop */
	pthread_cond_t idle;	/* a job ended: room in the queue, settle, finish */
	struct zns_err err;
	bool stop;

	struct lane *lane;	/* room for as many as a stripe may have: units point at them */
	uint32_t nr_lanes;
	struct lane *meta_lane;	/* behind the others; NULL: whatever is no page goes with the pages */
	bool widened;		/* lanes came that have no part of the work yet */
	bool told;		/* of others that came to a lane's group, or left it */
	bool ending;		/* no more units will come */
	bool placing;		/* a placement may wait with the lock dropped: others wait for it */
	struct wzone *zones;	/* every zone used, newest first */
	struct wzone *retired;	/* those that left their lane, until znsd is told */
	uint32_t nr_zones;
	uint32_t bad[MAX_BAD], nr_bad;
	bool repairing;		/* units get new places; none is written meanwhile */
	uint32_t nr_unrepaired;	/* zones that are bad, but not repaired */
	struct zns_err bad_err;	/* of the last one */
	struct job *orphans;	/* units placed on bad zones, in no order */

	struct zns_seg seg;	/* the segment being written … */
	struct zns_wimage *seg_owner;	/* … by this image; NULL: none */
	struct lane *seg_lane[ZNS_STRIPE_MAX_WIDTH];
	uint64_t seg_units, seg_capacity;
	struct zns_wimage *seg_img;	/* what was placed last is of this image; NULL: it is not any one's */
	uint64_t run_first;	/* its units from this one on were placed in a row */
	/* weights.c */
	uint32_t plan[ZNS_STRIPE_MAX_WIDTH];	/* of each lane: weights of the next segment alone, 0: leave it out … */
	uint64_t plan_units;	/* … which has so many units; 0: no plan */
	uint64_t written_units, changed, looked;	/* so far, at the last change, at the last look */

	struct zns_wimage *images, **images_tail;
	uint32_t nr_images;
	const ZnsPb__Checkpoint *with;	/* zns_writer_adopt; NULL: none */
	const ZnsPb__Manifest *with_m;
	uint64_t unit_base;	/* of its images, in nonces */
	struct zns_wimage *by_name[NAME_BUCKETS];
	struct job *pack;
	struct packed *packed;
	uint32_t nr_packed, max_packed;

	size_t kept_iov, kept_data;	/* bytes that sources take */
	struct slab *slabs;
	uint8_t *units;		/* free buffers of a unit each, chained by their first bytes */
	struct job *queue, **queue_tail;
	uint32_t nr_queued, max_queued, nr_running;
	uint32_t nr_data, max_data;	/* units with bytes of their own, queued or being written */
	pthread_t *thread;
	uint32_t nr_threads, nr_started;	/* started: as many as there should be, known before the first runs */
	uint32_t max_threads;	/* as many as memory allows */
	uint32_t nr_ahead;	/* units in workers' hands whose lane has an older one there */
	struct zns_writer_stats stats;
};

/* lanes.c; all with the lock held */
int writer_place(struct zns_writer *w, struct job *j, uint64_t hint_units);
int writer_place_again(struct zns_writer *w, struct job *j, uint64_t hint_units);	/* between begin and end */
int writer_place_single(struct zns_writer *w, uint64_t len, struct wzone **wz, uint64_t *off);
void writer_placing_begin(struct zns_writer *w);	/* nobody else places until the end; drops the lock while waiting */
void writer_placing_end(struct zns_writer *w);
/*
 * A new zone of @group with room for @need bytes, on no lane and not retired yet. NULL: the writer's error is set; or
 * not, and *@busy is: the limits allow none, and the caller (who gave @busy) may have a way out.
 */
struct wzone *writer_new_zone(struct zns_writer *w, uint32_t group, uint64_t need, bool *busy);
void writer_retire(struct zns_writer *w, struct wzone *z);
int writer_check_slot(const struct zns_writer *w, const struct zns_zone_slot *s, struct zns_err *err);
struct wzone *writer_add_zone(struct zns_writer *w, const struct zns_zone_slot *slot);	/* NULL: no memory */
ZnsPb__Segment *writer_add_segment(struct zns_wimage *i, uint64_t off, uint32_t nr_extents);
void writer_cut_segments(struct zns_wimage *i, uint64_t size);	/* nothing from @size on has a place */

/*
 * weights.c; lock held. One write of a lane's unit: how long it took, without what the bucket made it wait; @paced: the
 * bucket has a rate.
 */
void weights_sample(struct lane *l, const struct wzone *z, uint64_t off, uint64_t len, uint64_t start_ns, uint64_t ns,
		    bool paced);
/* Change them if it is time to; @more: units are waiting for places, else only what has one is dealt out anew. */
void weights_look(struct zns_writer *w, bool more);	/* may drop the lock */
bool weights_saturated(const struct lane *l);	/* one write after the other: the zone is what it waits for */

/* repair.c; all with the lock held, which may be dropped */
bool writer_zone_fault(int code);	/* an error of a write that another zone may not give */
void writer_zone_failed(struct zns_writer *w, struct wzone *z, const struct zns_err *why);
/* Give units of bad zones new places. Returns the writer's error. */
int writer_repair(struct zns_writer *w);
/* All is written: read back what bad zones hold, and move what is lost. Returns the writer's error. */
int writer_audit(struct zns_writer *w);

/* rescue.c: what stands in a zone, and how to have it again */
struct piece {
	struct zns_wimage *img;
	uint64_t k;		/* unit of the image */
	uint64_t off;		/* in the zone */
	uint32_t len;
};
/* What the zone has between two offsets, in order; caller frees. -ENOMEM. */
int rescue_list(struct zns_writer *w, uint32_t zone, uint64_t from, uint64_t to, struct piece **out, size_t *nr);
/* How many of the pieces, from the first on, begin in the blocks that the first one needs: they move together. */
size_t rescue_run(const struct zns_writer *w, const struct piece *p, size_t nr, uint64_t *off, uint64_t *len);
/* A run of pieces into @buf, every one verified: from the zone, else from the source. @again: not from the zone alone */
int rescue_fetch(struct zns_writer *w, uint32_t zone, const struct piece *p, size_t nr, bool again, uint8_t *buf,
		 struct zns_err *err);
void rescue_keep_mem(struct zns_writer *w, const struct job *j);	/* lock held; best effort */
/* @ready: the bytes are as they shall be on the device */
void rescue_keep_data(struct zns_writer *w, struct zns_wimage *i, uint64_t k, const void *buf, size_t len, bool ready);
void rescue_drop(struct zns_wimage *i);
/* writer.c: write out the unit that small images share; their places are known then. Lock held. */
int writer_flush_pack(struct zns_writer *w);

/* workers.c */
/* In pieces that device and bucket like; every piece pays. The zone's turn must have come. No lock held. */
int writer_write(struct zns_writer *w, uint32_t zone, uint64_t off, const uint8_t *buf, size_t len, struct zns_err *err);
int writer_start_workers(struct zns_writer *w, uint32_t nr, struct zns_err *err);	/* so many more */
uint32_t writer_wanted_workers(uint32_t width);
void writer_set_depth(struct zns_writer *w);	/* how many units are queued at most, by lanes and workers */
void writer_stop_workers(struct zns_writer *w);
/* Until something changed; repairs zones and looks at the weights (@more: as weights_look). Lock held, dropped meanwhile. */
void writer_wait(struct zns_writer *w, bool more);
/* Until one more job may be queued; @data: one that brings its bytes along. Lock held, dropped while waiting. */
void writer_wait_room(struct zns_writer *w, bool data);
int writer_enqueue(struct zns_writer *w, struct job *j, uint64_t hint_units);	/* lock held; may wait for room */
int writer_gather(pid_t pid, const struct iovec *iov, uint32_t nr, uint8_t *buf, struct zns_err *err);
void writer_set_error(struct zns_writer *w, const struct zns_err *e);	/* lock held; the first one stays */
struct job *job_new(struct zns_wimage *img);
void job_free(struct zns_writer *w, struct job *j);	/* lock held */
uint8_t *unit_alloc(struct zns_writer *w);		/* lock held */
void unit_free(struct zns_writer *w, uint8_t *u);	/* lock held */
/* @tag: as transform_out gave it; unused without a key. Lock held. */
int writer_put_csum(struct zns_wimage *i, uint64_t k, uint64_t csum, const uint8_t tag[ZNS_TAG_BYTES]);

#endif
