/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_PROBE_PRIV_H
#define ZNS_PROBE_PRIV_H
#include "zns/probe.h"
#include "zns/util.h"

#define PROBE_PAGE KIB(16) /* pages this far apart are read from the medium one by one */
#define PROBE_SMALL 4096u /* a small read: full sensing, hardly any transfer */
#define PROBE_BURST_MAX 128u
#define PROBE_SET_MAX 32u /* pivots tried at once */
#define PROBE_PASSES 16u
#define PROBE_WRITE_BATCH 32u
#define PROBE_CROWDS 2u

enum zone_kind {
	KIND_NO, /* unusable: offline, conventional, failed */
	KIND_EMPTY, /* we may write and reset it */
	KIND_DATA, /* somebody's data: we may read it */
};

/* a set of several groups, and its time relative to the slowest of them alone */
struct probe_crowd {
	uint32_t zone[PROBE_WRITE_BATCH], nr;
	double ratio;
};

/* how long one zone alone took */
struct probe_alone {
	uint32_t zone, units; /* 0 units: not measured */
	double ns;
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
	/* by zone: units that we wrote and did not reset; UINT32_MAX: data of others */
	uint32_t *have;
	uint32_t *readable; /* by zone: readable bytes, at most a unit */
	bool *typical; /* by zone: has the usual capacity */
	uint32_t small; /* bytes of a small read */
	uint32_t nr_ours; /* zones with our data */
	uint32_t *ours, *ours_at; /* these zones; by zone: its place among them */
	uint32_t room, open_room; /* zones that we may have active and open at once */
	/* write: PROBE_WRITE_BATCH units; read: the most pages of a race */
	uint8_t *wbuf, *rbuf;
	/* vote.c */
	uint32_t burst, set_max;
	float *pace; /* by zone: its time of a burst relative to burst_ns; 0: not known */
	uint64_t burst_ns, single_ns; /* the time of a burst, and of a single small read alone */
	/* votes that counted, and how many of them later votes overruled */
	uint64_t votes, dissents;
	uint64_t races, spoiled; /* bursts with a question, and how many of them were void */
	bool by_writes; /* reads told nothing: zones are placed by writes, which no state keeps */
	/* retest.c */
	bool retest_short; /* the budget ended it */
	uint32_t retests_untold;
	/* check.c: every set of a full sample was as predicted */
	bool proved;
	struct probe_crowd crowd[PROBE_CROWDS]; /* predict.c: those that took longest */
	bool between; /* split.c: a pair took no time that tells whether its zones share */
	/* dies.c */
	bool *given_up;
	uint8_t *unsure; /* by zone: how often it could not be told */
	uint32_t hint_distance, hint_tried, hint_hit;
	uint32_t *last_of_group;
	/* write_set.c */
	uint32_t set_units; /* of a zone of a set */
	/* the time of a set of several groups relative to the slowest of them alone, where
	 * something that they share is slower than all of them; else 1 */
	double load;
	uint32_t usual_mibps; /* of a zone alone, before groups were looked at */
	uint64_t accept_ns; /* of the last set: until all was accepted */
	double *group_ns; /* by group: the time of a set of one zone; 0: not known */
	struct probe_alone quickest; /* the shortest time for each unit behind group_ns */
	bool *apart; /* by group: zones of it are independent when they are written */
	bool *joined; /* by group: it is another one, too */
	/* channels.c */
	/* times of two dies relative to one: on two channels, on one, and the border */
	double lost_low, lost_high, border;
	bool border_found;
	uint32_t dies_untold; /* failed tries to tell a die's channel */
	double jitter; /* relative spread of the faster half of the samples */
	double *solo_ns; /* by zone: time of a whole unit alone; 0: not measured yet */
	/* the clocks */
	uint64_t wall0, dev0, phase_wall0, last_checkpoint, last_progress;
};

/* live.c */
int probe_begin(struct probe *p, struct zns_dev *d, const struct zns_probe_params *par,
		struct zns_probe_map *map, struct zns_err *err);
/* the length of a write, from now on */
int probe_set_unit(struct probe *p, uint32_t unit, struct zns_err *err);
/* resets our zones; returns @ret or the failure of that */
int probe_clean(struct probe *p, int ret, struct zns_err *err);
void probe_free(struct probe *p);
/* Makes each of these zones readable: writes a unit where there is none. Zones that fail become
 * KIND_NO. */
int probe_need(struct probe *p, const uint32_t *zones, uint32_t nr, struct zns_err *err);
/* The same for two zones. Without room for them, resets all others first. */
int probe_need_pair(struct probe *p, uint32_t a, uint32_t b, struct zns_err *err);
int probe_drop(struct probe *p, const uint32_t *zones, uint32_t nr, struct zns_err *err);
int probe_spend(struct probe *p, uint64_t bytes, struct zns_err *err); /* -EDQUOT */
/* Picks up to @n random empty zones of the usual capacity. Returns how many. */
uint32_t probe_pick_empty(struct probe *p, uint32_t *out, uint32_t n);
void probe_mark(struct probe *p, uint32_t zone, uint32_t units); /* notes that it holds our data */
void probe_unmark(struct probe *p, uint32_t zone);
/* the data that we write, with our mark */
void probe_fill(struct probe *p, uint8_t *unit, uint32_t zone);
uint32_t probe_random(struct probe *p, uint32_t below);

/* unit_time.c: -EINTR if asked to stop */
int probe_race(struct probe *p, const struct zns_race *r, uint32_t nr, struct zns_err *err);
/* Reads a whole unit of each at once and takes the time. @b == ZNS_PROBE_NONE: one alone. */
int probe_read_units(struct probe *p, uint32_t a, uint32_t b, uint64_t *ns, struct zns_err *err);
int probe_read_rate(struct probe *p, uint32_t zone, uint32_t units, double *mibps,
		    struct zns_err *err);

/* vote.c */
int probe_calibrate_burst(struct probe *p, const uint32_t *zones, uint32_t nr, struct zns_err *err);
/* Which of @others wait for a burst on @zone? *out: at most @nr places in @others. *told is
 * false if every try was spoiled. */
int probe_suspects(struct probe *p, uint32_t zone, const uint32_t *others, uint32_t nr,
		   uint32_t *out, uint32_t *nr_out, bool *told, struct zns_err *err);
/* Do both zones share a die? *same: 1 or 0, or -1 if it cannot be told. *conf: the chance that
 * this is right. */
int probe_same_die(struct probe *p, uint32_t a, uint32_t b, bool quick_no, int *same, float *conf,
		   struct zns_err *err);

/* stat.c */
#define PROBE_WRONG_ZONES 0.005 /* half of the share of wrong pairs that must be found */
#define PROBE_PASS 0.001 /* chance of a map with so many to pass */
double probe_median(double *v, uint32_t n); /* sorts */
double probe_quartile(double *v, uint32_t n); /* the lower quartile; sorts */
/* The least share that is right, with 95 % certainty, if @wrong of @n trials were not. */
double probe_lower_bound(uint32_t n, uint32_t wrong);
/* how many of @n zones the prediction tries (see predict.c); the chance that a sample misses all
 * zones of a map with so many wrong ones */
uint32_t probe_sample_size(uint32_t n);
double probe_sample_misses(uint32_t n, uint32_t sample);

/* write_set.c: @count units for each of @nr zones, which count as written from now on. @done_ns:
 * room for each unit's end. */
void probe_write_race(struct probe *p, struct zns_race *r, const uint32_t *zones, uint32_t nr,
		      uint32_t count, uint64_t *done_ns);
/* write_set.c: @nr zones that are empty, @count units each, at once; *ns: until the medium has all
 * of it. The set is reset afterwards, but for probe_write_timed. */
#define PROBE_SET_UNITS 8u /* at most, but for a long one; see set_units */
#define PROBE_LONG_UNITS 16u
/* The time of a set relative to what a zone alone takes: less than this, and nobody waits; more
 * than that, and two share a die, but not more of them. */
#define PROBE_APART 1.3
#define PROBE_SAME 1.6
#define PROBE_SAME_MOST 2.6
#define PROBE_ONE_RATE 1.3 /* times of one die alone differ by less */
#define PROBE_ALIKE 1.15 /* two times of one die alone that agree differ by less */
int probe_write_set(struct probe *p, const uint32_t *zones, uint32_t nr, uint32_t count, double *ns,
		    struct zns_err *err);
int probe_write_timed(struct probe *p, const uint32_t *zones, uint32_t nr, uint32_t count,
		      double *ns, struct zns_err *err);
/* The same with set_units for each zone, so often as @times says by zone; NULL: once. */
int probe_write_times(struct probe *p, const uint32_t *zones, const uint32_t *times, uint32_t nr,
		      double *ns, struct zns_err *err);
/* with so many units for each zone */
int probe_write_units(struct probe *p, const uint32_t *zones, const uint32_t *units, uint32_t nr,
		      double *ns, struct zns_err *err);
/* The shortest time of @tries: noise makes nothing quicker. Of @units of one zone alone; */
int probe_best_alone(struct probe *p, uint32_t zone, uint32_t units, uint32_t tries, double *ns,
		     struct zns_err *err);
/* of a set as in probe_write_times, relative to @alone. Stops when that is no more than @high. */
int probe_best_set(struct probe *p, const uint32_t *zones, const uint32_t *times, uint32_t nr,
		   double alone, double high, uint32_t tries, double *ratio, struct zns_err *err);
double probe_set_mibps(const struct probe *p, uint32_t nr, uint32_t count, double ns);
/* units of each zone of a long set: a zone may be too small for PROBE_LONG_UNITS */
static inline uint32_t probe_long_units(const struct probe *p)
{
	return (uint32_t)zns_min((uint64_t)PROBE_LONG_UNITS, p->d->geo.zone_capacity / p->unit);
}
static inline bool probe_can_write(const struct probe *p, uint32_t zone)
{
	return p->kind[zone] == KIND_EMPTY && p->typical[zone];
}
/* the zones of each group that can be written, in random order: from first[g] up to first[g + 1] */
struct probe_index {
	uint32_t *zone, *first;
};
int probe_index_build(struct probe *p, struct probe_index *x, struct zns_err *err);
void probe_index_free(struct probe_index *x);
void probe_shuffle(struct probe *p, uint32_t *v, uint32_t n);
/* the first zone of a group, from @from on and round, that can be written; ZNS_PROBE_NONE */
uint32_t probe_zone_of(const struct probe *p, uint32_t group, uint32_t from);

/* group_times.c: sets become long where a short one is mostly latency, or does not come round all
 * dies that a zone lies on */
int probe_set_length(struct probe *p, const struct probe_index *x, struct zns_err *err);
int probe_group_times(struct probe *p, const struct probe_index *x, struct zns_err *err);
/* joins groups that are one when they are written; builds no new index */
int probe_join_groups(struct probe *p, const struct probe_index *x, struct zns_err *err);
/* the same pair by pair, where sets of several groups wait for something else, too; *joined: how
 * many */
int probe_join_pairs(struct probe *p, const struct probe_index *x, uint32_t *joined,
		     struct zns_err *err);

/* group_reads.c: sets the map's group_read_mibps; the median of those that are not 0, or 0 */
int probe_group_reads(struct probe *p, const struct probe_index *x, struct zns_err *err);
uint32_t probe_usual_read(const struct zns_probe_map *m);

/* split.c: places the zones of groups that are several when they are written; or all zones */
int probe_split_groups(struct probe *p, const struct probe_index *x, struct zns_err *err);
int probe_place_by_writes(struct probe *p, struct zns_err *err);
/* zones without a group; the times of groups are known. Builds the index anew. */
int probe_place_unknown(struct probe *p, struct probe_index *x, struct zns_err *err);

/* predict.c: @sample zones; 0: as many as it takes */
int probe_predict(struct probe *p, uint32_t sample, struct zns_probe_drift *out,
		  struct zns_err *err);
/* only sets of several groups, and reads beside writes */
int probe_predict_apart(struct probe *p, struct zns_probe_drift *out, struct zns_err *err);

/* loaded.c: sets of several groups wait, but no two groups do */
int probe_loaded(struct probe *p, struct probe_index *x, struct zns_probe_drift *d, bool *again,
		 struct zns_err *err);
/* overlap.c: -EAGAIN if zones lie on several dies each, and share some of them */
int probe_overlap(struct probe *p, struct zns_err *err);
/* throttled.c: -EAGAIN if the drive's rate falls when much is written */
int probe_throttled(struct probe *p, struct zns_err *err);
/* crowd.c: lowers promises that do not hold while all groups of a set are written, or because the
 * whole device stalls now and then */
int probe_crowd(struct probe *p, struct zns_err *err);
/* check.c: a promise must hold in each group */
void probe_promise_least(struct probe *p);

/* retest.c */
int probe_retest(struct probe *p, struct zns_err *err);

/* judge.c: notes a reason against the map. The first reason is kept. */
void probe_doubt(struct probe *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A reason to say nothing of channels. */
void probe_doubt_channels(struct probe *p, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* -EAGAIN if nearly all races are spoiled */
int probe_hopeless(struct probe *p, struct zns_err *err);
int probe_judge(struct probe *p, struct zns_err *err);

/* rates.c, dies.c, channels.c, check.c */
int probe_rates(struct probe *p, struct zns_err *err);
/* long_writes.c: are they one domain if commands are so long that their latency does not count?
 * Else the unit is as before. */
int probe_long_writes(struct probe *p, struct zns_err *err);
/* settled.c: -EAGAIN if a flush does not empty the write cache */
int probe_settled(struct probe *p, struct zns_err *err);
int probe_ceiling(struct probe *p, struct zns_err *err); /* once groups are known */
/* sizes the burst, on a few empty zones */
int probe_calibrate(struct probe *p, struct zns_err *err);
int probe_dies(struct probe *p, struct zns_err *err);
int probe_channels(struct probe *p, struct zns_err *err);
void probe_forget_channels(struct zns_probe_map *m);
/* channel_test.c: @zone is by group, the one to read. Wrong channels become a doubt of all
 * channels. */
int probe_test_channels(struct probe *p, const uint32_t *zone, struct zns_err *err);
int probe_check(struct probe *p, struct zns_err *err);

/* loss.c */
#define PROBE_UNTOLD 1e6
#define PROBE_GAP 0.05 /* least gap between the classes of times */
#define PROBE_LOSS_MAX 256u /* samples */
/* The time of two dies relative to one alone, and its standard deviation. PROBE_UNTOLD:
 * disturbed each time. */
int probe_loss(struct probe *p, uint32_t a, uint32_t b, uint32_t n, double *ratio, double *spread,
	       struct zns_err *err);
/* How much this drive's times vary by themselves. Disturbances only add, so the best of several
 * tries counts. */
int probe_jitter(struct probe *p, uint32_t a, uint32_t b, struct zns_err *err);

/* probe_map.c */
void probe_count(struct probe *p); /* unknown zones, confidence */
/* in the order of their first zones */
int probe_number_groups(struct zns_probe_map *m, struct zns_err *err);

/* tick.c */
/* reports progress and state, not too often */
void probe_tick(struct probe *p, uint32_t done, uint32_t total);
void probe_save_state(struct probe *p, uint64_t now);

static inline bool probe_stopped(const struct probe *p)
{
	return p->par->stop && *p->par->stop;
}

#endif
