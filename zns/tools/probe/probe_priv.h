/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_PROBE_PRIV_H
#define ZNS_PROBE_PRIV_H
#include "zns/probe.h"
#include "zns/util.h"

#define PROBE_PAGE KIB(16) /* bytes; pages at this distance are read from the medium one by one */
#define PROBE_SMALL 4096u /* bytes of a small read, which senses a full page but transfers little */
#define PROBE_BURST_MAX 128u
#define PROBE_SET_MAX 32u /* most zones that one burst is tried against */
#define PROBE_PASSES 16u
#define PROBE_WRITE_BATCH 32u
#define PROBE_CROWDS 2u

enum zone_kind {
	KIND_NO, /* cannot be used: offline, conventional, or failed */
	KIND_EMPTY, /* the probe may write and reset it */
	KIND_DATA, /* has other users' data: the probe may read it */
};

/*
 * zones of several groups that were written together; @ratio: their time divided by that of the
 * slowest of them alone
 */
struct probe_crowd {
	uint32_t zone[PROBE_WRITE_BATCH], nr;
	double ratio;
};

/* the time of writing @units of one zone alone */
struct probe_alone {
	uint32_t zone, units; /* 0 units: not measured */
	double ns;
};

struct probe {
	struct zns_dev *d;
	const struct zns_probe_params *par;
	struct zns_probe_map *map;
	uint32_t nr; /* number of zones */
	uint32_t unit;
	uint64_t budget, rng;
	/* used by live.c */
	uint8_t *kind; /* enum zone_kind */
	/* by zone: units that the probe has written and not reset; UINT32_MAX: other users' data */
	uint32_t *have;
	uint32_t *readable; /* by zone: bytes that can be read, at most a unit */
	bool *typical; /* by zone: it has the usual capacity */
	uint32_t small; /* bytes of a small read */
	uint32_t *ours, nr_ours; /* zones that contain data of the probe */
	uint32_t *ours_at; /* by zone: its index in @ours */
	/* number of zones that may still become active, and open, at the same time */
	uint32_t room, open_room;
	uint8_t *wbuf; /* buffer of PROBE_WRITE_BATCH units */
	uint8_t *rbuf; /* buffer for the most that one race reads */
	/* used by vote.c */
	uint32_t burst, set_max;
	float *pace; /* by zone: its time of a burst divided by burst_ns; 0: unknown */
	uint64_t burst_ns, single_ns; /* the time of a burst, and of a single small read alone */
	/* number of valid votes, and how many of them were in the minority on their question */
	uint64_t votes, dissents;
	/* number of bursts for a question, and how many of them were disturbed */
	uint64_t races, spoiled;
	/*
	 * reads cannot tell dies apart, so writes assign the zones; a saved state does not contain
	 * these groups
	 */
	bool by_writes;
	/* used by retest.c */
	bool retest_short; /* the budget was too small for all tests */
	uint32_t retests_untold;
	/* check.c: every set of a full sample took the predicted time */
	bool proved;
	struct probe_crowd crowd[PROBE_CROWDS]; /* predict.c: the sets that took longest */
	/* predict.c: some pairs of a group take this many times as long as others; else 0 */
	double kinds;
	/* split.c: a pair took longer than independent zones, but less than zones of one die */
	bool between;
	/* used by dies.c */
	bool *given_up; /* by zone: it stays unknown */
	uint8_t *unsure; /* by zone: number of passes in which its votes were undecided */
	/* distance from a zone of a die to the next one, in a regular map */
	uint32_t hint_distance;
	/* number of guesses from this distance, and how many of them were right */
	uint32_t hint_tried, hint_hit;
	uint32_t *last_of_group; /* by group: its last zone so far, plus 1; 0: none */
	/* used by write_set.c */
	uint32_t set_units; /* number of units of each zone that a set writes */
	/*
	 * Something that groups share, such as a channel, may be slower than they are together.
	 * Then a set of several groups takes this many times as long as the slowest of them alone;
	 * else 1.
	 */
	double load;
	uint32_t usual_mibps; /* rate of a zone alone, before groups were measured */
	uint64_t accept_ns; /* time until the device had accepted all data of the last set */
	double *group_ns; /* by group: the time of a set of one zone; 0: unknown */
	struct probe_alone quickest; /* the shortest time per unit among those in group_ns */
	/* by group: some of its zones do not wait for each other when they are written */
	bool *apart;
	bool *joined; /* by group: its zones were moved to another group */
	/* used by channels.c */
	/*
	 * the time of reading two dies divided by that of one: the usual value for two channels,
	 * the usual value for one, and the border between these
	 */
	double lost_low, lost_high, border;
	bool border_found;
	uint32_t dies_untold; /* number of failed tries to find the channel of a die */
	double jitter; /* relative spread of the faster half of the samples */
	double *solo_ns; /* by zone: time of reading a whole unit alone; 0: not measured yet */
	/* times of the clocks */
	uint64_t wall0, dev0, phase_wall0, last_checkpoint, last_progress;
};

/* used by live.c */
int probe_begin(struct probe *p, struct zns_dev *d, const struct zns_probe_params *par,
		struct zns_probe_map *map, struct zns_err *err);
/* sets the length of a write from now on */
int probe_set_unit(struct probe *p, uint32_t unit, struct zns_err *err);
/* resets the probe's zones; returns @ret or the error of the reset */
int probe_clean(struct probe *p, int ret, struct zns_err *err);
void probe_free(struct probe *p);
/*
 * Makes each of these zones readable: writes a unit to those that are empty. Zones that cannot be
 * written become KIND_NO.
 */
int probe_need(struct probe *p, const uint32_t *zones, uint32_t nr, struct zns_err *err);
/*
 * Makes two zones readable. If no more zones may be active, resets all of the probe's zones first.
 */
int probe_need_pair(struct probe *p, uint32_t a, uint32_t b, struct zns_err *err);
/* Resets those of these zones that contain data of the probe. */
int probe_drop(struct probe *p, const uint32_t *zones, uint32_t nr, struct zns_err *err);
/* Counts bytes that will be written. -EDQUOT: the budget is too small. */
int probe_spend(struct probe *p, uint64_t bytes, struct zns_err *err);
/* Picks up to @n random empty zones with the usual capacity. Returns their number. */
uint32_t probe_pick_empty(struct probe *p, uint32_t *out, uint32_t n);
/* notes that the zone contains data of the probe */
void probe_mark(struct probe *p, uint32_t zone, uint32_t units);
void probe_unmark(struct probe *p, uint32_t zone);
/* makes the data that the probe writes, with its mark */
void probe_fill(struct probe *p, uint8_t *unit, uint32_t zone);
uint32_t probe_random(struct probe *p, uint32_t below);

/* unit_time.c: -EINTR: the caller has asked the probe to stop */
int probe_race(struct probe *p, const struct zns_race *r, uint32_t nr, struct zns_err *err);
/* Reads a whole unit of each zone at once and measures the time. @b == ZNS_PROBE_NONE: @a alone. */
int probe_read_units(struct probe *p, uint32_t a, uint32_t b, uint64_t *ns, struct zns_err *err);
int probe_read_rate(struct probe *p, uint32_t zone, uint32_t units, double *mibps,
		    struct zns_err *err);

/* used by vote.c */
int probe_calibrate_burst(struct probe *p, const uint32_t *zones, uint32_t nr, struct zns_err *err);
/*
 * Which of @others wait for a burst on @zone? *out: at most @nr indices of @others. *told: false if
 * every try was disturbed.
 */
int probe_suspects(struct probe *p, uint32_t zone, const uint32_t *others, uint32_t nr,
		   uint32_t *out, uint32_t *nr_out, bool *told, struct zns_err *err);
/*
 * Do both zones share a die? *same: 1 or 0; -1: undecided. *conf: the probability that this is
 * right. @quick_no: if the first vote is `no`, it decides.
 */
int probe_same_die(struct probe *p, uint32_t a, uint32_t b, bool quick_no, int *same, float *conf,
		   struct zns_err *err);

/* stat.c */
/* Share of zones that may be wrong: half of the share of wrong pairs that must be found. */
#define PROBE_WRONG_ZONES 0.005
#define PROBE_PASS 0.001 /* probability that a map with PROBE_WRONG_ZONES passes the test */
double probe_median(double *v, uint32_t n); /* sorts @v */
double probe_quartile(double *v, uint32_t n); /* the lower quartile; sorts @v */
/* With 95 % certainty at least this share is right, if @wrong of @n trials were not. */
double probe_lower_bound(uint32_t n, uint32_t wrong);
/* how many of @n zones the prediction tries (see predict.c) */
uint32_t probe_sample_size(uint32_t n);
/*
 * the probability that such a sample contains no wrong zone, if PROBE_WRONG_ZONES of all zones are
 * wrong
 */
double probe_sample_misses(uint32_t n, uint32_t sample);

/*
 * write_set.c: fills @r with writes of @count units to each of @nr zones, which are marked as
 * written from now on. @done_ns: room for the end time of each unit.
 */
void probe_write_race(struct probe *p, struct zns_race *r, const uint32_t *zones, uint32_t nr,
		      uint32_t count, uint64_t *done_ns);
/* used by write_set.c */
#define PROBE_SET_UNITS 8u /* most units of each zone in a set; see set_units */
#define PROBE_LONG_UNITS 16u /* most units of each zone in a long set */
#define PROBE_RATE_UNITS 64u /* units of a zone behind the rate of its group */
/* The time of a set divided by that of one of its zones alone. */
#define PROBE_APART 1.3 /* up to this ratio no zone waits for another one */
#define PROBE_SAME 1.6 /* from this ratio on two zones share a die */
/* above this ratio the cause is something else than two zones of one die */
#define PROBE_SAME_MOST 2.6
#define PROBE_ONE_RATE 1.3 /* times alone of zones of one die differ by less than this factor */
/* Two measurements of one die alone agree if they differ by less than this factor. */
#define PROBE_ALIKE 1.15
/*
 * Writes @count units to each of @nr empty zones at once, and resets them. *ns: the time until all
 * data are on the medium.
 */
int probe_write_set(struct probe *p, const uint32_t *zones, uint32_t nr, uint32_t count, double *ns,
		    struct zns_err *err);
/* like probe_write_set(), without the reset */
int probe_write_timed(struct probe *p, const uint32_t *zones, uint32_t nr, uint32_t count,
		      double *ns, struct zns_err *err);
/* Writes @units[zone] units to each zone (NULL: set_units), and resets them. */
int probe_write_units(struct probe *p, const uint32_t *zones, const uint32_t *units, uint32_t nr,
		      double *ns, struct zns_err *err);
/* The following two return the shortest of @tries times, since noise makes nothing faster. */
/* writes @units of one zone alone */
int probe_best_alone(struct probe *p, uint32_t zone, uint32_t units, uint32_t tries, double *ns,
		     struct zns_err *err);
/*
 * writes a set as probe_write_units() does; *ratio: its time divided by @alone; ends with the first
 * ratio of at most @high
 */
int probe_best_set(struct probe *p, const uint32_t *zones, const uint32_t *units, uint32_t nr,
		   double alone, double high, uint32_t tries, double *ratio, struct zns_err *err);
double probe_set_mibps(const struct probe *p, uint32_t nr, uint32_t count, double ns);
/* units of each zone in a long set: a zone may be too small for PROBE_LONG_UNITS */
static inline uint32_t probe_long_units(const struct probe *p)
{
	return (uint32_t)zns_min((uint64_t)PROBE_LONG_UNITS, p->d->geo.zone_capacity / p->unit);
}
static inline uint32_t probe_rate_units(const struct probe *p)
{
	return (uint32_t)zns_min((uint64_t)PROBE_RATE_UNITS, p->d->geo.zone_capacity / p->unit);
}
static inline bool probe_can_write(const struct probe *p, uint32_t zone)
{
	return p->kind[zone] == KIND_EMPTY && p->typical[zone];
}
/*
 * the writable zones of each group in random order: those of group g are at first[g] to first[g +
 * 1] - 1
 */
struct probe_index {
	uint32_t *zone, *first;
};
int probe_index_build(struct probe *p, struct probe_index *x, struct zns_err *err);
void probe_index_free(struct probe_index *x);
void probe_shuffle(struct probe *p, uint32_t *v, uint32_t n);
/*
 * the first writable zone of a group, searched from @from on and then from 0; ZNS_PROBE_NONE: none
 */
uint32_t probe_zone_of(const struct probe *p, uint32_t group, uint32_t from);

/*
 * group_times.c: makes sets longer if the time of a short one is mostly latency, or if a short one
 * does not reach all dies of a zone
 */
int probe_set_length(struct probe *p, const struct probe_index *x, struct zns_err *err);
/* measures group_ns and group_write_mibps */
int probe_group_times(struct probe *p, const struct probe_index *x, struct zns_err *err);
/* joins groups that share a die when they are written; does not build a new index */
int probe_join_groups(struct probe *p, const struct probe_index *x, struct zns_err *err);
/*
 * joins pair by pair, for the case that larger sets also wait for something other than a die;
 * *joined: number of joined groups
 */
int probe_join_pairs(struct probe *p, const struct probe_index *x, uint32_t *joined,
		     struct zns_err *err);

/* group_rates.c: measures the map's group_read_mibps, and raises group_write_mibps to the rate of a long
 * write, if that is notably higher: *raised */
int probe_group_rates(struct probe *p, const struct probe_index *x, bool *raised,
		      struct zns_err *err);
/* the median of the groups' rates that are known; 0 if none is */
uint32_t probe_usual(const struct zns_probe_map *m, const uint32_t *mibps);

/* split.c: splits groups whose zones are on several dies when they are written */
int probe_split_groups(struct probe *p, const struct probe_index *x, struct zns_err *err);
/* assigns all zones to groups by writing */
int probe_place_by_writes(struct probe *p, struct zns_err *err);
/* assigns zones without a group by writing; needs the times of groups. Builds a new index. */
int probe_place_unknown(struct probe *p, struct probe_index *x, struct zns_err *err);

/*
 * predict.c: tries what the map predicts with @sample zones; 0: as many as needed. Sets the map's
 * @seen.
 */
int probe_predict(struct probe *p, uint32_t sample, struct zns_probe_drift *out,
		  struct zns_err *err);
/* predict.c: tries only sets of several groups, and reads during writes */
int probe_predict_apart(struct probe *p, struct zns_probe_drift *out, struct zns_err *err);

/*
 * loaded.c: if sets of several groups wait, but no two groups do, lowers the promised rates until
 * they are reached. *again: groups were joined, so the prediction must be repeated.
 */
int probe_loaded(struct probe *p, struct probe_index *x, struct zns_probe_drift *d, bool *again,
		 struct zns_err *err);
/* overlap.c: -EAGAIN: zones are on several dies each, and share some of them */
int probe_overlap(struct probe *p, struct zns_err *err);
/* throttled.c: -EAGAIN: the drive's rate falls when much is written */
int probe_throttled(struct probe *p, struct zns_err *err);
/*
 * crowd.c: lowers promised rates that are not reached while all groups of a set are written, or
 * because the whole device stalls now and then
 */
int probe_crowd(struct probe *p, struct zns_err *err);
/*
 * check.c: sets the promised rate of a zone: the usual rate, or that of the slowest group if that
 * is clearly lower
 */
void probe_promise_least(struct probe *p);

/* retest.c: tests random zones once more, by reading */
int probe_retest(struct probe *p, struct zns_err *err);

/* judge.c: notes a reason against the map. The first reason is kept. */
void probe_doubt(struct probe *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Notes a reason to return no channels. */
void probe_doubt_channels(struct probe *p, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* -EAGAIN: nearly all bursts were disturbed */
int probe_hopeless(struct probe *p, struct zns_err *err);
int probe_judge(struct probe *p, struct zns_err *err);

/* rates.c: measures the rates of one zone, and whether all zones are one domain */
int probe_rates(struct probe *p, struct zns_err *err);
/*
 * long_writes.c: are all zones one domain if commands are so long that their latency does not
 * matter? If not, the unit stays unchanged.
 */
int probe_long_writes(struct probe *p, struct zns_err *err);
/* settled.c: -EAGAIN: a flush does not empty the write cache */
int probe_settled(struct probe *p, struct zns_err *err);
/* ceiling.c: sets the map's device_write_mibps; needs the times of groups */
int probe_ceiling(struct probe *p, struct zns_err *err);
/* the highest sum of promises for all groups together, in MiB/s; 0: there is no such limit */
double probe_may_be_promised(const struct zns_probe_map *m);
/* like probe_ceiling(), by sets as long as those behind raised rates */
int probe_long_ceiling(struct probe *p, struct zns_err *err);
/* dies.c: chooses the size of the burst with a few empty zones */
int probe_calibrate(struct probe *p, struct zns_err *err);
int probe_dies(struct probe *p, struct zns_err *err);
int probe_channels(struct probe *p, struct zns_err *err);
/* removes channels that are not proved */
void probe_forget_channels(struct zns_probe_map *m);
/* channel_test.c: @zone: by group, the zone to read. Wrong channels make all channels doubtful. */
int probe_test_channels(struct probe *p, const uint32_t *zone, struct zns_err *err);
int probe_check(struct probe *p, struct zns_err *err);

/* loss.c */
#define PROBE_UNTOLD 1e6 /* replaces a ratio or a spread that could not be measured */
#define PROBE_GAP 0.05 /* least gap between the classes of times */
#define PROBE_LOSS_MAX 256u /* most samples of a pair */
/*
 * The time of reading two dies at once divided by that of one alone, and its standard deviation,
 * which is PROBE_UNTOLD if each try was disturbed.
 */
int probe_loss(struct probe *p, uint32_t a, uint32_t b, uint32_t n, double *ratio, double *spread,
	       struct zns_err *err);
/*
 * Measures how much this drive's times vary by themselves. Disturbances only add to that, so the
 * least result of several calls is used.
 */
int probe_jitter(struct probe *p, uint32_t a, uint32_t b, struct zns_err *err);

/* probe_map.c */
void probe_count(struct probe *p); /* counts unknown zones, and computes the confidence */
/* numbers groups in the order of their first zones */
int probe_number_groups(struct zns_probe_map *m, struct zns_err *err);

/* tick.c */
/* reports progress and state, but not too often */
void probe_tick(struct probe *p, uint32_t done, uint32_t total);
void probe_save_state(struct probe *p, uint64_t now);

static inline bool probe_stopped(const struct probe *p)
{
	return p->par->stop && *p->par->stop;
}

#endif
