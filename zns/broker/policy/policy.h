/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef BROKER_POLICY_H
#define BROKER_POLICY_H
/*
 * The middle storey of znsd: who gets what, and when. It reads and changes the tables. It knows
 * nothing of connections; the storey above puts answers together. Functions return 0, or -errno
 * with the reason in @err.
 */
#include "../tables/tables.h"
#include "zns/emu.h"

struct finisher;

/* The policy's own memory, beside the tables. */
struct policy {
	struct finisher *finisher; /* NULL: zones are finished in the loop */
	uint64_t finish_ns; /* time of the last finish in the background */
	uint32_t room_wanted; /* how many parked zones to finish for a waiting dump */
	bool compact_yield; /* a dump needs zones that compactions write: these must end */
	uint32_t io_zones; /* active zones of normal I/O, as of io_ns */
	uint64_t io_ns;
	uint32_t nr_waiting; /* dumps that wait for admission; the requests layer counts them */
	uint8_t *held; /* groups that the first waiter will get; NULL: none waits */
	struct hot_policy *hot; /* private to hot.c; NULL: no restore has used it yet */
	struct old_footer
		*footers; /* on a disk: that wait to be written over; private to footers.c */
	uint32_t nr_footers, max_footers;
	/*
	 * the connection whose resize waits until no lease uses zones behind the new end, or NULL
	 */
	const struct conn *resizer;
	/* ahead.c: these zones have blocks of a file with holes, but for those granted since */
	uint32_t ahead, ahead_end;
	/* when shares by weight were last computed; 0: weights are not in use */
	uint64_t weighed_ns;
};

/*
 * On a disk: bytes for each stream of a dump. Half of its last zone is lost with each stream, and
 * that shall be no more than one part in forty. A dump of less shares its last zone with others.
 */
static inline uint64_t disk_stream_min(const struct znsd *d)
{
	return UINT64_C(20) * d->dev->geo.zone_capacity;
}

/* policy.c */
void policy_init(struct znsd *d);
void policy_fini(struct znsd *d);

/* The client that a lease is for. */
struct holder {
	struct conn *conn;
	uint32_t pid;
};

enum admission_mode { ADM_SHARE, ADM_WAIT, ADM_REJECT };

/* The checked request of a dump. */
struct dump_ask {
	const char *container;
	uint32_t qos, needed; /* needed: groups for the QoS if nothing is shared */
	uint32_t uid;
	bool dynamic, separate, small;
	enum admission_mode mode;
	uint32_t wait_s;
	uint32_t min_room;
	uint64_t expected; /* bytes, 0: unknown */
	uint32_t most; /* zones that a dump of this size can use */
	uint32_t cap_mibps; /* the cap that the dump asked for; 0: none */
	uint32_t weight; /* 0: none was asked for */
	/* own_class: it has a weight of its own, that of background work (sharing.md, "Weights"),
	 * and the ceilings of tenants do not hold */
	bool flatten, own_class;
	struct zns_tenant tenant;
	const uint8_t *join; /* the checkpoint that it joins; NULL: it makes a new one */
};

/* Where a small checkpoint on a disk may be written (space.c). */
struct space {
	uint32_t zone;
	uint64_t start, end;
};

/* What the dump would get now. */
struct choice {
	struct zns_group_state *gs;
	/* groups for pages, best first, `width` of them; then those for metadata */
	uint32_t *order;
	uint32_t width, nr_meta;
	uint32_t pack_zone; /* the pack zone to continue; ZNSD_NONE: start in an empty zone */
	struct space space; /* on a disk: the place within the pack zone */
	uint32_t promise; /* MiB/s reserved for it, on a drive whose zones share one domain */
	bool packed;
	bool scattered; /* packed, and no place and no empty zones hold all of it */
	bool room; /* more room is expected soon: zones are being finished or reset */
	char note[256]; /* share mode: why it is less than asked */
	char why[256]; /* contention: why not now */
};

/* The result of an admission. */
struct admitted {
	struct lease *lease;
	bool room; /* -EBUSY, but room is being made for it */
	char note[256]; /* why the dump gets less than it asked for; "": it gets all */
};

/* admit.c: -EBUSY is contention, any other error is final */
int ask_check(struct znsd *d, const ZnsPb__DumpBegin *q, struct dump_ask *a, struct zns_err *err);
int admit(struct znsd *d, const struct holder *who, const ZnsPb__DumpBegin *q, struct dump_ask *a,
	  struct admitted *out, struct zns_err *err);
/* Gives @who the lease that the ticket in @q names; NULL: no lease has this ticket. */
struct lease *admit_take_over(struct znsd *d, const struct holder *who, const ZnsPb__DumpBegin *q,
			      const struct dump_ask *a);

/* In choose.c. 0; -EBUSY: it is not possible now (ch->why, ch->room); -ENOSPC. */
int choose_groups(struct znsd *d, const struct dump_ask *a, struct choice *ch, struct zns_err *err);
/* marks the groups that a waiter will get */
void choose_hold(struct znsd *d, const struct dump_ask *a);
void choose_release(struct znsd *d);
/* The reservation for its dumps. NULL with dynamic allocation, or if it is for normal I/O. */
const ZnsPb__Reservation *own_reservation(const struct znsd *d, const struct dump_ask *a);

/* reservations.c */
/* removes a reservation that is not needed any more */
void reservation_settle(struct znsd *d, const char *container);
void reservation_renew(struct znsd *d, const char *container);
int reservation_extend(struct znsd *d, const struct dump_ask *a, const struct choice *ch,
		       struct zns_err *err);
int reserve_for_io(struct znsd *d, const ZnsPb__Reserve *q, struct zns_err *err);
int reservation_release(struct znsd *d, const char *container, struct zns_err *err);

/* sharers.c: the running dumps that share. *@self is the index of @l. Free the result; its groups
 * are borrowed. */
struct zns_sharer *sharers_of(const struct znsd *d, const struct lease *l, uint32_t *nr,
			      uint32_t *self);

/* budget.c: the limits of the device and of the administrator. */
/* data zones that may be written at once; UINT32_MAX: no limit */
uint32_t budget_device(struct znsd *d);
uint32_t budget_total(struct znsd *d); /* like budget_device(), without the zones of normal I/O */
uint32_t budget_used(const struct znsd *d);
/* groups left to a tenant; UINT32_MAX: no limit */
uint32_t budget_tenant_groups(const struct znsd *d, const struct zns_tenant *t);
/* MiB/s left to a tenant; UINT32_MAX: no limit */
uint32_t budget_tenant_qos(const struct znsd *d, const struct zns_tenant *t);
/* Zones to finish or reset before @more become active. The asker continues @own of them. */
uint32_t budget_excess(struct znsd *d, uint32_t more, uint32_t own);
uint32_t pack_leases(const struct znsd *d);
uint32_t pack_limit(struct znsd *d); /* how many pack zones may be written at once */

/* room.c: room below the limit of active zones */
uint32_t park_limit(struct znsd *d); /* zones that may be parked; UINT32_MAX: any number */
/* The least recently used parked zone. @urgent: somebody waits for its place, so it may lie where a
 * dump runs. */
bool zone_lru_parked(const struct znsd *d, bool urgent, uint32_t *zone);
/* Makes room for one more active zone. @gently: resets only what nobody needs. */
int make_room(struct znsd *d, uint32_t zone, bool gently, struct zns_err *err);
/* Returns -ENOSPC; the text says which containers use the room. */
int device_full(const struct znsd *d, struct zns_err *err);
/* bytes that can be written without removing or compacting anything */
uint64_t free_bytes(const struct znsd *d);
/* asks the background finisher for this many zones */
void room_want(struct znsd *d, uint32_t zones);

/* search.c: the zone to write next; ZNSD_NONE: none */
struct wish {
	struct lease *l;
	const uint32_t *not_zones;
	size_t nr_not;
	/* bytes that must fit, for a compaction. 0: a dump, which can use any room */
	uint64_t need;
	uint32_t below; /* search only below this zone; 0: everywhere */
	bool spares; /* leave as many empty zones as running dumps may need */
	bool suspects; /* accepts zones where a write failed */
	uint64_t run; /* bytes that a small dump on a disk writes next, in one run */
	struct space *space; /* to it: where it may, if this is not an empty zone */
};
/* finds a zone in @group, or else in another group */
uint32_t zone_search(struct znsd *d, struct wish *w, uint32_t group);
/* find a zone in @group only */
uint32_t zone_search_in(struct znsd *d, const struct wish *w, uint32_t group);
/* does the dump write in @group? Two lanes on a die halve each other */
bool dump_writes_in(const struct znsd *d, const struct lease *l, uint32_t group);
/* number of its zones that failed in @group */
uint32_t dump_failed_in(const struct znsd *d, const struct lease *l, uint32_t group);
bool zone_excluded(const struct znsd *d, const struct wish *w, uint32_t zone);

/* space.c: what removed checkpoints left between small ones on a disk */
bool space_usable(const struct znsd *d, uint32_t zone);
uint64_t space_in(const struct znsd *d, uint32_t zone); /* bytes */
/* bytes that a small dump which writes units of @unit bytes could write now */
uint64_t space_for_small(struct znsd *d, uint64_t unit);
/* Could a dump that writes @unit bytes in one run ever write @bytes, if all other dumps and restores
 * ended now? */
bool space_can_hold(const struct znsd *d, uint64_t bytes, uint64_t unit);
/* Finds the smallest place that holds @rest bytes; if there is none, the largest, provided it holds
 * @run. A dump never has two places in one zone; @w may be NULL. Returns false if there is no such
 * place. */
bool space_find(struct znsd *d, const struct wish *w, uint64_t run, uint64_t rest,
		struct space *out);
/* The lease gets it. false: the device refuses. */
bool space_give(struct znsd *d, struct lease *l, const struct space *s);

/* ahead.c: blocks for zones that the dump gets next. Called before @zone is granted. */
void ahead_take(struct znsd *d, const struct lease *l, uint32_t zone);
void ahead_let_go(struct znsd *d, const struct lease *l); /* gives back what it did not write */
void ahead_end(struct znsd *d); /* gives back what no dump has */

/* dumping.c: requests of a running dump */
int dump_zone(struct znsd *d, struct lease *l, const ZnsPb__ZoneGet *q, uint32_t *zone,
	      struct zns_err *err);
/* *out: bytes that the dump could still write */
int dump_room(struct znsd *d, struct lease *l, uint64_t *out, struct zns_err *err);
/* the lease stays until lease_end() */
int commit_dump(struct znsd *d, struct lease *l, ZnsPb__Checkpoint *k, struct zns_err *err);

/* resize.c: sets the number of zones to @nr if nothing uses zones behind the new end. Until then,
 * or until resize_end(), no zone there is given out. -EBUSY: the lease in @err uses such a zone;
 * -ENOTEMPTY: checkpoints do; -EXDEV: the zone tables would move. */
int resize_step(struct znsd *d, const struct conn *who, uint32_t nr, struct zns_err *err);
/* does nothing if @who has no resize under way */
void resize_end(struct znsd *d, const struct conn *who);

/* replace.c: @k replaces a checkpoint's record; the lease says which and how. Check first. */
int record_check(const struct znsd *d, const struct lease *l, const ZnsPb__Checkpoint *k,
		 struct zns_err *err);
int record_replace(struct znsd *d, const struct lease *l, const ZnsPb__Checkpoint *k,
		   struct zns_err *err);
/* -ECANCELED: somebody joins or flattens the checkpoint, and will commit its next version. */
int record_rewritten(const struct znsd *d, const uint8_t *id, struct zns_err *err);

/* reading.c: a lease that protects the zones of a checkpoint; with @chain, its parents' too */
struct chain;
/* hot.c: memory that restores share */
/*
 * @l begins to read @k. @counts: count it as one more restore. false: there is no shared memory
 * for it.
 */
bool hot_begin(struct znsd *d, struct lease *l, const ZnsPb__Checkpoint *k, bool counts);
void hot_end(struct znsd *d, struct lease *l);
/*
 * frees the shared memory if it is not needed; returns milliseconds until the next look, -1: none
 */
int hot_idle(struct znsd *d);
void hot_fini(struct znsd *d);

int read_begin(struct znsd *d, const struct holder *who, const ProtobufCBinaryData *id,
	       bool with_parents, struct chain *chain, struct lease **out, struct zns_err *err);

/* compaction.c: moves live bytes out of nearly empty zones */
int compact_begin(struct znsd *d, const struct holder *who, const ZnsPb__CompactBegin *q,
		  struct chain *chain, struct zns_err *err);
int compact_zone(struct znsd *d, struct lease *l, const ZnsPb__CompactZone *q, uint32_t *zone,
		 struct zns_err *err);
int compact_step(struct znsd *d, struct lease *l, const ZnsPb__CompactStep *q, uint32_t *wait_ms,
		 struct zns_err *err);
int compact_commit(struct znsd *d, struct lease *l, const ZnsPb__Checkpoint *q,
		   struct zns_err *err);
/* Is a dump or a restore at work on the group, or on its channel? @for_whom gives way to it. */
bool group_at_work(const struct znsd *d, uint32_t group, enum lease_kind for_whom);

/* yielding.c: leases of packages (tables.h) */
void yielding_register(const struct yielding *ops); /* called before the broker starts */
void yielding_adopt(struct znsd *d); /* called before any zone is reset or granted */
bool yielding_lives(const struct znsd *d); /* is there at least one yielding lease? */
struct lease *yielding_find(const struct znsd *d, const uint8_t *id);
/* how many zones all yielding leases have together */
uint32_t yielding_zones(const struct znsd *d);
#define YIELDING_MOST_MAX 160 /* bytes */
/* The yielding lease with most zones, and its name as a part of a sentence; NULL: there is none. */
const struct lease *yielding_most(const struct znsd *d, char out[YIELDING_MOST_MAX]);
/* A zone that a yielding lease has finished writing, and that is still active. */
bool yielding_to_finish(const struct znsd *d, uint32_t zone);
/* The yielding lease that reads this checkpoint, or one that has it as a parent; NULL: none. */
const struct lease *yielding_in(const struct znsd *d, const uint8_t *id);
/* May it be removed, or stand elsewhere? -EBUSY: a lease reads it. */
int yielding_allows(const struct znsd *d, const uint8_t *id, struct zns_err *err);
/* naming.c: a dump names units of yielding leases where they are */
int naming_begin(struct znsd *d, struct lease *dump, const ZnsPb__MemoryNaming *q,
		 struct zns_err *err);
/* May its record name this? Its zones were refreshed. */
int naming_check(const struct znsd *d, const struct lease *dump, const ZnsPb__ZoneUse *u,
		 struct zns_err *err);
int naming_refresh(struct znsd *d, const struct lease *dump, struct zns_err *err);
void naming_end(struct znsd *d, const struct lease *dump);

/* rate.c */
static inline bool rate_one_domain(const struct znsd *d)
{
	return d->nr_groups == 1;
}
int rate_check_cap(const ZnsPb__DumpBegin *q, struct zns_err *err);
/* The part of a QoS that a drive of one domain can still promise. -EBUSY: too little, with the
 * reason in @why. */
int rate_admit(const struct znsd *d, uint32_t qos_mibps, uint32_t *promise, char *why, size_t len);
/* the lease's present limit, MiB/s; 0: no limit */
uint32_t rate_limit(struct znsd *d, const struct lease *l);
/* progress, from its helper */
void rate_note(struct znsd *d, struct lease *l, uint64_t bytes, uint64_t total);

/* promise.c */
/* MiB/s that a drive of one domain promised to a dump, and to all of them */
uint32_t promise_rate(const struct lease *l);
uint32_t promises_rate(const struct znsd *d);
/* Promises to restores. promises_take: what all promises leave of @room, where each group has a
 * part of its time; then: is a restore promised time on @group, and are there promises to other
 * leases than @l? */
void promises_take(const struct znsd *d, double *room);
bool promise_on(const struct znsd *d, uint32_t group);
bool promises_meet(const struct znsd *d, const struct lease *l);
/* What @l is promised; @note: empty, or why this is less than it asked for. -EBUSY: what it needs
 * is promised to others; -ERANGE: more than the device can give; -EDQUOT: above the tenant's
 * ceiling. */
int promise_admit(struct znsd *d, struct lease *l, const ZnsPb__RestoreBegin *q, char *note,
		  size_t len, struct zns_err *err);

/* weights.c */
/* does any lease ask for a weight, or is one a restore with a promise? */
bool weights_count(const struct znsd *d);
double weight_of(const struct lease *l); /* 1 for the default weight */
/* The lease's share of the groups that it shares with others, MiB/s; 0: no limit by weight. */
uint32_t weight_limit(struct znsd *d, const struct lease *l);
void weight_note(struct lease *l, uint64_t bytes); /* note progress, as rate_note does */
void weight_reader(struct znsd *d, struct lease *l, const struct chain *chain);
/* weight in the record; 0: the record has none */
uint32_t weight_of_record(const ZnsPb__Checkpoint *k);
/* -EINVAL: out of range; 0 means that no weight was asked for, and is allowed */
int weight_check(uint32_t weight, struct zns_err *err);
/* The weight that applies under tenants.conf (@weight 0: not given), for a dump whose rule is @t
 * and for other leases: it is cut to the ceiling. */
uint32_t weight_under(const struct zns_tenant *t, uint32_t weight);
uint32_t weight_of_tenant(const char *container, uint32_t weight);

/* growth.c: further groups for a running dump that shares */
struct group_writers {
	uint32_t group, writers;
};
struct growth {
	bool shares; /* false: the other members are not set */
	bool again; /* the client shall ask again within again_ms */
	uint32_t again_ms;
	uint32_t limit_mibps; /* 0: none */
	/* for each group that it had: the number of writers, itself included */
	struct group_writers *groups;
	uint32_t nr_groups;
	struct gained {
		uint32_t zone, writers;
	} * gained;
	uint32_t nr_gained;
};
void dump_grow(struct znsd *d, struct lease *l, const ZnsPb__Progress *q, struct growth *g);
void growth_fini(struct growth *g);

/* device_ceiling.c: a device that writes less than the sum of its groups */
uint32_t ceiling_left(const struct znsd *d); /* MiB/s not promised yet; UINT32_MAX: no ceiling */
/* the dump's limit in MiB/s; 0: no limit */
uint32_t ceiling_limit(const struct znsd *d, const struct lease *l);
/* what the promises leave of the device's ceiling for dumps that share, in multiples of one zone's
 * write rate; 0: no ceiling */
double ceiling_share(const struct znsd *d);

/* parents.c */
struct chain {
	const ZnsPb__Checkpoint **v; /* a checkpoint, then its parents; to be freed */
	size_t nr;
};
/* -ESTALE: the checkpoint was removed, @err says when and by whom; -ENOENT: there never was one. */
int checkpoint_absent(const struct znsd *d, const ProtobufCBinaryData *q, const char *what,
		      struct zns_err *err);
/* Finds the records of @k and its parents. -ESTALE, -ENOENT: a record is missing; -E2BIG: the chain
 * is too long. */
int chain_of(const struct znsd *d, const ZnsPb__Checkpoint *k, struct chain *out,
	     struct zns_err *err);
int parent_check(const struct znsd *d, const ZnsPb__DumpBegin *q, struct zns_err *err);
int flatten_check(const struct znsd *d, const ZnsPb__DumpBegin *q, struct zns_err *err);
/* Does a running dump read the checkpoint, or a child of it? */
bool parent_in_use(const struct znsd *d, const uint8_t *id);
/* The running dump that has it as its parent, or NULL. */
const struct lease *parent_of_dump(const struct znsd *d, const uint8_t *id);
/* May all of these be removed? -EBUSY: something that stays is built on one. */
int parents_may_go(const struct znsd *d, const ProtobufCBinaryData *ids, size_t nr,
		   struct zns_err *err);
/* Sorts for removal: children before their parents, so that no child lacks its parent. */
void parents_last(const struct znsd *d, ProtobufCBinaryData *ids, size_t nr);

/* removal.c */
struct grave {
	ZnsPb__Tombstone *t; /* a copy of the checkpoint's tombstone; NULL: the store keeps none */
	uint32_t *zones, nr; /* zones with a footer of the checkpoint; on a disk none */
	/* on a disk: the manifest, which stands right before the footer; NULL: the footer is
	 * outside of the checkpoint's own bytes */
	ZnsPb__ExtentRef *manifest;
};
int checkpoint_remove(struct znsd *d, const uint8_t *id, const char *by, struct grave *g,
		      struct zns_err *err);
/* Both free the members of @g. */
void bury(struct znsd *d, struct grave *g);
void grave_free(struct znsd *d, struct grave *g);

/* footers.c: on a disk */
/* The footer behind @manifest is obsolete. @t: what is written over it, or NULL. Both arguments are
 * copied. */
void footer_gone(struct znsd *d, const uint8_t *id, const ZnsPb__ExtentRef *manifest,
		 const ZnsPb__Tombstone *t);
/* Writes the tombstones that had to wait. @leaves: the broker is about to end, and only zones that
 * are being written are waited for. */
void footers_step(struct znsd *d, bool leaves);
void footers_fini(struct znsd *d);

/* expiry.c */
bool checkpoint_pinned(const struct znsd *d, const uint8_t *id);
void retention_apply(struct znsd *d, const char *container);

/* encryption.c: the encryption that the device requires of new checkpoints; NULL: none */
const ZnsPb__Encryption *wanted_encryption(const struct znsd *d);
int sealed_check(const struct znsd *d, const ZnsPb__DumpBegin *q, struct zns_err *err);
int encryption_check(const struct znsd *d, const ZnsPb__DumpBegin *q, struct zns_err *err);
/* Is the record encrypted as its dump_begin announced? */
int encryption_check_record(const struct lease *l, const ZnsPb__Checkpoint *k, struct zns_err *err);
void encryption_note(struct lease *l, const ZnsPb__DumpBegin *q);
int secure_check(const struct znsd *d, const ZnsPb__Rm *q, const uint8_t *id, struct zns_err *err);

/* ending.c */
void lease_end(struct znsd *d, struct lease *l);
/* Takes all zones from a dump that continues with other zones. */
void lease_give_back(struct znsd *d, struct lease *l);
/* *@pidfd refers to the client's process; -1 once a lease has taken it. */
void leases_of_conn_lost(struct znsd *d, const struct conn *c, int *pidfd);
/* ends leases whose client has died; returns milliseconds until the next look, -1: none */
int leases_reap(struct znsd *d);

/* finisher.c: finishes zones in threads of its own. All other state belongs to the loop. */
int finisher_new(struct znsd *d, struct zns_err *err);
void finisher_free(struct znsd *d); /* waits for running threads */
/* when it is readable, call finisher_reap; -1: no finisher runs */
int finisher_fd(const struct znsd *d);
uint32_t finisher_running(const struct znsd *d);
bool finisher_start(struct znsd *d, uint32_t zone); /* false: enough run already */
void finisher_reap(struct znsd *d);

/* reclaim.c: one step of background work; returns milliseconds until the next, -1: none */
int reclaim_step(struct znsd *d);
bool reclaim_pending(const struct znsd *d);

/* gc_due.c: is it time for `znsctl gc`? @last_ns: when the last one began, by zns_mono_ns(); 0: not
 * known, and it counts from now on (*from_now). @every_s: 0: never. */
bool gc_due(const struct znsd *d, uint64_t last_ns, uint64_t every_s, bool *from_now);

#endif
