/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_PROBE_PRIV_H
#define ZNS_PROBE_PRIV_H
#include "zns/probe.h"
#include "zns/util.h"

#define PROBE_PAGE KIB(16) /* apart enough to be read from the medium one by one */
#define PROBE_SMALL 4096u /* a small read: all sensing, hardly any transfer */
#define PROBE_BURST_MAX 128u
#define PROBE_SET_MAX 32u /* pivots that are tried at once */
#define PROBE_PASSES 16u

enum zone_kind {
	KIND_NO, /* not to be used: offline, conventional, untouchable, failed */
	KIND_EMPTY, /* ours to write and reset */
	KIND_DATA, /* somebody's: may be read */
};

struct probe {
	struct zns_dev *d;
	const struct zns_probe_params *par;
	struct zns_probe_map *map;
	uint32_t nr; /* zones */
	uint32_t unit;
	uint64_t budget, rng;
	/* live.c */
	uint8_t *kind; /* enum zone_kind */
	/* by zone: units that we have written and not reset; UINT32_MAX: data of others */
	uint32_t *have;
	uint32_t *readable; /* by zone: bytes that can be read, at most a unit */
	bool *typical; /* by zone: of the usual capacity */
	uint32_t small; /* bytes of a small read */
	uint32_t nr_ours; /* zones with data of ours, */
	uint32_t *ours, *ours_at; /* these; by zone: its place among them */
	uint32_t room, open_room; /* zones that we may have active, and open, at once */
	/* write: PROBE_WRITE_BATCH units; read: as many pages as a race may need */
	uint8_t *wbuf, *rbuf;
	/* vote.c */
	uint32_t burst, set_max;
	uint64_t burst_ns, single_ns; /* a burst and a single small read alone */
	/* votes that counted; of these, overruled by others of the same question */
	uint64_t votes, dissents;
	uint64_t races, spoiled; /* bursts that were asked something; of these, void */
	bool doubt_map; /* no zone's group is certain: the groups are what is tested */
	/* dies.c */
	bool *given_up;
	uint8_t *unsure; /* by zone: so often it could not be told */
	uint32_t hint_distance, hint_tried, hint_hit;
	uint32_t *last_of_group;
	/* channels.c */
	/* times of two dies against one: apart, on one channel, between */
	double lost_low, lost_high, border;
	bool border_found;
	uint32_t dies_untold; /* tries that did not tell a die's channel */
	double jitter; /* how far the quicker half of the samples spreads, relative */
	double *solo_ns; /* by zone: a whole unit of it alone; 0 not measured yet */
	/* the clocks */
	uint64_t wall0, dev0, phase_wall0, last_checkpoint, last_progress;
};

/* live.c */
#define PROBE_WRITE_BATCH 32u
int probe_begin(struct probe *p, struct zns_dev *d, const struct zns_probe_params *par,
		struct zns_probe_map *map, struct zns_err *err);
/* resets what is ours; returns @rc, or that failure */
int probe_clean(struct probe *p, int rc, struct zns_err *err);
void probe_free(struct probe *p);
/* Each of these zones can be read: write a unit where there is none. Those that fail become
 * KIND_NO. */
int probe_need(struct probe *p, const uint32_t *zones, uint32_t nr, struct zns_err *err);
/* The same of two; where there is no room for them all others are reset first. */
int probe_need_pair(struct probe *p, uint32_t a, uint32_t b, struct zns_err *err);
int probe_drop(struct probe *p, const uint32_t *zones, uint32_t nr, struct zns_err *err);
int probe_spend(struct probe *p, uint64_t bytes, struct zns_err *err); /* -EDQUOT */
/* @n of the empty zones of usual capacity at random; fewer if there are fewer. */
uint32_t probe_pick_empty(struct probe *p, uint32_t *out, uint32_t n);
void probe_mark(struct probe *p, uint32_t zone, uint32_t units); /* it holds what we wrote */
void probe_unmark(struct probe *p, uint32_t zone);
void probe_fill(struct probe *p, uint8_t *unit, uint32_t zone); /* what we write, mark included */
uint32_t probe_random(struct probe *p, uint32_t below);

/* unit_time.c: -EINTR when asked to stop */
int probe_race(struct probe *p, const struct zns_race *r, uint32_t nr, struct zns_err *err);
/* How long a whole unit of each takes, read at once; of one alone with @b == ZNS_PROBE_NONE. */
int probe_read_units(struct probe *p, uint32_t a, uint32_t b, uint64_t *ns, struct zns_err *err);
/*
 * Write @count units to each of the zones at once, empty before; the sum of their rates in MiB/s,
 * the start, which the buffers take, left out.
 */
int probe_write_together(struct probe *p, const uint32_t *zones, uint32_t nr, uint32_t count,
			 double *mibps, struct zns_err *err);
int probe_read_rate(struct probe *p, uint32_t zone, uint32_t units, double *mibps,
		    struct zns_err *err);

/* vote.c */
int probe_calibrate_burst(struct probe *p, const uint32_t *zones, uint32_t nr, struct zns_err *err);
/*
 * Which of @others have to wait for a burst on @zone, as places in @others; at most @nr of them.
 * *told is false when every try was spoiled.
 */
int probe_suspects(struct probe *p, uint32_t zone, const uint32_t *others, uint32_t nr,
		   uint32_t *out, uint32_t *nr_out, bool *told, struct zns_err *err);
/* Do both zones share a die? 1 or 0 in *same, -1 if it cannot be told; the chance that this is
 * right in *conf. */
int probe_same_die(struct probe *p, uint32_t a, uint32_t b, bool quick_no, int *same, float *conf,
		   struct zns_err *err);

/* stat.c */
double probe_median(double *v, uint32_t n); /* sorts */
double probe_quartile(double *v, uint32_t n); /* the lower one; sorts */
/* With 95 % certainty at least so much is right, when @wrong of @n trials were not. */
double probe_lower_bound(uint32_t n, uint32_t wrong);

/* retest.c */
int probe_retest(struct probe *p, struct zns_err *err);
uint32_t probe_retest_units(const struct probe *p); /* what it writes */
/*
 * Is @zone on the die of @own (which may be ZNS_PROBE_NONE) and on none of those of @others? 1 or
 * 0, -1 when it cannot be told. @late: room for @nr.
 */
int probe_is_placed(struct probe *p, uint32_t zone, uint32_t own, const uint32_t *others,
		    uint32_t nr, uint32_t *late, int *right, struct zns_err *err);

/* judge.c: what speaks against a map. The first reason is kept. */
void probe_doubt(struct probe *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int probe_hopeless(struct probe *p, struct zns_err *err); /* -EAGAIN when nearly all is spoiled */
int probe_judge(struct probe *p, struct zns_err *err);

/* rates.c, dies.c, channels.c, write_check.c */
int probe_rates(struct probe *p, struct zns_err *err);
int probe_ceiling(struct probe *p, struct zns_err *err); /* when groups are known */
int probe_calibrate(struct probe *p, struct zns_err *err); /* the burst, on a few empty zones */
int probe_dies(struct probe *p, struct zns_err *err);
int probe_channels(struct probe *p, struct zns_err *err);
/* channel_test.c: @zone by group, the one to read. What speaks against the channels is a doubt. */
int probe_test_channels(struct probe *p, const uint32_t *zone, struct zns_err *err);
int probe_check(struct probe *p, struct zns_err *err);

/* loss.c */
#define PROBE_UNTOLD 1e6
#define PROBE_GAP 0.05 /* between the classes of times, at least */
#define PROBE_LOSS_MAX 256u /* samples */
/* Two dies' times against one alone, and the standard deviation of that; PROBE_UNTOLD if it was
 * disturbed each time. */
int probe_loss(struct probe *p, uint32_t a, uint32_t b, uint32_t n, double *ratio, double *spread,
	       struct zns_err *err);
/* How much the times of this drive vary by themselves: disturbances only add to it, so the best of
 * several tries. */
int probe_jitter(struct probe *p, uint32_t a, uint32_t b, struct zns_err *err);

/* probe_map.c */
int probe_map_alloc(struct zns_probe_map *map, uint32_t nr_zones);
void probe_count(struct probe *p); /* unknown zones, confidence */
/* groups and channels by their first zones */
int probe_number_groups(struct zns_probe_map *m, struct zns_err *err);

/* tick.c */
/* progress, state; not too often */
void probe_tick(struct probe *p, uint32_t done, uint32_t total);
void probe_save_state(struct probe *p, uint64_t now);

static inline bool probe_stopped(const struct probe *p)
{
	return p->par->stop && *p->par->stop;
}

#endif
