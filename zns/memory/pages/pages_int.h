/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef PAGES_INT_H
#define PAGES_INT_H
/*
 * The internal interface of the page store. It has three locks, which are taken in this order:
 * `put` (one writer), `ask` (one request to the broker), `count` (the table of zones). While `put`
 * is held, lanes write in threads of their own. So `ask` and `count` protect what lanes share with
 * the store's thread.
 */
#include <pthread.h>
#include <stdatomic.h>
#include "zns/bucket.h"
#include "zns/context.h"
#include "zns/crypt_memory.h"
#include "zns/pages.h"
#include "zns/session.h"

#define NO_ZONE UINT32_MAX
/* units in one write, 256 KiB: small, so that reads do not wait long for it */
#define CHUNK_UNITS 4u
#define LANES_MAX 16u

/* A zone of the device, and what this context has in it. Protected by `count`. */
struct pages_zone {
	uint32_t live; /* sum of the counts on its units */
	uint32_t units; /* number of units that were written */
	uint32_t room; /* number of units that fit into it */
	uint32_t pins; /* number of reads under way */
	uint32_t group;
	bool have; /* the zone belongs to this context */
	bool open; /* a lane writes to the zone */
	bool freeing; /* the zone is being given back */
	/* a checkpoint refers to data in the zone, so it stays even if no unit has a count */
	bool named;
};

/* A group to which the context writes, one zone at a time. */
struct lane {
	struct zns_pages *ps;
	uint32_t group; /* the group for which the lane asks the broker */
	uint32_t zone; /* NO_ZONE: none */
	/* the group of its zone, which may differ: the broker may grant a zone of another group */
	uint32_t zone_group;
	uint64_t wp, capacity; /* bytes */
	uint32_t epoch; /* number of the connection over which the zone was granted */
	atomic_bool busy; /* a dump or restore uses the group */
	uint8_t *stage; /* an aligned buffer of CHUNK_UNITS */
	/* the units that this lane writes in the current put */
	const void *const *units;
	struct zns_pages_ref *refs;
	bool as_is; /* the units are encrypted already */
	uint32_t n, done;
	int ret;
	struct zns_err err;
	pthread_t thread;
	bool runs; /* the lane has a thread */
	bool work; /* the thread has units to write; protected by `jobs` */
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
	bool leave; /* makes the lanes' threads exit */

	pthread_mutex_t ask;
	bool connected;
	uint64_t step_ns; /* when the broker last reported which groups are busy */
	/* start of the last measurement of the rate, and bytes that were written until then */
	uint64_t rate_ns, rate_from;
	_Atomic uint64_t rate; /* bytes per second */
	_Atomic uint64_t group_limit;
	uint64_t ask_at; /* when this many bytes were written, the broker is asked again */
	/* why the broker forbids writes, by its last answer; empty: it allows them */
	char refused[400];
	/* encryption is required now, and this context is not encrypted */
	atomic_bool forbidden;
	uint32_t *over, nr_over, max_over; /* full zones that have to be reported to the broker */
	/* zones of ours that failed a write; each new broker gets a report of all */
	uint32_t *bad, nr_bad, max_bad;
	_Atomic uint32_t epoch; /* number of the present connection */
	atomic_bool give_way; /* makes all lanes stop writing to their zones */

	pthread_mutex_t count;
	struct pages_zone *zones; /* an entry for each zone of the device */
	uint32_t nr_zones, nr_have;
	bool counted; /* all units were counted, so zones without counts may be given back */
	bool some_free; /* makes the store's thread look for zones that can be given back */
	uint32_t failed;
	atomic_ullong written, read; /* bytes */
	atomic_ullong put_ns; /* when the last put began */
	atomic_uint *reading; /* number of reads under way, for each of `reading_nr` groups */
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
/* Sets which zones have data that checkpoints refer to: these, and no others. */
void pages_named(struct zns_pages *ps, const uint32_t *zones, size_t nr);
/* call when no lane writes to the zone any more */
void pages_close_zone(struct zns_pages *ps, uint32_t zone);
void pages_written(struct zns_pages *ps, uint32_t zone, uint32_t units);
/* returns the zone's group */
uint32_t pages_pin(struct zns_pages *ps, uint32_t zone, uint32_t unit, int *ret);
void pages_unpin(struct zns_pages *ps, uint32_t zone);
/*
 * Takes up to @max zones in which no unit has a count. The caller must call pages_gave_back()
 * afterwards.
 */
uint32_t pages_take_free(struct zns_pages *ps, uint32_t *zones, uint32_t max);
void pages_gave_back(struct zns_pages *ps, const uint32_t *zones, uint32_t nr, bool gone);
void pages_wake(struct zns_pages *ps);

/* broker.c: requests to the broker; all of these take `ask` */
int pages_connect(struct zns_pages *ps, struct zns_err *err); /* call it for the first connection */
int pages_ask_zone(struct zns_pages *ps, struct lane *l, struct zns_err *err);
int pages_step(struct zns_pages *ps, uint64_t older_than_ns, struct zns_err *err);
void pages_over(struct zns_pages *ps, uint32_t zone, bool bad);
void pages_end(struct zns_pages *ps);
void *pages_thread(void *ps); /* reconnects, gives back zones, reports */

/* policy.c: must a new context be encrypted? Returns 1, 0 or -errno. */
int pages_encrypt(struct zns_pages *ps, struct zns_err *err);
/* Forbids writes if this machine requires encryption now and the context is not encrypted. */
void pages_look_plain(struct zns_pages *ps);

/* lane.c */
int lanes_start(struct zns_pages *ps, struct zns_err *err);
void lanes_stop(struct zns_pages *ps);
/* Writes the @l->n units from @l->units on. *@l->done: number of units that were written. */
void lane_write(struct lane *l);
void lane_let_go(struct lane *l); /* stops writing to its zone */
int pages_all_busy(struct zns_err *err); /* -EAGAIN: no die is left to write to */

#endif
