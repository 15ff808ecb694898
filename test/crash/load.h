/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef CRASH_LOAD_H
#define CRASH_LOAD_H
/*
 * The load that is interrupted: dumps (also two at once), aborted dumps, removals, compaction and
 * reservations, through the broker's own code, the striping writer and the store, all in this
 * process on one device. And a model of what a user was told: which checkpoint was acknowledged or
 * removed, and in which epoch.
 */
#include "inproc.h"
#include "trace.h"
#include "zns/crypt.h"
#include "zns/image_map.h"
#include "zns/session.h"

#define LOAD_IMAGES_MAX 6
#define LOAD_PARTS 2 /* of a live dump: its first images, of which the third is composed */
#define LOAD_RUNS_MAX 8
#define LOAD_NEVER UINT32_MAX

struct load_image {
	char name[32];
	bool pages;
	uint32_t len; /* bytes */
	uint8_t *data;
	bool part;
	/* number of images it is composed of, the checkpoint's first ones; 0: not composed */
	uint32_t nr_runs;
	struct zns_image_run run[LOAD_RUNS_MAX];
};

struct load_ckpt {
	uint8_t id[ZNS_UUID_LEN];
	char container[16];
	struct load_image img[LOAD_IMAGES_MAX];
	uint32_t nr_img;
	bool encrypted, secure; /* secure: its key was erased, too */
	uint8_t wrapped[ZNS_WRAPPED_BYTES]; /* its wrapped key, once committed */
	/* Epochs: before `begun` the checkpoint cannot exist; from `acked` on it must, until
	 * `rm_begun`; from `rm_acked` on it must not. */
	uint32_t begun, acked, rm_begun, rm_acked;
};

struct load {
	struct load_ckpt *ckpt;
	uint32_t nr, max;
	uint64_t rng;
	uint32_t dumps, composed, removes, encrypted, erased, aborts, pairs, rolls, moves, defrags,
		moved_zones;
};

struct load_size {
	uint32_t nr_zones, nr_groups, steps;
	uint64_t capacity; /* capacity of a zone, bytes */
	uint32_t max_active; /* 0: none */
	uint32_t max_len; /* longest image, bytes */
	bool disk; /* an ordinary disk: places of removed checkpoints are written again */
};

uint64_t load_rnd(uint64_t *s, uint64_t below);
void load_fill(struct load_image *img, uint64_t seed); /* allocates data */

/* The master key of all encrypted checkpoints, and a function that opens a manifest with it. */
const struct zns_master *load_master(void);

/* Dumps @k's images through the broker; 0, or an errno with the reason. */
int load_dump(struct znsd *d, struct load_ckpt *k, uint32_t qos_mibps, struct zns_err *err);

/* A client of the library whose requests call the broker's code directly. Do not move it. @p->s
 * is not closed. */
struct load_peer {
	struct znsd *d;
	struct conn conn;
	struct zns_session s;
};
void load_connect(struct load_peer *p, struct znsd *d);
void load_hang_up(struct load_peer *p); /* ends its leases */

/*
 * Compacts zones with at most @percent live data, with the library's plan and mover. @meanwhile is
 * called between a copy and its commit. What a user sees must not change.
 */
int load_compact(struct znsd *d, struct trace *t, struct load *l, uint32_t percent,
		 int (*meanwhile)(void *arg, struct znsd *d, struct zns_err *err), void *arg,
		 struct zns_err *err);

/* Format and run @size->steps steps drawn from @seed; the trace then holds the epochs. */
struct trace *load_run(const struct load_size *size, uint64_t seed, enum trace_omit omit,
		       struct load *out, struct zns_err *err);
void load_free(struct load *l);

#endif
