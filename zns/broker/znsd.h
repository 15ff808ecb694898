/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNSD_H
#define ZNSD_H
/*
 * znsd, the one broker of a device (design.md §5). One thread, one poll loop; everything here lives in memory
 * and is rebuilt from the device's report and the store when a broker starts.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "zns/alloc.h"
#include "zns/broker.h"
#include "zns/config.h"
#include "zns/dev.h"
#include "zns/reserve.h"
#include "zns/store.h"
#include "zns/util.h"
#include "zns-broker.pb-c.h"

#define ZNSD_UNIT_MIN KIB(64)		/* a tail smaller than this is not given out */
#define ZNSD_CONNS_MAX 4096
#define ZNSD_RESET_BATCH 64
#define ZNSD_IDLE_MS 10000
#define ZNSD_WRITERS_MS 10000		/* helpers of a dead broker end within this */
#define ZNSD_WRITER_GONE_MS 3000	/* after a lost connection: how long the process may live on */
#define ZNSD_RETRY_NS 10000000000ull	/* after a reset or finish that failed */
#define ZNSD_WAIT_S 60
#define ZNSD_SMALL_UNITS 16		/* a dump with fewer units for each of its zones gets fewer zones */
#define ZNSD_NONE UINT32_MAX
#define ZNSD_WAITS_NS 200000000ull	/* so long it counts as waiting for its zones after it said so */
#define ZNSD_PEER_MS 10000	/* for a peer to send what it has begun, or to take what it has asked for */
#define ZNSD_RATE_NS 500000000ull	/* over which "now" is rated, at least */

#define ZNSD_OUT_MAX MIB(64)	/* answers that nobody has read yet; beyond it questions wait */

struct conn;
struct lease;
struct znsd;

/* A request that comes in; see intake.c. */
struct intake {
	size_t room;		/* set aside for it; 0: none is needed, or none was to be had yet */
	bool dump;		/* whose room */
	bool served;		/* it waits for admission and keeps its room */
	uint64_t since_ns;	/* since when the rest of it is expected; 0: not now */
};

struct zn_zone {
	struct zns_zone z;	/* as last reported; stale while somebody writes */
	uint32_t group;
	bool meta;
	bool old;		/* holds data from before this broker: unknown readers are possible */
	bool ours;		/* what it holds is a dump's, also in a group that is reserved for normal I/O now */
	bool finishing;		/* by the finisher, now */
	uint32_t readers;	/* restore leases */
	struct lease *writer;
	uint64_t stamp;		/* when it was parked, for the least recently used */
	uint64_t retry_ns;	/* not before this: the last reset or finish failed */
	bool suspect;		/* a write failed, and none was done since; given out only if there is no other */
};

struct zn_group {
	int32_t channel;
	bool metadata;
	bool io;		/* reserved for normal I/O: what is in its zones is not ours to reset */
	uint32_t next;		/* where the next search for an empty zone starts: spreads wear */
	uint32_t nr_zones;	/* data zones */
	uint32_t *zones;
};

struct lease_zone {
	uint32_t zone;
	uint64_t start;		/* write pointer when granted */
	uint64_t committed;	/* scratch of commit: end of the last use seen */
	bool bad;		/* the writer found it so */
	bool done;		/* the writer is through with it */
};

struct lease {
	struct lease *next;
	bool dump;		/* else restore */
	bool dynamic;		/* a dump without reservation */
	bool promised;		/* admitted without sharing: nobody else gets its groups while it lasts */
	bool packed;		/* a small dump: its zones are pack zones */
	bool background;	/* of a compaction: gives way to everybody, and counts for nobody's admission */
	uint32_t moved;		/* of a compaction or a flattening: the version of the checkpoint that it began with */
	bool flatten;		/* what it commits replaces that checkpoint */
	bool has_parent;	/* an incremental dump: that checkpoint stays */
	uint8_t parent[ZNS_UUID_LEN];
	bool joins;		/* its id is that of a checkpoint of pages only, which it completes */
	bool dying;		/* connection lost, writer's process still there */
	uint64_t dying_until;
	struct conn *conn;
	int pidfd;		/* -1: none to be had */
	uint32_t pid;
	char *container;
	uint8_t id[ZNS_UUID_LEN];
	uint32_t qos_mibps;
	uint32_t cap_mibps;	/* its own limit; 0: none */
	uint32_t promised_mibps;	/* one domain only: of the QoS, what is kept for it */
	uint64_t bytes, total;	/* as its helper said last */
	uint64_t seen_ns, seen_bytes;
	double mibps;		/* between the last two looks */
	int64_t since_ns;
	uint32_t *groups, nr_groups;	/* those for metadata images last */
	uint32_t *weights, nr_meta;	/* as granted: told again to who takes it over */
	uint32_t max_rate_mibps;	/* the tenant's ceiling; 0: none */
	uint32_t *shared, nr_shared;	/* groups that others had or got meanwhile */
	uint32_t claimed;	/* a pack zone that is its own already, until the writer asks; ZNSD_NONE */
	char *tenant;		/* the rule that applies, or NULL */
	uint32_t max_groups, total_groups;	/* of that rule; 0: any number */
	uint32_t most;		/* zones that a dump of its size has use for */
	bool grows;		/* its writer takes more groups while it works */
	uint64_t waits_ns;	/* when it said last that its zones are what it waits for; 0: never */
	uint32_t nr_gained;	/* groups that it got so, before those for metadata images: not of its reservation */
	bool encrypted;		/* its checkpoint will be, with the key of this fingerprint */
	uint8_t key_id[8];
	uint32_t min_room;	/* bytes: less is of no use to the writer */
	uint32_t width;		/* zones it may have in writing, guaranteed */
	struct lease_zone *zones;	/* restore: those it protects */
	uint32_t nr_zones;
};

enum admission { ADM_SHARE, ADM_WAIT, ADM_REJECT };

/* What a dump asks for, checked. */
struct ask {
	const char *container;
	uint32_t qos, needed;	/* needed: zones for the QoS when nothing is shared */
	uint32_t uid;
	bool dynamic, separate, small;
	enum admission mode;
	uint32_t wait_s;
	uint32_t min_room;
	uint64_t expected;	/* bytes, 0: unknown */
	uint32_t most;		/* zones that a dump of this size has use for */
	uint32_t cap_mibps;	/* its own; 0: none */
	struct zns_tenant tenant;
	const uint8_t *join;	/* NULL: a checkpoint of its own */
};

/* What it would get now. */
struct choice {
	struct zns_group_state *gs;
	uint32_t *order;	/* groups for pages, best first, `width` of them; then those for metadata */
	uint32_t width, nr_meta;
	uint32_t pack_zone;	/* ZNSD_NONE: an empty one */
	uint32_t promise;	/* one domain only: MiB/s that are kept for it */
	bool packed;
	bool room;		/* zones are being finished or reset in the background: soon */
	char note[256];		/* share mode: why it is less than asked */
	char why[256];		/* contention: why not now */
};

/* A dump_begin that waits for admission; its connection takes no other request meanwhile. */
struct waiter {
	struct waiter *next;
	struct conn *conn;
	ZnsPb__Request *req;
	bool share;		/* it waits for a zone, not for groups of its own: a queue of its own */
	char why[ZNS_ERR_MAX];	/* the last try's reason */
	uint64_t deadline;	/* zns_mono_ns */
	uint32_t seconds;
};

struct reply {
	ZnsPb__Response r;
	struct zns_err err;
	bool later;		/* a waiter: no answer now */
	bool hangup;		/* close the connection after the answer */
	void **mem;		/* freed after packing */
	size_t nr_mem;
};

struct znsd {
	struct zns_registered reg;
	struct zns_dev *dev;
	struct zns_store *store;
	struct zns_resv resv;	/* the drive's, if it has such */
	uint32_t zone_mibps;
	uint32_t ceiling_mibps;	/* what all groups together are written with; 0: their sum */
	struct zn_zone *zones;
	uint32_t nr_zones;
	struct zn_group *groups;
	uint32_t nr_groups;
	struct lease *leases;
	struct waiter *waiters;
	ZnsPb__RestoreLog *restores;	/* oldest first; NULL: none */
	struct conn *conns;
	uint32_t nr_conns;
	size_t intake_used[2];	/* room set aside for requests: of others, of dumps */
	size_t out_bytes;	/* of all answers that are not out yet */
	uint64_t stamp;		/* last one given */
	bool sweep;		/* some zone may be garbage */
	bool park_check;	/* too many may be parked */
	uint32_t room_wanted;	/* parked zones to finish for somebody who waits */
	uint64_t finish_ns;	/* the last finish in the background */
	bool compact_yield;	/* somebody needs the zones of compactions: they shall end */
	struct finisher *finisher;	/* NULL: zones are finished in the loop */
	uint32_t io_zones;	/* active zones of normal I/O, as of io_ns */
	uint64_t io_ns;
	uint8_t *held;		/* groups that the first waiter will get; NULL: none waits */
	bool readers_clear;	/* no restore of an earlier broker lives */
	bool quit;
	bool lost;		/* another host has reserved the device */
	int lock_fd, dev_lock_fd, listen_fd, readers_fd;
	char sock_path[108];
	uint64_t idle_ns;	/* 0: never leave */
	uint64_t idle_since;
};

/* util.c */
void znsd_log(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void *znsd_alloc(size_t len);		/* zeroed; a broker without memory ends, the next one recovers */
char *znsd_strdup(const char *s);
void *reply_alloc(struct reply *rep, size_t len);
char *reply_printf(struct reply *rep, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void reply_free(struct reply *rep);

/* startup.c */
int znsd_start(struct znsd *d, const char *spec, struct zns_err *err);
void znsd_stop(struct znsd *d);

/* mount.c: one machine at a time */
int mount_claim(struct znsd *d, struct zns_err *err);	/* -EBUSY: another machine has it */
void mount_release(struct znsd *d);
void mount_unreserve(struct znsd *d);	/* the last thing before the device is closed */
void mount_look(struct znsd *d, struct zns_resv_state *now);	/* who has reserved the device */
void mount_heed(struct znsd *d, const struct zns_err *why);	/* an error of the device may say that it is lost */

/* server.c */
int znsd_listen(struct znsd *d, struct zns_err *err);
int znsd_loop(struct znsd *d);
void conn_answer(struct znsd *d, struct conn *c, struct reply *rep, int code);
uint32_t conn_pid(const struct conn *c);
int conn_take_pidfd(struct conn *c);
bool conn_left(const struct conn *c);	/* its peer closed it; of a request that is being served */
void conn_committed(struct conn *c, const char *container);	/* retention is applied when it ends */
void conn_set_waiter(struct conn *c, struct waiter *w);

/* alive.c */
int alive_start(const struct znsd *d, struct zns_err *err);

/* intake.c; @len: of a request that is coming. False: no room yet, it is not to be read. */
bool intake_room(struct znsd *d, struct intake *in, uint32_t len, bool dump);
void intake_end(struct znsd *d, struct intake *in);

/* dispatch.c: returns the code of the answer; details in rep->err */
int znsd_dispatch(struct znsd *d, struct conn *c, ZnsPb__Request *req, struct reply *rep);

/* zones.c */
int zones_init(struct znsd *d, struct zns_err *err);
void zones_fini(struct znsd *d);
int zones_refresh(struct znsd *d, uint32_t first, uint32_t nr, struct zns_err *err);
uint64_t zone_live(const struct znsd *d, uint32_t zone);
bool zone_usable(const struct zn_zone *z);	/* a data zone that takes writes */
bool zone_empty(const struct znsd *d, uint32_t zone);	/* and could be granted as it is */
bool zone_parked(const struct znsd *d, uint32_t zone);
bool zone_packed(const struct znsd *d, uint32_t zone);	/* all that lives there are small checkpoints */
bool zone_parked_for(const struct znsd *d, uint32_t zone, const char *container, uint32_t min_room);
bool zone_parked_pack(const struct znsd *d, uint32_t zone, uint32_t min_room);
bool zone_garbage(const struct znsd *d, uint32_t zone);	/* written, not live, nobody on it: may be reset */
void zone_settle(struct znsd *d, uint32_t zone);	/* its writer is gone: close, park, or leave to the sweep */
uint32_t zones_reset(struct znsd *d, const uint32_t *zones, uint32_t nr, struct zns_err *err);
int zone_finish(struct znsd *d, uint32_t zone, struct zns_err *err);
uint32_t zones_active(const struct znsd *d);	/* data zones, those granted and not full included */
uint32_t meta_zones(struct znsd *d, bool open);	/* those the log keeps open, or active; at least 1 */
uint32_t zones_idle_active(const struct znsd *d);	/* active with nobody writing: parked, or garbage not reset yet */
uint32_t zones_parked(const struct znsd *d);
uint32_t park_limit(struct znsd *d);		/* how many may be parked; UINT32_MAX: any */
uint64_t tail_min(const struct znsd *d);	/* a zone with less room, bytes, is not kept to be continued */
/* The least recently used; @urgent: somebody waits for its place, so it may also be where a dump runs. */
bool zone_lru_parked(const struct znsd *d, bool urgent, uint32_t *zone);
bool readers_check(struct znsd *d);

/* finisher.c: finishes zones in threads of its own; everything else is the loop's. */
int finisher_new(struct znsd *d, struct zns_err *err);
void finisher_free(struct znsd *d);	/* waits for those that run */
int finisher_fd(const struct znsd *d);	/* readable: call finisher_reap; -1: none */
uint32_t finisher_running(const struct znsd *d);
bool finisher_start(struct znsd *d, uint32_t zone);	/* false: enough run already */
void finisher_reap(struct znsd *d);

/* reclaim.c: one step of background work; returns milliseconds until the next, -1: none */
int reclaim_step(struct znsd *d);
bool reclaim_pending(const struct znsd *d);

/* lease.c */
struct lease *lease_new(struct znsd *d, struct conn *c, bool dump, const char *container, const uint8_t *id);
struct lease *lease_of(struct znsd *d, const struct conn *c);	/* the dump of a connection, or NULL */
bool lease_any(const struct znsd *d, const struct conn *c);	/* has it a lease, for a dump or a restore? */
struct lease_zone *lease_zone_find(struct lease *l, uint32_t zone);
void lease_zone_add(struct znsd *d, struct lease *l, uint32_t zone, uint64_t start);
bool lease_has_group(const struct lease *l, uint32_t group);
uint32_t lease_unfull(const struct znsd *d, const struct lease *l);
void lease_end(struct znsd *d, struct lease *l);
void leases_forget(struct znsd *d);	/* at the end of the process */
void leases_of_conn_lost(struct znsd *d, struct conn *c);
int leases_reap(struct znsd *d);	/* dying ones; milliseconds until the next look, -1: none */
void reservation_settle(struct znsd *d, const char *container);	/* drop it if nothing needs it any more */
void reservation_renew(struct znsd *d, const char *container);
uint32_t lease_shared(const struct lease *l);

/* budget.c: counting what the device's limits and the administrator's allow. */
uint32_t budget_device(struct znsd *d);	/* data zones that may be in writing at once; UINT32_MAX: no limit */
uint32_t budget_total(struct znsd *d);	/* the same, without those of normal I/O */
uint32_t budget_used(const struct znsd *d);
uint32_t budget_tenant_groups(const struct znsd *d, const struct zns_tenant *t);	/* left; UINT32_MAX: no limit */
uint32_t budget_tenant_qos(const struct znsd *d, const struct zns_tenant *t);	/* MiB/s left, likewise */
/* Zones that must be finished or reset first if @more become active, of which the asker continues @own. */
uint32_t budget_excess(struct znsd *d, uint32_t more, uint32_t own);
uint32_t pack_leases(const struct znsd *d);
uint32_t pack_limit(struct znsd *d);	/* pack zones in writing at once */

/* groups.c; @self: a lease that does not count, or NULL */
void groups_state(const struct znsd *d, const char *container, const struct lease *self, struct zns_group_state *gs);
void groups_mark_shared(struct znsd *d, struct lease *l, uint32_t group);	/* by the dumps that use it now */
void groups_io_refresh(struct znsd *d);	/* after a change of reservations */
const char *groups_holders(const struct znsd *d, const char *container, char *buf, size_t len);

/* choose.c: 0; -EBUSY: not now (ch->why, ch->room); -ENOSPC */
int choose(struct znsd *d, const struct ask *a, struct choice *ch, struct zns_err *err);
void choose_hold(struct znsd *d, const struct ask *a);	/* d->held: what a waiter is to get */
bool reserved_by(const ZnsPb__Reservation *r, uint32_t group);
/* The dumps that run where others may come in; *@self: which of them @l is. To be freed; their groups are the leases'. */
struct zns_sharer *sharers_of(const struct znsd *d, const struct lease *l, uint32_t *nr, uint32_t *self);
/* What it keeps for its dumps: not with dynamic allocation, and not what its name has for normal I/O. */
const ZnsPb__Reservation *own_reservation(const struct znsd *d, const struct ask *a);

/* admit.c */
int handle_dump_begin(struct znsd *d, struct conn *c, ZnsPb__Request *req, struct reply *rep);
int admit(struct znsd *d, struct conn *c, const ZnsPb__DumpBegin *q, struct ask *a, bool *room, struct reply *rep);

/* wait.c */
void waiter_add(struct znsd *d, struct conn *c, ZnsPb__Request *req, const struct ask *a, const struct zns_err *why);
uint32_t waiters_before(const struct znsd *d, bool share);	/* how many wait in that queue */
int waiters_run(struct znsd *d);	/* try them in order; milliseconds until a deadline, -1: none */
void waiter_drop(struct znsd *d, struct conn *c);

/* dump.c */
uint32_t find_empty_zone(struct znsd *d, struct zn_group *g, const uint32_t *not_zones, size_t nr_not);
int handle_zone_get(struct znsd *d, struct conn *c, const ZnsPb__ZoneGet *q, struct reply *rep);
/* A zone of @group and of no other one, now the lease's; the limits allow it. ZNSD_NONE: none. */
uint32_t zone_gain(struct znsd *d, struct lease *l, uint32_t group);
int handle_commit(struct znsd *d, struct conn *c, ZnsPb__Checkpoint *ckpt, struct reply *rep);
int handle_abort(struct znsd *d, struct conn *c, struct reply *rep);

/* restore.c */
int handle_restore_begin(struct znsd *d, struct conn *c, const ZnsPb__RestoreBegin *q, struct reply *rep);
/* A lease that keeps @id's zones from being reset; the record goes into the answer. NULL: no such checkpoint. */
struct lease *restore_lease(struct znsd *d, struct conn *c, const ProtobufCBinaryData *id, struct reply *rep);

/* compact.c: moving live bytes out of zones that hold few of them */
int handle_compact_begin(struct znsd *d, struct conn *c, const ZnsPb__CompactBegin *q, struct reply *rep);
int handle_compact_zone(struct znsd *d, struct conn *c, const ZnsPb__CompactZone *q, struct reply *rep);
int handle_compact_step(struct znsd *d, struct conn *c, const ZnsPb__CompactStep *q, struct reply *rep);
int handle_compact_commit(struct znsd *d, struct conn *c, const ZnsPb__Checkpoint *q, struct reply *rep);
/* Zones where a footer of it stays: should the log be lost, its removal must be found there too. To be freed. */
uint32_t *old_manifests(const struct znsd *d, const ZnsPb__Checkpoint *now, size_t *nr);
uint32_t compact_zones(const struct znsd *d);	/* that compactions write now */

/* rate.c */
bool rate_one_domain(const struct znsd *d);
uint32_t rate_promised(const struct znsd *d);	/* MiB/s, to all dumps of a drive that is one domain */
int rate_check_cap(const ZnsPb__DumpBegin *q, struct zns_err *err);
/* What of a QoS a drive that is one domain can still promise; -EBUSY if it is less, with the reason in @why. */
int rate_admit(const struct znsd *d, uint32_t qos_mibps, uint32_t *promise, char *why, size_t len);
uint32_t rate_limit(const struct znsd *d, const struct lease *l);	/* MiB/s in force for it; 0: none */
int handle_progress(struct znsd *d, struct conn *c, const ZnsPb__Progress *q, struct reply *rep);

/* gain.c: groups for a dump that runs and shares, in the answer to its progress */
void gain_answer(struct znsd *d, struct lease *l, const ZnsPb__Progress *q, struct reply *rep);

/* ceiling.c: a device that as a whole writes less than its groups could */
uint32_t ceiling_left(const struct znsd *d);	/* MiB/s not promised yet; UINT32_MAX: no ceiling */
uint32_t ceiling_limit(const struct znsd *d, const struct lease *l);	/* MiB/s for a dump; 0: none */
double ceiling_share(const struct znsd *d);	/* in zones' worth, what is left to dumps that share; 0: no ceiling */

/* stats.c */
void restores_load(struct znsd *d);
void restores_free(struct znsd *d);
ZnsPb__RestoreStat *restore_of(const struct znsd *d, const char *container);	/* NULL: none known */
ZnsPb__RestoreStat *restore_remember(struct znsd *d, const struct lease *l, const ZnsPb__Progress *q);

/* query.c */
int handle_ls(struct znsd *d, struct reply *rep);
int handle_status(struct znsd *d, struct reply *rep);
int handle_zones(struct znsd *d, struct reply *rep);
int handle_profile(struct znsd *d, struct reply *rep);

/* bury.c */
/* Zones with a footer of the checkpoint, malloc'ed; *nr of them. To be asked before it is removed. */
uint32_t *bury_zones(const ZnsPb__Checkpoint *k, uint32_t *nr);
void bury(struct znsd *d, const uint32_t *zones, uint32_t nr, const ZnsPb__Tombstone *t);

/* retain.c */
int handle_retain(struct znsd *d, const ZnsPb__Retention *q, struct reply *rep);
int handle_mark(struct znsd *d, const ZnsPb__Mark *q, struct reply *rep);
bool checkpoint_pinned(const struct znsd *d, const uint8_t *id);
void list_rules(struct znsd *d, struct reply *rep);
void retention_apply(struct znsd *d, const char *container);

/* parents.c */
/* -ESTALE: it was removed, when and by whom; -ENOENT. */
int checkpoint_absent(const struct znsd *d, const ProtobufCBinaryData *q, const char *what, struct zns_err *err);
/* The answer's checkpoints: @k and its parents. -ESTALE, -ENOENT: one is missing; -E2BIG. */
int parents_tell(const struct znsd *d, const ZnsPb__Checkpoint *k, struct reply *rep);
int parent_check(const struct znsd *d, const ZnsPb__DumpBegin *q, struct zns_err *err);
int flatten_check(const struct znsd *d, const ZnsPb__DumpBegin *q, struct zns_err *err);
int flatten_commit(struct znsd *d, const struct lease *l, const ZnsPb__Checkpoint *q, struct zns_err *err);
/* A dump that is under way reads it, or its child. */
bool parent_in_use(const struct znsd *d, const uint8_t *id);
/* By a checkpoint of another container, or a dump that is under way. */
bool parent_needed(const struct znsd *d, const uint8_t *id, const char *container);
/* May all of these be removed? -EBUSY: something that stays is built on one. */
int parents_may_go(const struct znsd *d, const ProtobufCBinaryData *ids, size_t nr, struct zns_err *err);
/* Order for removal: children before their parents, so that none is ever without. */
void parents_last(const struct znsd *d, ProtobufCBinaryData *ids, size_t nr);

/* manage.c */
void note_ours(struct znsd *d, const ZnsPb__Checkpoint *k);	/* before it is removed */
/* encryption.c: what the device asks of new checkpoints, NULL: nothing */
const ZnsPb__Encryption *wanted_encryption(const struct znsd *d);
int encryption_check(const struct znsd *d, const ZnsPb__DumpBegin *q, struct zns_err *err);
/* The record is encrypted as its dump_begin said. */
int encryption_check_record(const struct lease *l, const ZnsPb__Checkpoint *k, struct zns_err *err);
void encryption_note(struct lease *l, const ZnsPb__DumpBegin *q);
int secure_check(const struct znsd *d, const uint8_t *id, struct zns_err *err);
int handle_encryption(struct znsd *d, ZnsPb__Encryption *q, struct reply *rep);
int handle_rekey(struct znsd *d, const ZnsPb__Rekey *q, struct reply *rep);
int handle_rm(struct znsd *d, const ZnsPb__Rm *q, struct reply *rep);
int handle_reserve(struct znsd *d, const ZnsPb__Reserve *q, struct reply *rep);
int handle_release(struct znsd *d, const char *container, struct reply *rep);
int handle_reset(struct znsd *d, const ZnsPb__ZonesReset *q, struct reply *rep);
int handle_quit(struct znsd *d, struct reply *rep);

#endif
