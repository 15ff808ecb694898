/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef BROKER_TABLES_H
#define BROKER_TABLES_H
/*
 * The bottom layer of znsd, the one broker of a device (design.md §5): its state. Zones, groups and
 * leases are in memory only; a starting broker rebuilds them from the device's report and the
 * store. The functions here look things up and keep the tables up to date with the device. What the
 * layers above must do as a consequence is recorded in `struct znsd`. All of this belongs to one
 * thread, the poll loop.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <syslog.h>
#include "zns/alloc.h"
#include "zns/config.h"
#include "zns/dev.h"
#include "zns/grow.h"
#include "zns/hot.h"
#include "zns/store.h"
#include "zns/util.h"
#include "zns-broker.pb-c.h"

#define ZNSD_UNIT_MIN KIB(64) /* a partly filled zone with less room than this is not granted */
#define ZNSD_RESET_BATCH 64
/* how long to wait after a failed reset or finish before it is tried again */
#define ZNSD_RETRY_NS 10000000000ull
#define ZNSD_NONE UINT32_MAX

struct conn; /* only used to compare pointers here */
struct lease;
struct policy;
struct server;
struct znsd;

struct zn_zone {
	struct zns_zone z; /* last report; outdated while the zone is being written */
	uint32_t group;
	bool meta;
	/* has data from before this broker started, which unknown processes may be reading */
	bool old;
	/* its data were written by dumps, even if its group is now reserved for normal I/O */
	bool ours;
	bool finishing; /* a thread of the finisher is finishing it */
	uint32_t readers; /* number of leases that read it */
	uint32_t resets; /* number of resets by this broker */
	struct lease *writer;
	uint64_t stamp; /* when it was parked (a counter), to find the least recently used zone */
	uint64_t retry_ns; /* no reset or finish before this time, since the last one failed */
	/* its last write failed, so it is granted only if there is no other zone */
	bool suspect;
	bool going; /* a resize will cut this zone off, so it is not granted any more */
	bool ahead; /* blocks were allocated for it before it is written (policy/ahead.c) */
	bool no_reuse; /* the device refused to make its free places writable */
};

struct zn_group {
	int32_t channel;
	uint32_t mibps; /* measured write rate of one zone alone, MiB/s */
	bool metadata;
	bool io; /* reserved for normal I/O: the broker must not reset the data in its zones */
	/* where the next search for an empty zone starts, so that zones wear equally */
	uint32_t next;
	uint32_t nr_zones; /* number of data zones */
	uint32_t *zones;
};

struct lease_zone {
	uint32_t zone;
	/* the range that the lease may write, beginning at the write pointer at the time of the
	 * grant */
	uint64_t start, end;
	/* on a disk: the token of zns_dev_offer, if it writes to the place of a removed checkpoint;
	 * 0: it does not */
	uint64_t turn;
	uint64_t committed; /* only used during a commit: end of the last use seen */
	bool bad; /* the writer reported that it failed */
	bool done; /* the writer reported that it does not need it any more */
};

enum lease_kind {
	LEASE_DUMP,
	LEASE_IMPORT, /* completes a checkpoint that has only pages so far, under its id */
	LEASE_FLATTEN, /* replaces a checkpoint by one that has no parent and no composed images */
	/* a lease of a package (struct yielding), which gives way to all others */
	LEASE_YIELDING,
	LEASE_COMPACT, /* moves a checkpoint: the lease on the zones that it writes */
	LEASE_SOURCE, /* moves a checkpoint: the lease on the zones that it reads */
	/* a second lease of a dump: on zones of a yielding lease whose units it will name */
	LEASE_NAMED,
	LEASE_RESTORE,
};

/* The terms under which a dump, import or flattening was admitted, and its state. */
struct lease_dump {
	uint32_t qos_mibps;
	uint32_t cap_mibps; /* the limit that it asked for; 0: none */
	/* only on a drive of one domain: the part of the QoS that is promised */
	uint32_t promised_mibps;
	bool dynamic; /* the dump allocates groups without a reservation */
	/* the dump was admitted without sharing: its groups are not granted to others meanwhile */
	bool promised;
	bool grows; /* the dump's writer can use more groups while it runs */
	bool has_parent; /* the dump is incremental, so its parent must be kept */
	/* the checkpoint will be encrypted with the key that has this fingerprint */
	bool encrypted;
	uint8_t parent[ZNS_UUID_LEN];
	uint8_t key_id[8];
	uint32_t moved; /* import, flattening: version of the checkpoint when the lease began */
	/* weights of its groups as granted, needed again for a client that takes the lease over */
	uint32_t *weights, nr_meta;
	/* groups that it has shared with others at any time */
	uint32_t *shared, nr_shared, max_shared;
	/*
	 * a pack zone that was granted, but that the writer has not asked for yet; ZNSD_NONE: none
	 */
	uint32_t claimed;
	bool scattered; /* neither a single place nor empty zones have room for all of it */
	uint32_t min_room; /* the least room in a zone, in bytes, that its writer can use */
	uint64_t expected; /* size that it announced in bytes; 0: none */
	uint32_t width; /* how many zones it may write at the same time, guaranteed */
	uint32_t most; /* how many zones a dump of its size can use */
	/* number of groups that it gained later, without a reservation; in the list these come
	 * before the ones for metadata images */
	uint32_t nr_gained;
	uint64_t waits_ns; /* when it last reported that it waits for its zones; 0: never */
	/* the rule of tenants.conf that applies, or NULL; and the limits of that rule, 0: none */
	char *tenant;
	uint32_t max_rate_mibps, max_groups, total_groups;
};

/* The lease's share by weight (policy/weights.c). */
struct lease_weigh {
	bool met, reports, known;
	uint64_t ns, bytes; /* time and bytes at the beginning of the present window */
	uint32_t windows;
	/* rate used, present limit, next limit, in MiB/s; a limit of 0: none */
	double used, limit, next;
	/* which part of the bytes of a reader is in each group */
	struct lease_part {
		uint32_t group;
		double part;
	} * part;
	uint32_t nr_parts;
};

/*
 * Leases of a package. They write to zones of their own, give way to dumps and restores, and exist
 * with or without a connection until the package ends them. A package registers one table of these
 * functions (policy/yielding.c) and its requests (requests/dispatch.c). The broker knows nothing
 * else about the package.
 */
struct yielding {
	const char *kind; /* name of this kind of lease in the status, the log and errors */
	const char *id_field; /* name of the journal field for the lease's id */
	/* what such leases store on zones, for messages: "memory of running programs" */
	const char *what;
	const char *command; /* command that releases their zones, for messages */
	bool (*over)(struct lease *l); /* does no process hold the lease any more? */
	/* called when the connection of the lease has ended, so that it is checked again soon */
	void (*unheld)(struct lease *l);
	/* called before the lease's zones are released */
	void (*ended)(struct znsd *d, struct lease *l);
	void (*free)(struct lease *l); /* frees yields.own */
	/* returns the checkpoint that the lease reads, if any */
	bool (*origin)(const struct lease *l, uint8_t *id);
	/* -EBUSY: the lease uses the checkpoint */
	int (*in_use)(const struct lease *l, const char *checkpoint, struct zns_err *err);
	void (*adopt)(struct znsd *d); /* adopts leases that have outlived the previous broker */
	void (*tell)(const struct lease *l, ZnsPb__MemoryDetail *det);
};

struct lease_yielding {
	const struct yielding *ops;
	void *own; /* private to the package */
	bool encrypted; /* the lease's data are encrypted */
	uint64_t worked_ns; /* when it last reported reads or writes */
};

struct lease {
	struct lease *next;
	enum lease_kind kind;
	struct conn *conn; /* NULL: the connection was lost */
	/* after a lost connection: until when the process may still write; 0: not lost */
	uint64_t dying_until;
	int pidfd; /* refers to the process; -1: none */
	uint32_t pid;
	char *container;
	uint8_t id[ZNS_UUID_LEN];
	int64_t since_ns;
	uint64_t bytes, total; /* from the helper's last report */
	uint64_t seen_ns, seen_bytes;
	double mibps; /* rate between its last two reports */
	/* number of the participant in the cache that restores share; 0: it does not use it */
	uint32_t hot;
	bool hot_counts; /* counts as one more restore of its zones */
	uint32_t weight; /* the weight that the client asked for; 0: none */
	bool own_class; /* the weight is that of background moves instead of the tenant's */
	struct lease_weigh weigh;
	uint32_t read_mibps; /* for a restore: MiB/s that were promised; 0: none */
	/* for a dump: its groups; those for metadata images come last */
	uint32_t *groups, nr_groups;
	struct lease_zone *zones; /* zones that it writes or protects */
	uint32_t nr_zones, max_zones;
	bool packed; /* the lease writes a small checkpoint, so its zones are pack zones */
	bool ended_well; /* the lease was committed, or its helper reported that it is done */
	union {
		struct lease_dump dump; /* for LEASE_DUMP, LEASE_IMPORT, LEASE_FLATTEN */
		struct {
			uint32_t moved; /* version of the checkpoint when the lease began */
			bool charged; /* shares by weight instead of giving way to all others */
			uint32_t at[2], nr_at; /* groups that it reads and writes now */
		} compact; /* for LEASE_COMPACT */
		struct lease_yielding yields; /* for LEASE_YIELDING */
	};
};

/* Is it a lease that was admitted? Then `dump` is set. */
static inline bool lease_admitted(const struct lease *l)
{
	return l->kind <= LEASE_FLATTEN;
}

static inline bool lease_writes(const struct lease *l)
{
	return l->kind <= LEASE_COMPACT;
}

/* Is it a lease that admissions do not count, because it gives way to all others? */
static inline bool lease_background(const struct lease *l)
{
	return l->kind == LEASE_COMPACT || l->kind == LEASE_SOURCE || l->kind == LEASE_NAMED;
}

static inline bool lease_promised(const struct lease *l)
{
	return lease_admitted(l) && l->dump.promised;
}

/* history.c: figures for programs that display them. */
struct load_history {
	int64_t since_ns;
	ZnsPb__LoadCounts all, before; /* before: the counts when the present sample began */
	/* when the present sample began; 0: nothing was counted since the last one */
	uint64_t began_ns;
	ZnsPb__LoadSample **samples; /* oldest sample first */
	size_t nr_samples;
	ZnsPb__GroupLoad *groups; /* NULL: there are none yet */
	bool changed; /* figures of a group have changed since they were last stored */
};

struct znsd {
	struct zns_registered reg;
	struct zns_dev *dev;
	struct zns_store *store;
	/* the rate on which promises are based; slower groups are not used for promises */
	uint32_t zone_mibps;
	uint32_t ceiling_mibps; /* write rate of the whole device; 0: the sum of its groups */
	struct zn_zone *zones;
	uint32_t nr_zones;
	struct zn_group *groups;
	uint32_t nr_groups;
	struct lease *leases;
	ZnsPb__RestoreLog *restores; /* oldest first; NULL: there are none */
	struct load_history history;
	uint64_t stamp; /* last value of the counter for zn_zone.stamp */
	bool readers_clear; /* all readers of earlier brokers have ended */
	int readers_fd;
	/* Changes to which the layers above react. */
	bool sweep; /* some zone may be garbage */
	bool park_check; /* check whether too many zones are parked */
	bool freed; /* zones, groups or limits were freed, so a waiting dump may be admitted */
	bool quit;
	bool lost; /* another host has reserved the device */
	struct zns_hot *hot; /* the cache that restores share; NULL: there is none now */
	struct zns_hot_shape hot_shape;
	struct policy *policy; /* private to the layers above */
	struct server *server;
};

/* Is the store on an ordinary disk? It counts as one domain, in which no container has groups of
 * its own. */
static inline bool on_disk(const struct znsd *d)
{
	return zns_geo_is_disk(&d->dev->geo);
}

/* The rate of a slow group relative to the rate on which promises are based. */
static inline double group_worth(const struct znsd *d, uint32_t group)
{
	return zns_min((double)d->groups[group].mibps / d->zone_mibps, 1.0);
}

static inline bool group_slow(const struct znsd *d, uint32_t group)
{
	return d->groups[group].mibps < d->zone_mibps;
}

/* log.c; @l: the lease that the message is about, or NULL */
/* from now on messages also go to the journal */
void znsd_log_device(const struct zns_registered *reg);
void znsd_say(int priority, const struct lease *l, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
#define znsd_log(...) znsd_say(LOG_INFO, NULL, __VA_ARGS__)
#define znsd_warn(...) znsd_say(LOG_WARNING, NULL, __VA_ARGS__)

/* ---- util.c ---- */
/* Returns zeroed memory. If there is none the broker exits, and the next one recovers. */
void *znsd_alloc(size_t len);
char *znsd_strdup(const char *s);
void znsd_enough(int ret); /* exits if @ret is -ENOMEM */
/* Makes room for one more element; see zns/grow.h. */
#define znsd_grow(v, nr, max) znsd_enough(zns_grow(v, nr, max))

/* setup.c: sets up zones and groups from the device's report and the store's profile */
int tables_init(struct znsd *d, struct zns_err *err);
/* Updates the tables after a resize; nothing may use the zones that were cut off. */
int tables_follow(struct znsd *d, struct zns_err *err);
void tables_fini(struct znsd *d);

/* zone_table.c: the state of each zone, and what it can be used for */
uint64_t zone_live(const struct znsd *d, uint32_t zone);
bool zone_usable(const struct zn_zone *z); /* Is it a data zone that can be written? */
/* Is the zone empty, and can it be granted without a reset? */
bool zone_empty(const struct znsd *d, uint32_t zone);
bool zone_parked(const struct znsd *d, uint32_t zone);
/* Do all live data in the zone belong to small checkpoints? */
bool zone_packed(const struct znsd *d, uint32_t zone);
bool zone_parked_for(const struct znsd *d, uint32_t zone, const char *container, uint32_t min_room);
bool zone_parked_pack(const struct znsd *d, uint32_t zone, uint32_t min_room);
/* May the zone be reset: it was written, but has no live data and no users? */
bool zone_garbage(const struct znsd *d, uint32_t zone);
/* to be called before @k is removed or moved */
void zones_note_ours(struct znsd *d, const ZnsPb__Checkpoint *k);
/* how many data zones are active, including those that are granted and not full */
uint32_t zones_active(const struct znsd *d);
/* active zones without a writer: parked ones, or garbage that is not reset yet */
uint32_t zones_idle_active(const struct znsd *d);
uint32_t zones_parked(const struct znsd *d);
/* a zone with less room than so many bytes is not kept for continuation */
uint64_t tail_min(const struct znsd *d);

/* zone_ops.c: changes the device's zones and updates the table */
int zones_refresh(struct znsd *d, uint32_t first, uint32_t nr, struct zns_err *err);
/* does nothing if the zone is not open; errors are logged */
void zone_close(struct znsd *d, uint32_t zone);
/* to be called when its writer is gone: the zone is closed, parked, or left to the sweep */
void zone_settle(struct znsd *d, uint32_t zone);
uint32_t zones_reset(struct znsd *d, const uint32_t *zones, uint32_t nr, struct zns_err *err);
int zone_finish(struct znsd *d, uint32_t zone, struct zns_err *err);
/* to be called when the zone was finished, before the next report */
void zone_filled(struct znsd *d, uint32_t zone);
/* how many zones the log keeps open, or active; at least 1 */
uint32_t meta_zones(struct znsd *d, bool open);
bool readers_check(struct znsd *d);
/* records that another host has reserved the device, if the error means that */
void device_heed(struct znsd *d, const struct zns_err *why);

/* groups.c; @self: a lease that is not counted, or NULL */
/* Read rate in MiB/s. Only the write rate of each group is measured; a slow group is assumed to
 * read as much slower. */
double group_read_mibps(const struct znsd *d, uint32_t group);
void groups_state(const struct znsd *d, const char *container, const struct lease *self,
		  struct zns_group_state *gs);
/* marks the group as shared in all dumps that use it now */
void groups_mark_shared(struct znsd *d, struct lease *l, uint32_t group);
void groups_io_refresh(struct znsd *d); /* to be called after a change of reservations */
const char *groups_holders(const struct znsd *d, const char *container, char *buf, size_t len);
bool reserved_by(const ZnsPb__Reservation *r, uint32_t group);

/* ---- leases.c ---- */
struct lease *lease_new(struct znsd *d, struct conn *c, uint32_t pid, enum lease_kind kind,
			const char *container, const uint8_t *id);
/* the lease with which the connection writes, or NULL */
struct lease *lease_of(const struct znsd *d, const struct conn *c);
/* the connection's last lease of any kind except LEASE_NAMED, or NULL */
struct lease *lease_last(const struct znsd *d, const struct conn *c);
/* removes a zone from a writing lease */
void lease_zone_drop(struct znsd *d, struct lease *l, uint32_t zone);
struct lease_zone *lease_zone_find(const struct lease *l, uint32_t zone);
void lease_zone_add(struct znsd *d, struct lease *l, uint32_t zone, uint64_t start);
bool lease_has_group(const struct lease *l, uint32_t group);
/* adds a group to the lease without a reservation */
void lease_gain_group(struct lease *l, uint32_t group);
uint32_t lease_unfull(const struct znsd *d, const struct lease *l);
/* how many zones compactions and yielding leases are writing, which dumps can get */
uint32_t leases_yielding(const struct znsd *d);
void lease_unlink(struct znsd *d, struct lease *l); /* removes it from the list */
void lease_free(struct lease *l);
void leases_forget(struct znsd *d); /* to be called at the end of the process */

/* keepsake.c: stores a message in a file of the runtime directory, so that it is kept when the
 * broker exits, until the next boot. keepsake_load returns NULL if there is none or it cannot be
 * read. */
ProtobufCMessage *keepsake_load(const struct znsd *d, const char *suffix,
				const ProtobufCMessageDescriptor *what);
void keepsake_save(const struct znsd *d, const char *suffix, const ProtobufCMessage *m);

/* ---- history.c ---- */
void history_load(struct znsd *d); /* to be called after tables_init */
void history_free(struct znsd *d);
/* Ends the present sample if it is long enough, or, with @leave, in any case. Returns milliseconds
 * until its end, -1: there is nothing to do. */
int history_step(struct znsd *d, bool leave);
/* Converts the figures to the message that is stored and sent. The caller frees *groups. */
void history_tell(const struct znsd *d, ZnsPb__History *h, ZnsPb__GroupLoad ***groups);
/* @bytes: transferred by the lease so far */
void history_moved(struct znsd *d, const struct lease *l, uint64_t bytes);
/* counts the changes that a new report of the zone shows */
void history_zone(struct znsd *d, uint32_t zone, const struct zns_zone *now);
void history_reset(struct znsd *d, uint32_t zone);

/* restores.c: figures about the last restore of each container */
void restores_load(struct znsd *d);
void restores_free(struct znsd *d);
/* NULL: nothing is known about this container's restores */
ZnsPb__RestoreStat *restore_of(const struct znsd *d, const char *container);
ZnsPb__RestoreStat *restore_remember(struct znsd *d, const struct lease *l,
				     const ZnsPb__Progress *q);

#endif
