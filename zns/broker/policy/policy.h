/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef BROKER_POLICY_H
#define BROKER_POLICY_H
/*
 * The middle layer of znsd (above tables, below requests): decides who gets what, and when. It
 * reads and changes the tables. It knows nothing about connections; the layer above composes
 * answers. Functions return 0, or -errno with the reason in @err.
 */
#include "../tables/tables.h"
#include "zns/emu.h"

struct finisher;

/* The policy's own state, in addition to the tables. */
struct policy {
	struct finisher *finisher; /* NULL: zones are finished in the poll loop */
	uint64_t finish_ns; /* time of the last finish in the background */
	uint32_t room_wanted; /* how many parked zones to finish for a waiting dump */
	bool compact_yield; /* a dump needs zones that compactions are writing, so these must end */
	uint32_t io_zones; /* number of active zones of normal I/O, as counted at io_ns */
	uint64_t io_ns;
	/* number of dumps that wait for admission; kept up to date by the requests layer */
	uint32_t nr_waiting;
	uint8_t *held; /* for each group: will the first waiting dump get it? NULL: no dump waits */
	struct hot_policy *hot; /* private to hot.c; NULL: no restore has used it yet */
	struct old_footer
		*footers; /* footers on a disk that are to be overwritten; private to footers.c */
	uint32_t nr_footers, max_footers;
	/*
	 * the connection whose resize waits until no lease uses zones that will be cut off; NULL:
	 * none
	 */
	const struct conn *resizer;
	/* ahead.c: the run of zones for which blocks were allocated; some may have been granted
	 * since */
	uint32_t ahead, ahead_end;
	/* when shares by weight were last computed; 0: no weights are in use */
	uint64_t weighed_ns;
};

/*
 * On a disk: minimum of bytes for each stream of a dump. Each stream wastes half of its last zone,
 * which should be at most 1/40 of what it writes. A dump with less shares its last zone with
 * others.
 */
static inline uint64_t disk_stream_min(const struct znsd *d)
{
	return UINT64_C(20) * d->dev->geo.zone_capacity;
}

/* ---- policy.c ---- */
void policy_init(struct znsd *d);
void policy_fini(struct znsd *d);

/* The client that a lease belongs to. */
struct holder {
	struct conn *conn;
	uint32_t pid;
};

enum admission_mode { ADM_SHARE, ADM_WAIT, ADM_REJECT };

/* A dump's request, after it was checked. */
struct dump_ask {
	const char *container;
	uint32_t qos, needed; /* needed: how many groups the QoS needs if nothing is shared */
	uint32_t uid;
	bool dynamic, separate, small;
	enum admission_mode mode;
	uint32_t wait_s;
	uint32_t min_room;
	uint64_t expected; /* announced size in bytes; 0: unknown */
	uint32_t most; /* how many zones a dump of this size can use */
	uint32_t cap_mibps; /* the limit that the dump asked for, MiB/s; 0: none */
	uint32_t weight; /* 0: the dump asked for none */
	/* own_class: it has the weight of background work (sharing.md, "Weights") instead of its
	 * tenant's, and the limits of tenants do not apply */
	bool flatten, own_class;
	struct zns_tenant tenant;
	const uint8_t *join; /* the checkpoint that the images join; NULL: they form a new one */
};

/* A place on a disk for a small checkpoint (space.c). */
struct space {
	uint32_t zone;
	uint64_t start, end;
};

/* What the dump would get if it were admitted now. */
struct choice {
	struct zns_group_state *gs;
	/* groups for pages, best first, `width` of them; then those for metadata images */
	uint32_t *order;
	uint32_t width, nr_meta;
	uint32_t pack_zone; /* the pack zone to continue; ZNSD_NONE: begin with an empty zone */
	struct space space; /* on a disk: the place within the pack zone to which the dump writes */
	/* MiB/s that are promised to it, on a drive whose zones all share all dies (one domain) */
	uint32_t promise;
	bool packed;
	/* the dump is packed, and neither a single place nor empty zones have room for all of it */
	bool scattered;
	bool room; /* zones are being finished or reset, so it should be tried again soon */
	char note[256]; /* in share mode: why the dump gets less than it asked for */
	char why[256]; /* why the dump cannot be admitted now */
};

/* The result of an admission. */
struct admitted {
	struct lease *lease;
	bool room; /* the result is -EBUSY, but zones are being finished or reset for it */
	char note[256]; /* why the dump gets less than it asked for; "": it gets everything */
};

/* admit.c: -EBUSY means that others use the resources now; any other error is final */
int ask_check(struct znsd *d, const ZnsPb__DumpBegin *q, struct dump_ask *a, struct zns_err *err);
int admit(struct znsd *d, const struct holder *who, const ZnsPb__DumpBegin *q, struct dump_ask *a,
	  struct admitted *out, struct zns_err *err);
/* Gives @who the lease whose ticket is in @q; NULL: no lease has this ticket. */
struct lease *admit_take_over(struct znsd *d, const struct holder *who, const ZnsPb__DumpBegin *q,
			      const struct dump_ask *a);

/* choose.c. 0; -EBUSY: not possible now (see ch->why, ch->room); -ENOSPC. */
int choose_groups(struct znsd *d, const struct dump_ask *a, struct choice *ch, struct zns_err *err);
/* marks the groups that a waiting dump will get; choose_release removes the marks */
void choose_hold(struct znsd *d, const struct dump_ask *a);
void choose_release(struct znsd *d);
/* The reservation for the container's dumps. NULL if it has none (dynamic allocation), or if it is
 * for normal I/O. */
const ZnsPb__Reservation *own_reservation(const struct znsd *d, const struct dump_ask *a);

/* ---- reservations.c ---- */
/* removes a reservation that is not needed any more */
void reservation_settle(struct znsd *d, const char *container);
void reservation_renew(struct znsd *d, const char *container);
int reservation_extend(struct znsd *d, const struct dump_ask *a, const struct choice *ch,
		       struct zns_err *err);
int reserve_for_io(struct znsd *d, const ZnsPb__Reserve *q, struct zns_err *err);
int reservation_release(struct znsd *d, const char *container, struct zns_err *err);

/* sharers.c: lists the running dumps that share. *self is the index of @l. The caller frees the
 * list; the groups in it are borrowed. */
struct zns_sharer *sharers_of(const struct znsd *d, const struct lease *l, uint32_t *nr,
			      uint32_t *self);

/* budget.c: the limits of the device and of the administrator. */
/* how many data zones may be written at once; UINT32_MAX: no limit */
uint32_t budget_device(struct znsd *d);
uint32_t budget_total(struct znsd *d); /* like budget_device(), excluding the zones of normal I/O */
uint32_t budget_used(const struct znsd *d);
/* how many groups a tenant's limits leave; UINT32_MAX: no limit */
uint32_t budget_tenant_groups(const struct znsd *d, const struct zns_tenant *t);
/* how many MiB/s a tenant's limits leave; UINT32_MAX: no limit */
uint32_t budget_tenant_qos(const struct znsd *d, const struct zns_tenant *t);
/* How many zones must be finished or reset before @more can become active. @own of these are active
 * already. */
uint32_t budget_excess(struct znsd *d, uint32_t more, uint32_t own);
uint32_t pack_leases(const struct znsd *d);
uint32_t pack_limit(struct znsd *d); /* how many pack zones may be written at once */

/* room.c: keeps the number of active zones below the limit */
uint32_t park_limit(struct znsd *d); /* how many zones may be parked; UINT32_MAX: any number */
/* Finds the least recently used parked zone. @urgent: somebody waits for its place in the limit, so
 * it may be in a group where a dump runs. */
bool zone_lru_parked(const struct znsd *d, bool urgent, uint32_t *zone);
/* Makes room for one more active zone. @gently: only by resets of zones that nobody needs. */
int make_room(struct znsd *d, uint32_t zone, bool gently, struct zns_err *err);
/* Returns -ENOSPC with a message that says which containers use the space. */
int device_full(const struct znsd *d, struct zns_err *err);
/* bytes that can be written without removing or compacting anything */
uint64_t free_bytes(const struct znsd *d);
/* asks the background finisher to finish this many parked zones */
void room_want(struct znsd *d, uint32_t zones);

/* search.c: finds the zone to write next; ZNSD_NONE: none */
struct wish {
	struct lease *l;
	const uint32_t *not_zones;
	size_t nr_not;
	/* bytes that must fit, for a compaction. 0: for a dump, which can use any room */
	uint64_t need;
	uint32_t below; /* search only below this zone; 0: in all zones */
	bool spares; /* leave as many empty zones as running dumps may need */
	bool suspects; /* also accept zones where a write has failed */
	uint64_t run; /* for a small dump on a disk: bytes that it writes next without a gap */
	/* for a small dump on a disk: result of the search; set if it found a place instead of an
	 * empty zone */
	struct space *space;
};
/* finds a zone in @group, or else in another group */
uint32_t zone_search(struct znsd *d, struct wish *w, uint32_t group);
/* finds a zone in @group only */
uint32_t zone_search_in(struct znsd *d, const struct wish *w, uint32_t group);
/* does the dump write in @group now? Two lanes on one die get half the rate each */
bool dump_writes_in(const struct znsd *d, const struct lease *l, uint32_t group);
/* number of the dump's zones in @group that failed */
uint32_t dump_failed_in(const struct znsd *d, const struct lease *l, uint32_t group);
bool zone_excluded(const struct znsd *d, const struct wish *w, uint32_t zone);

/* space.c: the places that removed checkpoints left between small ones on a disk */
bool space_usable(const struct znsd *d, uint32_t zone);
uint64_t space_in(const struct znsd *d, uint32_t zone); /* bytes of such places in a zone */
/* how many bytes a small dump that writes units of @unit bytes could write now */
uint64_t space_for_small(struct znsd *d, uint64_t unit);
/* Could a dump that writes @unit bytes without a gap write @bytes in all, if all other dumps and
 * restores ended now? */
bool space_can_hold(const struct znsd *d, uint64_t bytes, uint64_t unit);
/* Finds the smallest place that has room for @rest bytes; if there is none, the largest place if it
 * has room for @run. A dump never has two places in one zone; @w may be NULL. Returns false if
 * there is no such place. */
bool space_find(struct znsd *d, const struct wish *w, uint64_t run, uint64_t rest,
		struct space *out);
/* Gives the place to the lease. false: the device refuses. */
bool space_give(struct znsd *d, struct lease *l, const struct space *s);

/* ahead.c: allocates blocks for the zones that the dump gets next. To be called before @zone is
 * granted. */
void ahead_take(struct znsd *d, const struct lease *l, uint32_t zone);
/* frees the blocks of zones that the lease did not write */
void ahead_let_go(struct znsd *d, const struct lease *l);
void ahead_end(struct znsd *d); /* frees the blocks of zones that were not granted */

/* dumping.c: serves requests of a running dump */
int dump_zone(struct znsd *d, struct lease *l, const ZnsPb__ZoneGet *q, uint32_t *zone,
	      struct zns_err *err);
/* *out: how many bytes the dump could still write */
int dump_room(struct znsd *d, struct lease *l, uint64_t *out, struct zns_err *err);
/* commits the dump; the lease exists until lease_end() */
int commit_dump(struct znsd *d, struct lease *l, ZnsPb__Checkpoint *k, struct zns_err *err);

/* resize.c: sets the number of zones to @nr if nothing uses the zones that are cut off. Until that
 * is done, or until resize_end(), these zones are not granted. -EBUSY: the lease named in @err uses
 * such a zone; -ENOTEMPTY: checkpoints do; -EXDEV: the zone tables would have to move. */
int resize_step(struct znsd *d, const struct conn *who, uint32_t nr, struct zns_err *err);
/* ends the resize of @who, if it has one */
void resize_end(struct znsd *d, const struct conn *who);

/* replace.c: replaces the record of a checkpoint by @k; the lease determines which and how.
 * record_check must be called first. */
int record_check(const struct znsd *d, const struct lease *l, const ZnsPb__Checkpoint *k,
		 struct zns_err *err);
int record_replace(struct znsd *d, const struct lease *l, const ZnsPb__Checkpoint *k,
		   struct zns_err *err);
/* Returns -ECANCELED if a lease is joining or flattening the checkpoint, which means that it will
 * commit the next version. */
int record_rewritten(const struct znsd *d, const uint8_t *id, struct zns_err *err);

/* reading.c: makes a lease that protects the zones of a checkpoint; with @chain also those of its
 * parents */
struct chain;
/* hot.c: the cache that restores share */
/*
 * To be called when @l begins to read @k. @counts: it counts as one more restore. false: the lease
 * does not get the cache.
 */
bool hot_begin(struct znsd *d, struct lease *l, const ZnsPb__Checkpoint *k, bool counts);
void hot_end(struct znsd *d, struct lease *l);
/*
 * frees the cache if it is not needed any more; returns milliseconds until the next call, -1: none
 */
int hot_idle(struct znsd *d);
void hot_fini(struct znsd *d);

int read_begin(struct znsd *d, const struct holder *who, const ProtobufCBinaryData *id,
	       bool with_parents, struct chain *chain, struct lease **out, struct zns_err *err);

/* compaction.c: serves a client that moves live bytes out of nearly empty zones */
int compact_begin(struct znsd *d, const struct holder *who, const ZnsPb__CompactBegin *q,
		  struct chain *chain, struct zns_err *err);
int compact_zone(struct znsd *d, struct lease *l, const ZnsPb__CompactZone *q, uint32_t *zone,
		 struct zns_err *err);
int compact_step(struct znsd *d, struct lease *l, const ZnsPb__CompactStep *q, uint32_t *wait_ms,
		 struct zns_err *err);
int compact_commit(struct znsd *d, struct lease *l, const ZnsPb__Checkpoint *q,
		   struct zns_err *err);
/* Is a dump or a restore with priority over leases of kind @for_whom working on the group or its
 * channel? */
bool group_at_work(const struct znsd *d, uint32_t group, enum lease_kind for_whom);

/* yielding.c: leases of packages (tables.h) */
void yielding_register(const struct yielding *ops); /* to be called before the broker starts */
void yielding_adopt(struct znsd *d); /* to be called before any zone is reset or granted */
bool yielding_lives(const struct znsd *d); /* is there at least one yielding lease? */
struct lease *yielding_find(const struct znsd *d, const uint8_t *id);
/* how many zones all yielding leases have together */
uint32_t yielding_zones(const struct znsd *d);
#define YIELDING_MOST_MAX 160 /* in bytes */
/* Returns the yielding lease with the most zones, and writes a description of it for messages to
 * @out; NULL: there is none. */
const struct lease *yielding_most(const struct znsd *d, char out[YIELDING_MOST_MAX]);
/* Has a yielding lease finished writing to the zone, although it is still active? */
bool yielding_to_finish(const struct znsd *d, uint32_t zone);
/* Returns the yielding lease that reads this checkpoint or a descendant of it; NULL: none. */
const struct lease *yielding_in(const struct znsd *d, const uint8_t *id);
/* May the checkpoint be removed or moved? -EBUSY: a yielding lease reads it. */
int yielding_allows(const struct znsd *d, const uint8_t *id, struct zns_err *err);
/* naming.c: lets a dump refer to units of a yielding lease at their present places */
int naming_begin(struct znsd *d, struct lease *dump, const ZnsPb__MemoryNaming *q,
		 struct zns_err *err);
/* May the dump's record contain this use? The states of its zones must be up to date. */
int naming_check(const struct znsd *d, const struct lease *dump, const ZnsPb__ZoneUse *u,
		 struct zns_err *err);
int naming_refresh(struct znsd *d, const struct lease *dump, struct zns_err *err);
void naming_end(struct znsd *d, const struct lease *dump);

/* ---- rate.c ---- */
static inline bool rate_one_domain(const struct znsd *d)
{
	return d->nr_groups == 1;
}
int rate_check_cap(const ZnsPb__DumpBegin *q, struct zns_err *err);
/* Determines which part of a QoS a drive of one domain can still promise; *promise gets it. -EBUSY:
 * too little, with the reason in @why. */
int rate_admit(const struct znsd *d, uint32_t qos_mibps, uint32_t *promise, char *why, size_t len);
/* the lease's present limit in MiB/s; 0: no limit */
uint32_t rate_limit(struct znsd *d, const struct lease *l);
/* records progress that the helper reports */
void rate_note(struct znsd *d, struct lease *l, uint64_t bytes, uint64_t total);

/* ---- promise.c ---- */
/* MiB/s that a drive of one domain has promised to this lease, and to all dumps */
uint32_t promise_rate(const struct lease *l);
uint32_t promises_rate(const struct znsd *d);
/* Promises to restores. promises_take reduces @room (the available part of each group's time) by
 * all promises. promise_on: is a restore promised time on @group? promises_meet: are there promises
 * to other leases than @l on its groups? */
void promises_take(const struct znsd *d, double *room);
bool promise_on(const struct znsd *d, uint32_t group);
bool promises_meet(const struct znsd *d, const struct lease *l);
/* Determines what is promised to @l. @note: empty, or why it is less than it asked for. -EBUSY:
 * what it needs is promised to others; -ERANGE: it is more than the device can give; -EDQUOT: it is
 * above the tenant's limit. */
int promise_admit(struct znsd *d, struct lease *l, const ZnsPb__RestoreBegin *q, char *note,
		  size_t len, struct zns_err *err);

/* ---- weights.c ---- */
/* do weights matter: does any lease ask for a weight, or has a restore a promise? */
bool weights_count(const struct znsd *d);
double weight_of(const struct lease *l); /* relative to the default weight, which is 1 */
/* The limit of the lease from its share, by weight, of the groups that it shares with others,
 * MiB/s; 0: no such limit. */
uint32_t weight_limit(struct znsd *d, const struct lease *l);
void weight_note(struct lease *l, uint64_t bytes); /* records progress, as rate_note does */
void weight_reader(struct znsd *d, struct lease *l, const struct chain *chain);
/* weight stored in the record; 0: there is none */
uint32_t weight_of_record(const ZnsPb__Checkpoint *k);
/* -EINVAL: out of range. 0 is allowed and means that no weight was asked for */
int weight_check(uint32_t weight, struct zns_err *err);
/* The weight after tenants.conf was applied, limited to the tenant's maximum (@weight 0: none was
 * asked for): for a dump whose rule is @t, and for other leases of @container. */
uint32_t weight_under(const struct zns_tenant *t, uint32_t weight);
uint32_t weight_of_tenant(const char *container, uint32_t weight);

/* growth.c: further groups for a running dump that shares */
struct group_writers {
	uint32_t group, writers;
};
struct growth {
	bool shares; /* false: the dump does not share, and the other members are not set */
	bool again; /* the client shall ask again within again_ms */
	uint32_t again_ms;
	uint32_t limit_mibps; /* limit of the dump; 0: none */
	/* for each group that the dump already had: the number of writers, including itself */
	struct group_writers *groups;
	uint32_t nr_groups;
	struct gained {
		uint32_t zone, writers;
	} * gained;
	uint32_t nr_gained;
};
void dump_grow(struct znsd *d, struct lease *l, const ZnsPb__Progress *q, struct growth *g);
void growth_fini(struct growth *g);

/* device_ceiling.c: for a device that writes less than the sum of its groups */
/* MiB/s that are not promised yet; UINT32_MAX: there is no ceiling */
uint32_t ceiling_left(const struct znsd *d);
/* the dump's limit in MiB/s; 0: no limit */
uint32_t ceiling_limit(const struct znsd *d, const struct lease *l);
/* what promises leave of the device's ceiling for dumps that share, in units of one zone's write
 * rate; 0: there is no ceiling */
double ceiling_share(const struct znsd *d);

/* ---- parents.c ---- */
struct chain {
	const ZnsPb__Checkpoint **v; /* a checkpoint, then its parents; the caller frees it */
	size_t nr;
};
/* Returns the error for a missing checkpoint. -ESTALE: it was removed, and @err says when and by
 * whom; -ENOENT: it never existed. */
int checkpoint_absent(const struct znsd *d, const ProtobufCBinaryData *q, const char *what,
		      struct zns_err *err);
/* Finds the records of @k and its parents. -ESTALE, -ENOENT: a record is missing; -E2BIG: the chain
 * is too long. */
int chain_of(const struct znsd *d, const ZnsPb__Checkpoint *k, struct chain *out,
	     struct zns_err *err);
int parent_check(const struct znsd *d, const ZnsPb__DumpBegin *q, struct zns_err *err);
int flatten_check(const struct znsd *d, const ZnsPb__DumpBegin *q, struct zns_err *err);
/* Does a running dump use the checkpoint, or a child of it, as its parent? */
bool parent_in_use(const struct znsd *d, const uint8_t *id);
/* The running dump that has this checkpoint as its parent, or NULL. */
const struct lease *parent_of_dump(const struct znsd *d, const uint8_t *id);
/* May all of these be removed? -EBUSY: a checkpoint that stays has one of them as its parent. */
int parents_may_go(const struct znsd *d, const ProtobufCBinaryData *ids, size_t nr,
		   struct zns_err *err);
/* Sorts for removal: children before their parents, so that at no time a child lacks its parent. */
void parents_last(const struct znsd *d, ProtobufCBinaryData *ids, size_t nr);

/* ---- removal.c ---- */
struct grave {
	ZnsPb__Tombstone *t; /* a copy of the checkpoint's tombstone; NULL: the store has none */
	uint32_t *zones, nr; /* zones with a footer of the checkpoint; none on a disk */
	/* on a disk: the manifest, which is directly in front of the footer; NULL: the footer is
	 * outside of the checkpoint's own bytes */
	ZnsPb__ExtentRef *manifest;
};
int checkpoint_remove(struct znsd *d, const uint8_t *id, const char *by, struct grave *g,
		      struct zns_err *err);
/* Both free the members of @g. */
void bury(struct znsd *d, struct grave *g);
void grave_free(struct znsd *d, struct grave *g);

/* footers.c: overwrites obsolete footers on a disk */
/* To be called when the footer behind @manifest is obsolete. @t: the tombstone with which it is
 * overwritten, or NULL. Both arguments are copied. */
void footer_gone(struct znsd *d, const uint8_t *id, const ZnsPb__ExtentRef *manifest,
		 const ZnsPb__Tombstone *t);
/* Overwrites the footers that could not be overwritten before. @leaves: the broker is about to end,
 * so it only waits for zones that are being written. */
void footers_step(struct znsd *d, bool leaves);
void footers_fini(struct znsd *d);

/* ---- expiry.c ---- */
bool checkpoint_pinned(const struct znsd *d, const uint8_t *id);
void retention_apply(struct znsd *d, const char *container);

/* encryption.c: the encryption that the device requires of new checkpoints; NULL: none */
const ZnsPb__Encryption *wanted_encryption(const struct znsd *d);
int sealed_check(const struct znsd *d, const ZnsPb__DumpBegin *q, struct zns_err *err);
int encryption_check(const struct znsd *d, const ZnsPb__DumpBegin *q, struct zns_err *err);
/* Is the record encrypted as the lease's dump_begin announced? */
int encryption_check_record(const struct lease *l, const ZnsPb__Checkpoint *k, struct zns_err *err);
void encryption_note(struct lease *l, const ZnsPb__DumpBegin *q);
int secure_check(const struct znsd *d, const ZnsPb__Rm *q, const uint8_t *id, struct zns_err *err);

/* ---- ending.c ---- */
void lease_end(struct znsd *d, struct lease *l);
/* Takes all zones back from a dump that then continues with other zones. */
void lease_give_back(struct znsd *d, struct lease *l);
/* *pidfd refers to the client's process; it is -1 if a lease has taken it over. */
void leases_of_conn_lost(struct znsd *d, const struct conn *c, int *pidfd);
/* ends leases whose client has died; returns milliseconds until the next call, -1: none */
int leases_reap(struct znsd *d);

/* finisher.c: finishes zones in threads of its own. Everything else belongs to the poll loop. */
int finisher_new(struct znsd *d, struct zns_err *err);
void finisher_free(struct znsd *d); /* waits for running threads */
/* call finisher_reap when it is readable; -1: there is no finisher */
int finisher_fd(const struct znsd *d);
uint32_t finisher_running(const struct znsd *d);
bool finisher_start(struct znsd *d, uint32_t zone); /* false: too many threads are running */
void finisher_reap(struct znsd *d);

/* reclaim.c: does one step of background work; returns milliseconds until the next step, -1:
 * none */
int reclaim_step(struct znsd *d);
bool reclaim_pending(const struct znsd *d);

/* gc_due.c: is it time for `znsctl gc`? @last_ns: when the last run began, by zns_mono_ns(); 0: not
 * known, and then the time counts from now on (*from_now). @every_s: interval; 0: never. */
bool gc_due(const struct znsd *d, uint64_t last_ns, uint64_t every_s, bool *from_now);

#endif
