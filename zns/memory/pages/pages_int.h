/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef PAGES_INT_H
#define PAGES_INT_H
/*
 * The inside of the page store. Three locks, taken in this order: `put` (one writer), `ask` (one
 * request to the broker), `count` (the table of zones). Lanes write in threads of their own while
 * `put` is held, so `ask` and `count` guard what lanes share with the store's thread.
 */
#include <pthread.h>
#include <stdatomic.h>
#include "zns/bucket.h"
#include "zns/context.h"
#include "zns/crypt_memory.h"
#include "zns/pages.h"
#include "zns/session.h"

#define NO_ZONE UINT32_MAX
/* size of one write, 256 KiB: small, so that reads do not wait long behind it */
#define CHUNK_UNITS 4u
#define LANES_MAX 16u

/* A zone of the device and what this context has in it. Guarded by `count`. */
struct pages_zone {
	uint32_t live; /* sum of the counts on its units */
	uint32_t units; /* units written */
	uint32_t room; /* units that fit into it */
	uint32_t pins; /* reads under way */
	uint32_t group;
	bool have; /* it belongs to this context */
	bool open; /* a lane writes to it */
	bool freeing; /* it is being given back */
	bool named; /* a checkpoint names it, so it stays even without counts */
};

/* A group to which the context writes, one zone at a time. */
struct lane {
	struct zns_pages *ps;
	uint32_t group; /* the group that it asks the broker for */
	uint32_t zone; /* NO_ZONE: none */
	uint32_t zone_group; /* the group of its zone: the broker may give one of another group */
	uint64_t wp, capacity; /* bytes */
	uint32_t epoch; /* the connection (by number) over which it got its zone */
	atomic_bool busy; /* a dump or restore uses the group */
	uint8_t *stage; /* an aligned buffer of CHUNK_UNITS */
	/* its part of the current put */
	const void *const *units;
	struct zns_pages_ref *refs;
	bool as_is; /* the units are encrypted already */
	uint32_t n, done;
	int ret;
	struct zns_err err;
	pthread_t thread;
	bool runs; /* its thread exists */
	bool work; /* it has a part to write; guarded by `jobs` */
};

struct zns_pages {
	struct zns_session s;
	struct zns_context context;
	int lock_fd, mark_fd;
	struct zns_memory_key *key; /* NULL: units are not encrypted */
	uint32_t qos_mibps, width;
	struct zns_bucket *bucket;

	pthread_mutex_t put;
	struct lane lanes[LANES_MAX];
	uint32_t nr_lanes, next_lane;
	pthread_mutex_t jobs;
	pthread_cond_t job_come, job_gone;
	bool leave; /* tells the lanes' threads to end */

	pthread_mutex_t ask;
	bool connected;
	uint64_t step_ns; /* when the broker was last asked which groups are busy */
	/* time of the last rate measurement, and bytes written until then */
	uint64_t rate_ns, rate_from;
	_Atomic uint64_t rate; /* bytes per second */
	_Atomic uint64_t group_limit;
	uint64_t ask_at; /* the broker is asked again when this many bytes were written */
	char refused[400]; /* why the broker's last answer forbids writes; "": it does not */
	/* encryption was asked for since, and this context is not encrypted */
	atomic_bool forbidden;
	uint32_t *over, nr_over, max_over; /* zones to be reported to the broker as full */
	/* our zones that failed a write: each broker is told of all */
	uint32_t *bad, nr_bad, max_bad;
	_Atomic uint32_t epoch; /* number of the connection */
	atomic_bool give_way; /* tells all lanes to let go of their zones */

	pthread_mutex_t count;
	struct pages_zone *zones; /* one for each zone of the device */
	uint32_t nr_zones, nr_have;
	bool counted; /* all units were counted: zones without counts may be given back */
	bool some_free; /* tells the store's thread to look for zones to give back */
	uint32_t failed;
	atomic_ullong written, read; /* bytes */
	atomic_ullong put_ns; /* when the last put began */
	atomic_uint *reading; /* reads under way, for each of `reading_nr` groups */
	uint32_t reading_nr;

	pthread_t keeper;
	bool keeps;
	int wake; /* eventfd for the store's thread */
	atomic_bool stop;
};

/* place.c */
uint64_t pages_place(uint32_t zone, uint32_t unit);
bool pages_where(const struct zns_pages *ps, uint64_t place, uint32_t *zone, uint32_t *unit);
void pages_got_zone(struct zns_pages *ps, const struct zns_zone_slot *slot, uint64_t wp, bool open);
/* These zones, and no others, are named by checkpoints. */
void pages_named(struct zns_pages *ps, const uint32_t *zones, size_t nr);
void pages_close_zone(struct zns_pages *ps, uint32_t zone); /* no lane writes it any more */
void pages_written(struct zns_pages *ps, uint32_t zone, uint32_t units);
/* returns the zone's group */
uint32_t pages_pin(struct zns_pages *ps, uint32_t zone, uint32_t unit, int *ret);
void pages_unpin(struct zns_pages *ps, uint32_t zone);
/* Takes up to @max zones that nothing counts in; pages_gave_back() must follow. */
uint32_t pages_take_free(struct zns_pages *ps, uint32_t *zones, uint32_t max);
void pages_gave_back(struct zns_pages *ps, const uint32_t *zones, uint32_t nr, bool gone);
void pages_wake(struct zns_pages *ps);

/* broker.c: what is said to the broker; all take `ask` */
int pages_connect(struct zns_pages *ps, struct zns_err *err); /* the first time */
int pages_ask_zone(struct zns_pages *ps, struct lane *l, struct zns_err *err);
int pages_step(struct zns_pages *ps, uint64_t older_than_ns, struct zns_err *err);
void pages_over(struct zns_pages *ps, uint32_t zone, bool bad);
void pages_end(struct zns_pages *ps);
void *pages_thread(void *ps); /* reconnects, gives zones back, reports */

/* policy.c: must a new context be encrypted? 1, 0 or -errno. */
int pages_encrypt(struct zns_pages *ps, struct zns_err *err);
/* Forbids a context that is not encrypted to write, if this machine asks for encryption now. */
void pages_look_plain(struct zns_pages *ps);

/* lane.c */
int lanes_start(struct zns_pages *ps, struct zns_err *err);
void lanes_stop(struct zns_pages *ps);
/* Writes @l->n units from @l->units on; *@l->done of them are written. */
void lane_write(struct lane *l);
void lane_let_go(struct lane *l); /* ends writing to its zone */

#endif
