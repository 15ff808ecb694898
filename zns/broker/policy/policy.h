/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef BROKER_POLICY_H
#define BROKER_POLICY_H
/*
 * The middle storey of znsd: who gets what, and when. It reads the tables and changes them; it
 * knows nothing of connections, and answers to requests are put together above it. Functions return
 * 0 or -errno with the reason in @err.
 */
#include "../tables/tables.h"

struct finisher;

/* What the policy remembers beside the tables. */
struct policy {
	struct finisher *finisher; /* NULL: zones are finished in the loop */
	uint64_t finish_ns; /* the last finish in the background */
	uint32_t room_wanted; /* parked zones to finish for somebody who waits */
	bool compact_yield; /* somebody needs the zones of compactions: they shall end */
	uint32_t io_zones; /* active zones of normal I/O, as of io_ns */
	uint64_t io_ns;
	uint32_t nr_waiting; /* dumps that wait for admission; the storey above counts them */
	uint8_t *held; /* groups that the first waiter will get; NULL: none waits */
};

/* policy.c */
void policy_init(struct znsd *d);
void policy_fini(struct znsd *d);

/* Whose lease it is to be. */
struct holder {
	struct conn *conn;
	uint32_t pid;
};

enum admission_mode { ADM_SHARE, ADM_WAIT, ADM_REJECT };

/* What a dump asks for, checked. */
struct dump_ask {
	const char *container;
	uint32_t qos, needed; /* needed: zones for the QoS when nothing is shared */
	uint32_t uid;
	bool dynamic, separate, small;
	enum admission_mode mode;
	uint32_t wait_s;
	uint32_t min_room;
	uint64_t expected; /* bytes, 0: unknown */
	uint32_t most; /* zones that a dump of this size has use for */
	uint32_t cap_mibps; /* its own; 0: none */
	struct zns_tenant tenant;
	const uint8_t *join; /* NULL: a checkpoint of its own */
};

/* What it would get now. */
struct choice {
	struct zns_group_state *gs;
	/* groups for pages, best first, `width` of them; then those for metadata */
	uint32_t *order;
	uint32_t width, nr_meta;
	uint32_t pack_zone; /* ZNSD_NONE: an empty one */
	uint32_t promise; /* one domain only: MiB/s that are kept for it */
	bool packed;
	bool room; /* zones are being finished or reset in the background: soon */
	char note[256]; /* share mode: why it is less than asked */
	char why[256]; /* contention: why not now */
};

/* What became of it. */
struct admitted {
	struct lease *lease;
	bool room; /* -EBUSY, but room is being made for it */
	char note[256]; /* why it is less than asked; "": it is not */
};

/* admit.c: -EBUSY is contention; everything else is final */
int ask_check(struct znsd *d, const ZnsPb__DumpBegin *q, struct dump_ask *a, struct zns_err *err);
int admit(struct znsd *d, const struct holder *who, const ZnsPb__DumpBegin *q, struct dump_ask *a,
	  struct admitted *out, struct zns_err *err);
/* The lease that the ticket in @q names, now @who's; NULL: there is none. */
struct lease *admit_take_over(struct znsd *d, const struct holder *who, const ZnsPb__DumpBegin *q,
			      const struct dump_ask *a);

/* choose.c: 0; -EBUSY: not now (ch->why, ch->room); -ENOSPC */
int choose_groups(struct znsd *d, const struct dump_ask *a, struct choice *ch, struct zns_err *err);
/* keeps for a waiter what it is to get */
void choose_hold(struct znsd *d, const struct dump_ask *a);
void choose_release(struct znsd *d);
/* What it keeps for its dumps: not with dynamic allocation, and not what its name has for normal
 * I/O. */
const ZnsPb__Reservation *own_reservation(const struct znsd *d, const struct dump_ask *a);

/* reservations.c */
/* drop it if nothing needs it any more */
void reservation_settle(struct znsd *d, const char *container);
void reservation_renew(struct znsd *d, const char *container);
int reservation_extend(struct znsd *d, const struct dump_ask *a, const struct choice *ch,
		       struct zns_err *err);
int reserve_for_io(struct znsd *d, const ZnsPb__Reserve *q, struct zns_err *err);
int reservation_release(struct znsd *d, const char *container, struct zns_err *err);

/* sharers.c: the dumps that run where others may come in; *@self: which of them @l is. To be freed;
 * groups are borrowed. */
struct zns_sharer *sharers_of(const struct znsd *d, const struct lease *l, uint32_t *nr,
			      uint32_t *self);

/* budget.c: counting what the device's limits and the administrator's allow. */
/* data zones that may be in writing at once; UINT32_MAX: no limit */
uint32_t budget_device(struct znsd *d);
uint32_t budget_total(struct znsd *d); /* the same, without those of normal I/O */
uint32_t budget_used(const struct znsd *d);
/* left; UINT32_MAX: no limit */
uint32_t budget_tenant_groups(const struct znsd *d, const struct zns_tenant *t);
/* MiB/s left, likewise */
uint32_t budget_tenant_qos(const struct znsd *d, const struct zns_tenant *t);
/* Zones that must be finished or reset first if @more become active, of which the asker continues
 * @own. */
uint32_t budget_excess(struct znsd *d, uint32_t more, uint32_t own);
uint32_t pack_leases(const struct znsd *d);
uint32_t pack_limit(struct znsd *d); /* pack zones in writing at once */

/* room.c: below the limit of active zones */
uint32_t park_limit(struct znsd *d); /* how many may be parked; UINT32_MAX: any */
/* The least recently used; @urgent: somebody waits for its place, so it may also be where a dump
 * runs. */
bool zone_lru_parked(const struct znsd *d, bool urgent, uint32_t *zone);
/* One more zone becomes active. @gently: only what nobody needs is reset for it. */
int make_room(struct znsd *d, uint32_t zone, bool gently, struct zns_err *err);
void room_want(struct znsd *d, uint32_t zones); /* so many are to be finished in the background */

/* search.c: the zone that is written next; ZNSD_NONE: none */
struct wish {
	struct lease *l;
	const uint32_t *not_zones;
	size_t nr_not;
	/* of a compaction: bytes that must fit. 0: a dump, to which any room is of use */
	uint64_t need;
	bool suspects; /* zones where a write failed will do */
};
/* there, or else in another group */
uint32_t zone_search(struct znsd *d, struct wish *w, uint32_t group);
/* there and nowhere else */
uint32_t zone_search_in(struct znsd *d, const struct wish *w, uint32_t group);
/* two lanes on a die halve each other */
bool dump_writes_in(const struct znsd *d, const struct lease *l, uint32_t group);
/* so many of its zones */
uint32_t dump_failed_in(const struct znsd *d, const struct lease *l, uint32_t group);
bool zone_excluded(const struct znsd *d, const struct wish *w, uint32_t zone);

/* dumping.c: what a dump may do that runs */
int dump_zone(struct znsd *d, struct lease *l, const ZnsPb__ZoneGet *q, uint32_t *zone,
	      struct zns_err *err);
/* the lease lives on */
int commit_dump(struct znsd *d, struct lease *l, ZnsPb__Checkpoint *k, struct zns_err *err);

/* replace.c: the record of a checkpoint that is there becomes @k; the lease says which and how.
 * First the check. */
int record_check(const struct znsd *d, const struct lease *l, const ZnsPb__Checkpoint *k,
		 struct zns_err *err);
int record_replace(struct znsd *d, const struct lease *l, const ZnsPb__Checkpoint *k,
		   struct zns_err *err);
/* Somebody joins or flattens it, and so writes its next version from the places that it has now. */
int record_rewritten(const struct znsd *d, const uint8_t *id, struct zns_err *err);

/* reading.c: a lease that keeps the zones of a checkpoint, with @chain those of its parents too */
struct chain;
int read_begin(struct znsd *d, const struct holder *who, const ProtobufCBinaryData *id,
	       bool with_parents, struct chain *chain, struct lease **out, struct zns_err *err);

/* compaction.c: moving live bytes out of zones that hold few of them */
int compact_begin(struct znsd *d, const struct holder *who, const ProtobufCBinaryData *id,
		  struct chain *chain, struct zns_err *err);
int compact_zone(struct znsd *d, struct lease *l, const ZnsPb__CompactZone *q, uint32_t *zone,
		 struct zns_err *err);
int compact_step(struct znsd *d, struct lease *l, const ZnsPb__CompactStep *q, uint32_t *wait_ms,
		 struct zns_err *err);
int compact_commit(struct znsd *d, struct lease *l, const ZnsPb__Checkpoint *q,
		   struct zns_err *err);

/* rate.c */
bool rate_one_domain(const struct znsd *d);
/* MiB/s, to all dumps of a drive that is one domain */
uint32_t rate_promised(const struct znsd *d);
int rate_check_cap(const ZnsPb__DumpBegin *q, struct zns_err *err);
/* What of a QoS a drive that is one domain can still promise; -EBUSY if it is less, with the reason
 * in @why. */
int rate_admit(const struct znsd *d, uint32_t qos_mibps, uint32_t *promise, char *why, size_t len);
/* MiB/s in force for it; 0: none */
uint32_t rate_limit(const struct znsd *d, const struct lease *l);
void rate_note(struct lease *l, uint64_t bytes, uint64_t total); /* what its helper says */

/* growth.c: groups for a dump that runs and shares */
struct group_writers {
	uint32_t group, writers;
};
struct growth {
	bool shares; /* else the rest says nothing */
	bool again; /* it is to ask again in again_ms at most */
	uint32_t again_ms;
	uint32_t limit_mibps; /* 0: none */
	/* of each group that it had: how many write there, itself included */
	struct group_writers *groups;
	uint32_t nr_groups;
	struct gained {
		uint32_t zone, writers;
	} * gained;
	uint32_t nr_gained;
};
void dump_grow(struct znsd *d, struct lease *l, const ZnsPb__Progress *q, struct growth *g);
void growth_fini(struct growth *g);

/* device_ceiling.c: a device that as a whole writes less than its groups could */
uint32_t ceiling_left(const struct znsd *d); /* MiB/s not promised yet; UINT32_MAX: no ceiling */
uint32_t ceiling_limit(const struct znsd *d, const struct lease *l); /* MiB/s for a dump; 0: none */
/* in zones' worth, what is left to dumps that share; 0: no ceiling */
double ceiling_share(const struct znsd *d);

/* parents.c */
struct chain {
	const ZnsPb__Checkpoint **v; /* a checkpoint, then its parents; to be freed */
	size_t nr;
};
/* -ESTALE: it was removed, when and by whom; -ENOENT. */
int checkpoint_absent(const struct znsd *d, const ProtobufCBinaryData *q, const char *what,
		      struct zns_err *err);
/* -ESTALE, -ENOENT: one is missing; -E2BIG. */
int chain_of(const struct znsd *d, const ZnsPb__Checkpoint *k, struct chain *out,
	     struct zns_err *err);
int parent_check(const struct znsd *d, const ZnsPb__DumpBegin *q, struct zns_err *err);
int flatten_check(const struct znsd *d, const ZnsPb__DumpBegin *q, struct zns_err *err);
/* A dump that is under way reads it, or its child. */
bool parent_in_use(const struct znsd *d, const uint8_t *id);
/* The dump that is under way and has it as its parent, or NULL. */
const struct lease *parent_of_dump(const struct znsd *d, const uint8_t *id);
/* May all of these be removed? -EBUSY: something that stays is built on one. */
int parents_may_go(const struct znsd *d, const ProtobufCBinaryData *ids, size_t nr,
		   struct zns_err *err);
/* Order for removal: children before their parents, so that none is ever without. */
void parents_last(const struct znsd *d, ProtobufCBinaryData *ids, size_t nr);

/* removal.c */
struct grave {
	ZnsPb__Tombstone *t; /* a copy; NULL: the store keeps none */
	uint32_t *zones, nr; /* those with a footer of the checkpoint */
};
int checkpoint_remove(struct znsd *d, const uint8_t *id, const char *by, struct grave *g,
		      struct zns_err *err);
void bury(struct znsd *d, struct grave *g); /* frees what is in it */

/* expiry.c */
bool checkpoint_pinned(const struct znsd *d, const uint8_t *id);
void retention_apply(struct znsd *d, const char *container);

/* encryption.c: what the device asks of new checkpoints, NULL: nothing */
const ZnsPb__Encryption *wanted_encryption(const struct znsd *d);
int encryption_check(const struct znsd *d, const ZnsPb__DumpBegin *q, struct zns_err *err);
/* The record is encrypted as its dump_begin said. */
int encryption_check_record(const struct lease *l, const ZnsPb__Checkpoint *k, struct zns_err *err);
void encryption_note(struct lease *l, const ZnsPb__DumpBegin *q);
int secure_check(const struct znsd *d, const uint8_t *id, struct zns_err *err);

/* ending.c */
void lease_end(struct znsd *d, struct lease *l);
/* *@pidfd, of its process: -1 when a lease took it. */
void leases_of_conn_lost(struct znsd *d, const struct conn *c, int *pidfd);
int leases_reap(struct znsd *d); /* dying ones; milliseconds until the next look, -1: none */

/* finisher.c: finishes zones in threads of its own; everything else is the loop's. */
int finisher_new(struct znsd *d, struct zns_err *err);
void finisher_free(struct znsd *d); /* waits for those that run */
int finisher_fd(const struct znsd *d); /* readable: call finisher_reap; -1: none */
uint32_t finisher_running(const struct znsd *d);
bool finisher_start(struct znsd *d, uint32_t zone); /* false: enough run already */
void finisher_reap(struct znsd *d);

/* reclaim.c: one step of background work; returns milliseconds until the next, -1: none */
int reclaim_step(struct znsd *d);
bool reclaim_pending(const struct znsd *d);

#endif
