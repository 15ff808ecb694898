/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef BROKER_TABLES_H
#define BROKER_TABLES_H
/*
 * The lowest storey of znsd, the one broker of a device (design.md §5): its knowledge. Zones,
 * groups and leases live in memory alone. A starting broker rebuilds them from the device's report
 * and the store. Functions here answer questions and keep the tables in step with the device. They
 * note consequences in `struct znsd`, for the storeys above. One thread: everything belongs to the
 * poll loop.
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

#define ZNSD_UNIT_MIN KIB(64) /* a tail smaller than this is not given out */
#define ZNSD_RESET_BATCH 64
#define ZNSD_RETRY_NS 10000000000ull /* next try after a reset or finish that failed */
#define ZNSD_NONE UINT32_MAX

struct conn; /* used here only to compare pointers */
struct lease;
struct policy;
struct server;
struct znsd;

struct zn_zone {
	struct zns_zone z; /* as last reported; outdated while the zone is being written */
	uint32_t group;
	bool meta;
	bool old; /* holds data from before this broker started, which unknown processes may read */
	/* its data were written by dumps, even if its group is reserved for normal I/O now */
	bool ours;
	bool finishing; /* the finisher is at work on it */
	uint32_t readers; /* restore leases */
	uint32_t resets; /* resets that this broker has issued */
	struct lease *writer;
	uint64_t stamp; /* time of parking, to find the least recently used */
	uint64_t retry_ns; /* no reset or finish before this: the last one failed */
	/* its last write failed; granted only if there is no other zone */
	bool suspect;
	bool going; /* behind the end that a resize asks for: not granted any more */
	bool ahead; /* it got blocks before it was written (policy/ahead.c) */
	bool no_reuse; /* the device could not make its free places writable */
};

struct zn_group {
	int32_t channel;
	uint32_t mibps; /* measured write rate of one zone alone */
	bool metadata;
	bool io; /* reserved for normal I/O: the data in its zones are not ours to reset */
	uint32_t next; /* the next search for an empty zone starts here: spreads wear */
	uint32_t nr_zones; /* data zones */
	uint32_t *zones;
};

struct lease_zone {
	uint32_t zone;
	/* the range that it may write: from the write pointer at the time of the grant */
	uint64_t start, end;
	uint64_t turn; /* on a disk: it writes what removed checkpoints had; 0: it does not */
	uint64_t committed; /* scratch of commit: end of the last use seen */
	bool bad; /* the writer reported it as bad */
	bool done; /* the writer has finished with it */
};

enum lease_kind {
	LEASE_DUMP,
	LEASE_IMPORT, /* completes the checkpoint of pages only that has its id */
	LEASE_FLATTEN, /* replaces a checkpoint by one without a parent and composed images */
	LEASE_YIELDING, /* a package's lease (struct yielding): gives way to all others */
	LEASE_COMPACT, /* moves a checkpoint: the zones that it writes */
	LEASE_SOURCE, /* the part of the same move that reads: the zones that it reads */
	LEASE_NAMED, /* a dump, beside its own lease: a yielding lease's zones that it will name */
	LEASE_RESTORE,
};

/* The terms of an admitted dump, import or flattening, and its state. */
struct lease_dump {
	uint32_t qos_mibps;
	uint32_t cap_mibps; /* the limit that it asked for; 0: none */
	uint32_t promised_mibps; /* one domain only: the part of the QoS that is kept for it */
	bool dynamic; /* allocates without a reservation */
	/* admitted without sharing: its groups are not granted to others meanwhile */
	bool promised;
	bool grows; /* its writer uses more groups while it works */
	bool has_parent; /* the dump is incremental: its parent must stay */
	bool encrypted; /* its checkpoint will be encrypted with the key of this fingerprint */
	uint8_t parent[ZNS_UUID_LEN];
	uint8_t key_id[8];
	uint32_t moved; /* import, flattening: the checkpoint's version when it began */
	/* weights of its groups as granted: repeated to a client that takes the lease over */
	uint32_t *weights, nr_meta;
	/* groups that it has shared with others at some time */
	uint32_t *shared, nr_shared, max_shared;
	/*
	 * a pack zone that was granted, and that the writer has not asked for yet; ZNSD_NONE: none
	 */
	uint32_t claimed;
	bool scattered; /* no place and no empty zones hold all of it */
	uint32_t min_room; /* bytes: the writer cannot use less */
	uint64_t expected; /* bytes that it announced; 0: it announced none */
	uint32_t width; /* how many zones it may write at the same time, guaranteed */
	uint32_t most; /* zones that a dump of its size can use */
	/* groups that it gained later, without a reservation; in the list they stand before those
	 * for metadata images */
	uint32_t nr_gained;
	uint64_t waits_ns; /* when it last reported that it waits for its zones; 0: never */
	/* the rule of tenants.conf that applies, or NULL; and the rule's limits, 0: none */
	char *tenant;
	uint32_t max_rate_mibps, max_groups, total_groups;
};

/* Its share by weight (policy/weights.c). */
struct lease_weigh {
	bool met, reports, known;
	uint64_t ns, bytes; /* time and bytes at the beginning of the present window */
	uint32_t windows;
	double used, limit, next; /* MiB/s; a limit of 0: none */
	/* which part of a reader's bytes lies in a group */
	struct lease_part {
		uint32_t group;
		double part;
	} * part;
	uint32_t nr_parts;
};

/*
 * Leases of a package. They write zones of their own, give way to dumps and restores, and exist
 * with or without a connection, until the package ends them. A package registers one table of these
 * functions (policy/yielding.c) and its requests (requests/dispatch.c); the broker knows nothing
 * else about it.
 */
struct yielding {
	const char *kind; /* shown in the status, the log and errors */
	const char *id_field; /* field of the journal that has the lease's id */
	/* what such leases have on zones, for messages: "memory of running programs" */
	const char *what;
	const char *command; /* the command that releases their zones, for messages */
	bool (*over)(struct lease *l); /* true if no process holds the lease any more */
	void (*unheld)(struct lease *l); /* its connection has ended: check again soon */
	void (*ended)(struct znsd *d, struct lease *l); /* called before its zones are released */
	void (*free)(struct lease *l); /* what yields.own has */
	bool (*origin)(const struct lease *l, uint8_t *id); /* the checkpoint that it reads, if any
							     */
	int (*in_use)(const struct lease *l, const char *checkpoint, struct zns_err *err); /* -EBUSY
											    */
	void (*adopt)(struct znsd *d); /* leases that outlived the last broker */
	void (*tell)(const struct lease *l, ZnsPb__MemoryDetail *det);
};

struct lease_yielding {
	const struct yielding *ops;
	void *own; /* the package's */
	bool encrypted; /* its data are encrypted */
	uint64_t worked_ns; /* when it last reported reads or writes */
};

struct lease {
	struct lease *next;
	enum lease_kind kind;
	struct conn *conn; /* NULL: lost */
	/* after a lost connection: its writer's process may live until then; 0: not lost */
	uint64_t dying_until;
	int pidfd; /* -1: none */
	uint32_t pid;
	char *container;
	uint8_t id[ZNS_UUID_LEN];
	int64_t since_ns;
	uint64_t bytes, total; /* from the helper's last report */
	uint64_t seen_ns, seen_bytes;
	double mibps; /* rate between the last two reports */
	uint32_t hot; /* its number in the memory that restores share; 0: it has none */
	bool hot_counts; /* counts as one more restore of its zones */
	uint32_t weight; /* the weight that was asked for; 0: none */
	bool own_class; /* the weight is not its tenant's, but a class's of moves */
	struct lease_weigh weigh;
	uint32_t read_mibps; /* of a restore: MiB/s that it was promised; 0: none */
	/* of a dump: its groups; those for metadata images come last */
	uint32_t *groups, nr_groups;
	struct lease_zone *zones; /* zones that it writes or protects */
	uint32_t nr_zones, max_zones;
	bool packed; /* it writes small checkpoints: its zones are pack zones */
	bool ended_well; /* committed, or its helper reported that it is done */
	union {
		struct lease_dump dump; /* LEASE_DUMP, LEASE_IMPORT, LEASE_FLATTEN */
		struct {
			uint32_t moved; /* the checkpoint's version when it began */
			bool charged; /* shares by weight, instead of giving way to all others */
			uint32_t at[2], nr_at; /* groups that it reads and writes now */
		} compact; /* LEASE_COMPACT */
		struct lease_yielding yields; /* LEASE_YIELDING */
	};
};

/* The lease was admitted: its `dump` is set. */
static inline bool lease_admitted(const struct lease *l)
{
	return l->kind <= LEASE_FLATTEN;
}

static inline bool lease_writes(const struct lease *l)
{
	return l->kind <= LEASE_COMPACT;
}

/* The lease gives way to everybody, and no admission counts it. */
static inline bool lease_background(const struct lease *l)
{
	return l->kind == LEASE_COMPACT || l->kind == LEASE_SOURCE || l->kind == LEASE_NAMED;
}

static inline bool lease_promised(const struct lease *l)
{
	return lease_admitted(l) && l->dump.promised;
}

/* history.c: what happened, for whoever draws it. */
struct load_history {
	int64_t since_ns;
	ZnsPb__LoadCounts all, before; /* before: the counts when the present sample began */
	/* when the present sample began; 0: nothing has been counted since the last one */
	uint64_t began_ns;
	ZnsPb__LoadSample **samples; /* oldest first */
	size_t nr_samples;
	ZnsPb__GroupLoad *groups; /* NULL: no sample yet */
	bool changed; /* a group's figures have changed since they were last stored */
};

struct znsd {
	struct zns_registered reg;
	struct zns_dev *dev;
	struct zns_store *store;
	/* the rate that promises are based on: a slower group is part of no promise */
	uint32_t zone_mibps;
	uint32_t ceiling_mibps; /* write rate of all groups together; 0: their sum */
	struct zn_zone *zones;
	uint32_t nr_zones;
	struct zn_group *groups;
	uint32_t nr_groups;
	struct lease *leases;
	ZnsPb__RestoreLog *restores; /* oldest first; NULL: none */
	struct load_history history;
	uint64_t stamp; /* the stamp that was given last */
	bool readers_clear; /* all restores of earlier brokers have ended */
	int readers_fd;
	/* Changes that the storeys above act on. */
	bool sweep; /* some zone may be garbage */
	bool park_check; /* check whether too many zones are parked */
	bool freed; /* zones, groups or limits were freed: a waiter may be admitted */
	bool quit;
	bool lost; /* another host has reserved the device */
	struct zns_hot *hot; /* memory that restores share; NULL: none at present */
	struct zns_hot_shape hot_shape;
	struct policy *policy; /* private to the storeys above */
	struct server *server;
};

/* An ordinary disk: one domain, in which no container owns groups. */
static inline bool on_disk(const struct znsd *d)
{
	return zns_geo_is_disk(&d->dev->geo);
}

/* The rate of a slow group relative to the groups that promises are based on. */
static inline double group_worth(const struct znsd *d, uint32_t group)
{
	return zns_min((double)d->groups[group].mibps / d->zone_mibps, 1.0);
}

static inline bool group_slow(const struct znsd *d, uint32_t group)
{
	return d->groups[group].mibps < d->zone_mibps;
}

/* log.c; @l: the lease that the message is about, or NULL */
/* from now on messages go to the journal as well */
void znsd_log_device(const struct zns_registered *reg);
void znsd_say(int priority, const struct lease *l, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
#define znsd_log(...) znsd_say(LOG_INFO, NULL, __VA_ARGS__)
#define znsd_warn(...) znsd_say(LOG_WARNING, NULL, __VA_ARGS__)

/* util.c */
/* Returns zeroed memory. If there is none the broker exits, and the next one recovers. */
void *znsd_alloc(size_t len);
char *znsd_strdup(const char *s);
void znsd_enough(int ret); /* ends the broker if @ret is -ENOMEM */
/* Makes room for one more, see zns/grow.h. */
#define znsd_grow(v, nr, max) znsd_enough(zns_grow(v, nr, max))

/* setup.c: zones and groups, from the device's report and the store's profile */
int tables_init(struct znsd *d, struct zns_err *err);
/* The device has more zones than before, or fewer: nobody uses the zones that are gone. */
int tables_follow(struct znsd *d, struct zns_err *err);
void tables_fini(struct znsd *d);

/* zone_table.c: the state of each zone, and its possible uses */
uint64_t zone_live(const struct znsd *d, uint32_t zone);
bool zone_usable(const struct zn_zone *z); /* a data zone that can be written */
bool zone_empty(const struct znsd *d, uint32_t zone); /* empty, and can be granted as it is */
bool zone_parked(const struct znsd *d, uint32_t zone);
/* all live data there are of small checkpoints */
bool zone_packed(const struct znsd *d, uint32_t zone);
bool zone_parked_for(const struct znsd *d, uint32_t zone, const char *container, uint32_t min_room);
bool zone_parked_pack(const struct znsd *d, uint32_t zone, uint32_t min_room);
/* written, without live data and users: may be reset */
bool zone_garbage(const struct znsd *d, uint32_t zone);
/* call before @k is removed or moved */
void zones_note_ours(struct znsd *d, const ZnsPb__Checkpoint *k);
/* how many data zones are active, including those that are granted and not full */
uint32_t zones_active(const struct znsd *d);
/* active without a writer: parked, or garbage not reset yet */
uint32_t zones_idle_active(const struct znsd *d);
uint32_t zones_parked(const struct znsd *d);
/* in bytes; a zone with less room than this is not kept to be continued */
uint64_t tail_min(const struct znsd *d);

/* zone_ops.c: changes the device's zones and updates the table */
int zones_refresh(struct znsd *d, uint32_t first, uint32_t nr, struct zns_err *err);
/* does nothing if the zone is not open; logs errors */
void zone_close(struct znsd *d, uint32_t zone);
/* its writer is gone: the zone is closed, parked, or left to the sweep */
void zone_settle(struct znsd *d, uint32_t zone);
uint32_t zones_reset(struct znsd *d, const uint32_t *zones, uint32_t nr, struct zns_err *err);
int zone_finish(struct znsd *d, uint32_t zone, struct zns_err *err);
/* to be called when the zone was finished, before the next report */
void zone_filled(struct znsd *d, uint32_t zone);
/* how many zones the log keeps open, or active; at least 1 */
uint32_t meta_zones(struct znsd *d, bool open);
bool readers_check(struct znsd *d);
/* marks the device as lost if the error says so */
void device_heed(struct znsd *d, const struct zns_err *why);

/* groups.c; @self: a lease that is left out, or NULL */
/* MiB/s. Only writes of each group are measured: a slow one is taken to read as much slower. */
double group_read_mibps(const struct znsd *d, uint32_t group);
void groups_state(const struct znsd *d, const char *container, const struct lease *self,
		  struct zns_group_state *gs);
/* note in all dumps that use the group now that it is shared */
void groups_mark_shared(struct znsd *d, struct lease *l, uint32_t group);
void groups_io_refresh(struct znsd *d); /* to be called after a change of reservations */
const char *groups_holders(const struct znsd *d, const char *container, char *buf, size_t len);
bool reserved_by(const ZnsPb__Reservation *r, uint32_t group);

/* leases.c */
struct lease *lease_new(struct znsd *d, struct conn *c, uint32_t pid, enum lease_kind kind,
			const char *container, const uint8_t *id);
/* the lease by which the connection writes, or NULL */
struct lease *lease_of(const struct znsd *d, const struct conn *c);
/* the connection's last lease of any kind but LEASE_NAMED, or NULL */
struct lease *lease_last(const struct znsd *d, const struct conn *c);
void lease_zone_drop(struct znsd *d, struct lease *l, uint32_t zone); /* of a writing lease */
struct lease_zone *lease_zone_find(const struct lease *l, uint32_t zone);
void lease_zone_add(struct znsd *d, struct lease *l, uint32_t zone, uint64_t start);
bool lease_has_group(const struct lease *l, uint32_t group);
void lease_gain_group(struct lease *l, uint32_t group); /* one more group, without a reservation */
uint32_t lease_unfull(const struct znsd *d, const struct lease *l);
/* number of zones that compactions and yielding leases write now: dumps can have them */
uint32_t leases_yielding(const struct znsd *d);
void lease_unlink(struct znsd *d, struct lease *l); /* removes it from the list */
void lease_free(struct lease *l);
void leases_forget(struct znsd *d); /* called at the end of the process */

/* keepsake.c: a message in a file of the runtime directory, which outlives the idle broker and ends
 * with the boot. NULL: there is none, or it cannot be read. */
ProtobufCMessage *keepsake_load(const struct znsd *d, const char *suffix,
				const ProtobufCMessageDescriptor *what);
void keepsake_save(const struct znsd *d, const char *suffix, const ProtobufCMessage *m);

/* history.c */
void history_load(struct znsd *d); /* after tables_init */
void history_free(struct znsd *d);
/* Ends the present sample if it is long enough, or, with @leave, at once. Returns milliseconds
 * until its end, -1: nothing to do. */
int history_step(struct znsd *d, bool leave);
/* Converts to the form that is stored and sent. The caller frees *groups. */
void history_tell(const struct znsd *d, ZnsPb__History *h, ZnsPb__GroupLoad ***groups);
void history_moved(struct znsd *d, const struct lease *l, uint64_t bytes); /* until now */
/* counts what a report shows */
void history_zone(struct znsd *d, uint32_t zone, const struct zns_zone *now);
void history_reset(struct znsd *d, uint32_t zone);

/* restores.c: the last restore of each container */
void restores_load(struct znsd *d);
void restores_free(struct znsd *d);
/* NULL: this container's restores are not known */
ZnsPb__RestoreStat *restore_of(const struct znsd *d, const char *container);
ZnsPb__RestoreStat *restore_remember(struct znsd *d, const struct lease *l,
				     const ZnsPb__Progress *q);

#endif
