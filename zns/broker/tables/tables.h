/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef BROKER_TABLES_H
#define BROKER_TABLES_H
/*
 * The lowest storey of znsd, the one broker of a device (design.md §5): what it knows. Zones,
 * groups and leases live in memory alone and are rebuilt from the device's report and the store
 * when a broker starts. Functions here answer questions and keep the tables in step with the
 * device; what follows from a change they only note in `struct znsd`, for the storeys above. One
 * thread: everything belongs to the poll loop.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "zns/alloc.h"
#include "zns/config.h"
#include "zns/dev.h"
#include "zns/grow.h"
#include "zns/store.h"
#include "zns/util.h"
#include "zns-broker.pb-c.h"

#define ZNSD_UNIT_MIN KIB(64) /* a tail smaller than this is not given out */
#define ZNSD_RESET_BATCH 64
#define ZNSD_RETRY_NS 10000000000ull /* after a reset or finish that failed */
#define ZNSD_NONE UINT32_MAX

struct conn; /* only an identity here */
struct lease;
struct policy;
struct server;

struct zn_zone {
	struct zns_zone z; /* as last reported; stale while somebody writes */
	uint32_t group;
	bool meta;
	bool old; /* holds data from before this broker: unknown readers are possible */
	/* what it holds is a dump's, also in a group that is reserved for normal I/O now */
	bool ours;
	bool finishing; /* by the finisher, now */
	uint32_t readers; /* restore leases */
	struct lease *writer;
	uint64_t stamp; /* when it was parked, for the least recently used */
	uint64_t retry_ns; /* not before this: the last reset or finish failed */
	/* a write failed, and none was done since; given out only if there is no other */
	bool suspect;
};

struct zn_group {
	int32_t channel;
	bool metadata;
	bool io; /* reserved for normal I/O: what is in its zones is not ours to reset */
	uint32_t next; /* where the next search for an empty zone starts: spreads wear */
	uint32_t nr_zones; /* data zones */
	uint32_t *zones;
};

struct lease_zone {
	uint32_t zone;
	uint64_t start; /* write pointer when granted */
	uint64_t committed; /* scratch of commit: end of the last use seen */
	bool bad; /* the writer found it so */
	bool done; /* the writer is through with it */
};

enum lease_kind {
	LEASE_DUMP,
	LEASE_IMPORT, /* completes a checkpoint of pages only, whose id it has */
	LEASE_FLATTEN, /* replaces a checkpoint that has a parent by one that has none */
	LEASE_COMPACT, /* moves a checkpoint: the zones that it writes */
	LEASE_SOURCE, /* of the same: the zones that it reads */
	LEASE_RESTORE,
};

/* To what a dump, an import or a flattening was admitted, and what became of it. */
struct lease_dump {
	uint32_t qos_mibps;
	uint32_t cap_mibps; /* its own limit; 0: none */
	uint32_t promised_mibps; /* one domain only: of the QoS, what is kept for it */
	bool dynamic; /* without a reservation */
	bool promised; /* admitted without sharing: nobody else gets its groups while it lasts */
	bool grows; /* its writer takes more groups while it works */
	bool has_parent; /* it is incremental: that checkpoint stays */
	bool encrypted; /* its checkpoint will be, with the key of this fingerprint */
	uint8_t parent[ZNS_UUID_LEN];
	uint8_t key_id[8];
	uint32_t moved; /* import, flattening: the version of the checkpoint that it began with */
	uint32_t *weights, nr_meta; /* of its groups, as granted: told again to who takes it over */
	uint32_t *shared, nr_shared, max_shared; /* groups that others had or got meanwhile */
	/* a pack zone that is its own already, until the writer asks; ZNSD_NONE */
	uint32_t claimed;
	uint32_t min_room; /* bytes: less is of no use to the writer */
	uint32_t width; /* zones it may have in writing, guaranteed */
	uint32_t most; /* zones that a dump of its size has use for */
	/* groups that it got later, before those for metadata images: not of its reservation */
	uint32_t nr_gained;
	uint64_t waits_ns; /* when it said last that its zones are what it waits for; 0: never */
	char *tenant; /* the rule that applies, or NULL; what it allows, 0: any number */
	uint32_t max_rate_mibps, max_groups, total_groups;
};

struct lease {
	struct lease *next;
	enum lease_kind kind;
	struct conn *conn; /* NULL: lost */
	/* its connection is lost, its writer's process may still be there; 0: neither */
	uint64_t dying_until;
	int pidfd; /* -1: none to be had */
	uint32_t pid;
	char *container;
	uint8_t id[ZNS_UUID_LEN];
	int64_t since_ns;
	uint64_t bytes, total; /* as its helper said last */
	uint64_t seen_ns, seen_bytes;
	double mibps; /* between the last two looks */
	uint32_t *groups, nr_groups; /* of a dump: those for metadata images last */
	struct lease_zone *zones; /* those it writes, or protects */
	uint32_t nr_zones, max_zones;
	bool packed; /* of small checkpoints: the zones that it writes are pack zones */
	union {
		struct lease_dump dump; /* LEASE_DUMP, LEASE_IMPORT, LEASE_FLATTEN */
		struct {
			uint32_t moved; /* the version of the checkpoint that it began with */
		} compact; /* LEASE_COMPACT */
	};
};

/* It was admitted: its `dump` is set. */
static inline bool lease_admitted(const struct lease *l)
{
	return l->kind <= LEASE_FLATTEN;
}

static inline bool lease_writes(const struct lease *l)
{
	return l->kind <= LEASE_COMPACT;
}

/* It gives way to everybody, and counts for nobody's admission. */
static inline bool lease_background(const struct lease *l)
{
	return l->kind == LEASE_COMPACT || l->kind == LEASE_SOURCE;
}

static inline bool lease_promised(const struct lease *l)
{
	return lease_admitted(l) && l->dump.promised;
}

struct znsd {
	struct zns_registered reg;
	struct zns_dev *dev;
	struct zns_store *store;
	uint32_t zone_mibps;
	uint32_t ceiling_mibps; /* what all groups together are written with; 0: their sum */
	struct zn_zone *zones;
	uint32_t nr_zones;
	struct zn_group *groups;
	uint32_t nr_groups;
	struct lease *leases;
	ZnsPb__RestoreLog *restores; /* oldest first; NULL: none */
	uint64_t stamp; /* last one given */
	bool readers_clear; /* no restore of an earlier broker lives */
	int readers_fd;
	/* What has changed, for the storeys above to act on. */
	bool sweep; /* some zone may be garbage */
	bool park_check; /* too many may be parked */
	bool freed; /* zones, groups or limits: somebody who waits may be admitted */
	bool quit;
	bool lost; /* another host has reserved the device */
	struct policy *policy; /* what these keep for themselves */
	struct server *server;
};

/* util.c */
void znsd_log(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void *znsd_alloc(size_t len); /* zeroed; a broker without memory ends, the next one recovers */
char *znsd_strdup(const char *s);
void znsd_enough(int ret); /* likewise, for a function that says -ENOMEM */
/* Room for one more, see zns/grow.h. */
#define znsd_grow(v, nr, max) znsd_enough(zns_grow(v, nr, max))

/* setup.c: zones and groups, from the device's report and the store's profile */
int tables_init(struct znsd *d, struct zns_err *err);
void tables_fini(struct znsd *d);

/* zone_table.c: what each zone is, and what may be done with it */
uint64_t zone_live(const struct znsd *d, uint32_t zone);
bool zone_usable(const struct zn_zone *z); /* a data zone that takes writes */
bool zone_empty(const struct znsd *d, uint32_t zone); /* and could be granted as it is */
bool zone_parked(const struct znsd *d, uint32_t zone);
/* all that lives there are small checkpoints */
bool zone_packed(const struct znsd *d, uint32_t zone);
bool zone_parked_for(const struct znsd *d, uint32_t zone, const char *container, uint32_t min_room);
bool zone_parked_pack(const struct znsd *d, uint32_t zone, uint32_t min_room);
/* written, not live, nobody on it: may be reset */
bool zone_garbage(const struct znsd *d, uint32_t zone);
/* before it is removed or moved */
void zones_note_ours(struct znsd *d, const ZnsPb__Checkpoint *k);
uint32_t zones_active(const struct znsd *d); /* data zones, those granted and not full included */
/* active with nobody writing: parked, or garbage not reset yet */
uint32_t zones_idle_active(const struct znsd *d);
uint32_t zones_parked(const struct znsd *d);
/* a zone with less room, bytes, is not kept to be continued */
uint64_t tail_min(const struct znsd *d);

/* zone_ops.c: the device's zones, and the table after them */
int zones_refresh(struct znsd *d, uint32_t first, uint32_t nr, struct zns_err *err);
void zone_close(struct znsd *d, uint32_t zone); /* if it is open; what fails is logged */
/* its writer is gone: close, park, or leave to the sweep */
void zone_settle(struct znsd *d, uint32_t zone);
uint32_t zones_reset(struct znsd *d, const uint32_t *zones, uint32_t nr, struct zns_err *err);
int zone_finish(struct znsd *d, uint32_t zone, struct zns_err *err);
/* those the log keeps open, or active; at least 1 */
uint32_t meta_zones(struct znsd *d, bool open);
bool readers_check(struct znsd *d);
/* an error of the device may say that it is lost */
void device_heed(struct znsd *d, const struct zns_err *why);

/* groups.c; @self: a lease that does not count, or NULL */
void groups_state(const struct znsd *d, const char *container, const struct lease *self,
		  struct zns_group_state *gs);
/* by the dumps that use it now */
void groups_mark_shared(struct znsd *d, struct lease *l, uint32_t group);
void groups_io_refresh(struct znsd *d); /* after a change of reservations */
const char *groups_holders(const struct znsd *d, const char *container, char *buf, size_t len);
bool reserved_by(const ZnsPb__Reservation *r, uint32_t group);

/* leases.c */
struct lease *lease_new(struct znsd *d, struct conn *c, uint32_t pid, enum lease_kind kind,
			const char *container, const uint8_t *id);
/* what its connection writes with, or NULL */
struct lease *lease_of(const struct znsd *d, const struct conn *c);
/* of whatever kind, or NULL */
struct lease *lease_last(const struct znsd *d, const struct conn *c);
struct lease_zone *lease_zone_find(const struct lease *l, uint32_t zone);
void lease_zone_add(struct znsd *d, struct lease *l, uint32_t zone, uint64_t start);
bool lease_has_group(const struct lease *l, uint32_t group);
void lease_gain_group(struct lease *l, uint32_t group); /* one more, which is not reserved */
uint32_t lease_unfull(const struct znsd *d, const struct lease *l);
uint32_t leases_compacting(const struct znsd *d); /* zones that compactions write now */
void lease_unlink(struct znsd *d, struct lease *l); /* no longer in the list */
void lease_free(struct lease *l);
void leases_forget(struct znsd *d); /* at the end of the process */

/* restores.c: the last one of each container */
void restores_load(struct znsd *d);
void restores_free(struct znsd *d);
ZnsPb__RestoreStat *restore_of(const struct znsd *d, const char *container); /* NULL: none known */
ZnsPb__RestoreStat *restore_remember(struct znsd *d, const struct lease *l,
				     const ZnsPb__Progress *q);

#endif
