/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_PROBE_H
#define ZNS_PROBE_H
/*
 * Finds out by measuring which zones share a die, and which dies share a channel (design.md §5).
 * All that is known of the device comes through zns/dev.h: when zones that share something are read
 * or written at the same time, they wait for each other.
 *
 * Dies: one zone gets a burst of small reads while others are read once. A zone that has to wait is
 * on the same die. Each zone is tested like that against one zone of each die, its pivot, and at
 * least twice against the pivot of its own die, together with zones that must not wait. If the map
 * is regular, the pivot that the rule suggests is tried first, but no test is left out.
 *
 * Channels: a whole unit of each of two dies is read at once. The loss compared with one die alone
 * falls into two classes. A second measurement must give two classes again, with the same members.
 *
 * Retest: random zones are tested once more against others of all groups. The share of wrong
 * answers decides whether the map is returned.
 *
 * Domain: if zones that are written together get no higher rate than one alone, all zones are one
 * domain.
 *
 * Predict: sets of zones are written, with two zones of one group or one zone of each of many
 * groups. The map is returned only if each set took as long as the map predicts.
 *
 * Only empty zones are written, usually one unit each, and reset afterwards. There are never more
 * of them at a time than the open and active limits allow, and none is finished. Zones with data
 * are only read. All that is written begins with a mark, so that the next probe finds and resets
 * what a killed probe has left behind.
 *
 * A probe uses one thread. The caller makes sure that nobody else uses the device meanwhile.
 * Errors: zns/err.h.
 */
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include "zns/dev.h"

#define ZNS_PROBE_NONE UINT32_MAX /* group or channel is unknown */

enum zns_probe_phase {
	/* measures the rates of one zone, and whether all zones are one domain */
	ZNS_PROBE_CALIBRATE,
	ZNS_PROBE_DIES,
	ZNS_PROBE_CHANNELS,
	ZNS_PROBE_CHECK, /* groups that reads have found are checked by writing */
	ZNS_PROBE_DONE,
};

struct zns_probe_progress {
	enum zns_probe_phase phase;
	uint32_t done, total; /* zones or dies of this phase: done, and in total */
	uint32_t groups; /* number of groups found so far */
	uint64_t written, budget; /* bytes */
	double left_s; /* wall time that this phase may still take; negative: unknown */
};

struct zns_probe_params {
	uint32_t unit; /* bytes of a program unit; 0: 192 KiB, or less if zones are small */
	/*
	 * most bytes to write in total; 0: begin with zns_probe_budget(), and add what the tests of
	 * the groups need
	 */
	uint64_t budget;
	uint64_t seed; /* seed for the random choice of samples */
	/* return a doubtful map without an error: zns_probe_map.doubt has the reason */
	bool force;
	/* Called from time to time, by the calling thread. */
	void (*progress)(void *arg, const struct zns_probe_progress *p);
	/*
	 * Called with the present state, which the caller stores for zns_probe_load() in a later
	 * run.
	 */
	void (*checkpoint)(void *arg, const void *state, size_t len);
	void *arg;
	/* if set by the caller: clean up and return -EINTR; may be NULL */
	const volatile sig_atomic_t *stop;
};

/* What a map predicts about sets of zones that are written together. */
enum zns_probe_claim {
	ZNS_PROBE_SHARE, /* two zones of a group get half of a zone's rate each */
	ZNS_PROBE_APART, /* zones of several groups all get a zone's full rate */
	ZNS_PROBE_READ, /* small reads of a group do not wait for writes of other groups */
	ZNS_PROBE_CLAIMS
};

/* Times of such sets relative to the predicted time: 1 is as predicted. */
struct zns_probe_seen {
	uint32_t sets, wrong;
	double low, mean, high;
};

/* Owned by the caller, who zeroes it first, and calls zns_probe_fini() at the end. */
struct zns_probe_map {
	uint32_t nr_zones, nr_groups, nr_channels;
	bool one_domain; /* true: there is one group, which contains every zone */
	uint32_t *zone_group; /* by zone; ZNS_PROBE_NONE: unknown */
	float *zone_confidence; /* probability that it is right, 0 to 1; never more than @right */
	uint32_t *pivot; /* by group: the zone that represents it in tests */
	uint32_t *group_write_mibps; /* by group: sustained rate of one zone alone; 0: unknown */
	uint32_t *group_read_mibps; /* by group: rate of one zone alone; 0: unknown */
	uint32_t *group_channel; /* by group; ZNS_PROBE_NONE */
	float *channel_confidence; /* by group */
	/*
	 * Number of zones without a group, among those that can be used or that failed in this run.
	 */
	uint32_t nr_unknown;
	uint32_t nr_failed; /* number of these that could not be written */
	char failure[200]; /* the error of the first failed zone */
	/*
	 * With 95 % certainty at least this share of the usable zones is in the right group. An
	 * unknown zone counts as wrong, a failed one is not counted. Computed from repeated tests
	 * of random zones; for one domain, from the number of zones tried.
	 */
	double confidence;
	/*
	 * The same for dies and their channels, from repeated tests of pairs of dies; 0 if channels
	 * are unknown.
	 */
	double channels_right;
	uint32_t channel_tests, channel_tests_wrong;
	/* number of repeated tests of zones, and how many of them were wrong */
	uint32_t retests, retests_wrong;
	double right; /* lower bound for the share of right zones, from these tests */
	/* shares: of measurements that were disturbed, and of votes that were outvoted */
	double spoiled, overruled;
	/*
	 * why channels are unknown although some pairs of dies slow each other down; empty: they
	 * are known, or no pair does
	 */
	char channel_doubt[300];
	char doubt[300]; /* why the map should not be stored; empty: there is no reason */
	uint32_t zone_write_mibps, zone_read_mibps; /* rates of one zone alone */
	/*
	 * A write cache: the rate of several zones together while it accepts all data, and the
	 * least size of it. 0: it holds no more than a few units of each zone. The rates above are
	 * those when it is full.
	 */
	uint32_t cached_write_mibps, cache_mib;
	/*
	 * The prediction: zones that were tried, zones and sets of several groups that had to be
	 * tried, and the results.
	 */
	uint32_t zones_predicted, zones_needed, sets_needed;
	struct zns_probe_seen seen[ZNS_PROBE_CLAIMS];
	/* Probability that all tried zones are right although 1 % of the map's pairs are wrong. */
	double miss;
	/* number of groups, found by reads, that share a die with others when they are written */
	uint32_t nr_joined;
	/*
	 * The factor by which the time of a set of groups exceeds that of one group alone, because
	 * something that they share, such as a channel, is slower than they are together, or
	 * stalls. The rates above are those that remain. 1: there is no such thing; 0: unknown, as
	 * in a profile of an older program.
	 */
	double load;
	/* rate of up to 8 zones written together, as a multiple of that of one zone */
	double scaling;
	/* rate of zones of all groups together, if that is much less than their sum; else 0 */
	uint32_t device_write_mibps;
	/*
	 * loss of two dies on one channel when both are read, compared with one alone: 0.19 is 19
	 * %; 0: unknown
	 */
	double channel_loss;
	uint32_t unit; /* bytes of a unit, as used in this run */
	/* cost of the run */
	uint64_t written, resets, reads, read_bytes;
	uint64_t device_ns, wall_ns; /* duration, by the device's clock and by the host's clock */
	/* state from which the run can be continued */
	enum zns_probe_phase phase;
	uint32_t *tested; /* by zone: it shares no die with groups below this number */
};

/*
 * Finds the map. @map: zeroed, or a state from zns_probe_load(), from which the run continues.
 * -EINTR: stopped, and @map is such a state. -EDQUOT: the budget is used up; -ENODATA: there are no
 * empty zones to work with; -EPROTO: reading and writing disagree about which zones share a die;
 * -EAGAIN: the map could not be measured, or not well enough. In all cases written zones are reset,
 * if the device allows it.
 */
int zns_probe_run(struct zns_dev *dev, const struct zns_probe_params *params,
		  struct zns_probe_map *map, struct zns_err *err);
/*
 * Resets the zones that a killed probe has left behind; *nr: their number. zns_probe_run() does
 * this itself. But a caller that opens the store on the device must call this first: such a zone
 * may be the next one of the catalogue, and a moved write pointer there would be taken for another
 * writer.
 */
int zns_probe_clear(struct zns_dev *dev, uint32_t *nr, struct zns_err *err);
/*
 * Allocates the arrays of a map of @nr_zones, in which no zone has a group and no group a channel.
 * -ENOMEM: nothing is allocated.
 */
int zns_probe_alloc(struct zns_probe_map *map, uint32_t nr_zones);
void zns_probe_fini(struct zns_probe_map *map);

/*
 * zns_probe_budget(): the bytes with which a budget of 0 begins. zns_probe_unit(): the program unit
 * that is used if @wanted (0: none) is requested.
 */
uint64_t zns_probe_budget(const struct zns_geometry *geo, uint32_t unit);
uint32_t zns_probe_unit(const struct zns_geometry *geo, uint32_t wanted);

/*
 * The state is malloc'ed. -EBADMSG: it is no state, is damaged, or belongs to another device
 * (@nr_zones).
 */
int zns_probe_save(const struct zns_probe_map *map, void **out, size_t *len);
int zns_probe_load(const void *state, size_t len, uint32_t nr_zones, struct zns_probe_map *map,
		   struct zns_err *err);

/* How well a sample of zones, dies and rates still agrees with the map. */
struct zns_probe_drift {
	uint32_t zones_checked, zones_moved;
	uint32_t moved[16]; /* the first zones that are on another die now */
	/* pairs of groups: tested, and found to be on one die */
	uint32_t groups_checked, groups_joined;
	uint32_t joined[2]; /* the first pair on one die */
	/* pairs of dies: tested, and found different from the map */
	uint32_t channels_checked, channels_moved;
	/* sets of several groups that wait for something other than a die */
	uint32_t waits_together;
	uint32_t sets_checked, sets_wrong; /* sets of all kinds; see zns_probe_map.seen */
	/* the map has one domain, but zones are independent; or the other way round */
	bool domain_changed;
	double scaling;
	uint32_t zone_write_mibps, zone_read_mibps; /* as measured now */
	bool rates_changed; /* changed by more than a fifth */
};

/*
 * Tests what @map predicts with @sample zones; 0: as many as a new map needs. Of @map, one_domain
 * and the groups, channels, rates and load are used, and its counters are set. Drift is no error.
 * Rules and errors as of zns_probe_run().
 */
int zns_probe_verify(struct zns_dev *dev, const struct zns_probe_params *params,
		     struct zns_probe_map *map, uint32_t sample, struct zns_probe_drift *out,
		     struct zns_err *err);

#endif
