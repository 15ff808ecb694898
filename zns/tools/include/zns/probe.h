/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_PROBE_H
#define ZNS_PROBE_H
/*
 * Which zones share a die, and which dies share a channel, found by measuring (design.md §5).
 * Everything is learnt through zns/dev.h: when zones are read and written at the same time, those
 * that share something wait for each other.
 *
 * Dies: one zone gets a burst of small reads while others are read once. A zone that has to wait lies
 * on the same die. Each zone is tested like that against one zone of each die, its pivot, and at
 * least twice against the pivot of its own die, beside zones that must not wait. Where the map is
 * regular, the pivot that the rule suggests is tried first, but no test is left out.
 *
 * Channels: two dies are read by a whole unit at once. What they lose against one alone falls into
 * two classes. Measured once more, they must be two classes again, divided in the same way.
 *
 * Retest: random zones are tested once more against others of all groups. The share of wrong answers
 * decides whether the map is given out.
 *
 * Domain: if zones that are written together get no more than one alone, they are one domain.
 *
 * Predict: sets of zones are written, two of a group or one of each of many groups. The map is given
 * out if each set took as long as the map says.
 *
 * Only empty zones are written, one unit each as a rule, and reset afterwards; never more of them
 * at a time than the open and active limits allow; none is finished. Zones with data are only read.
 * What was written begins with a mark, so that what a killed probe left is found and reset by the
 * next one.
 *
 * A probe uses one thread. The caller makes sure that nobody else uses the device meanwhile. Errors:
 * zns/err.h.
 */
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include "zns/dev.h"

#define ZNS_PROBE_NONE UINT32_MAX /* a group or channel that is not known */

enum zns_probe_phase {
	ZNS_PROBE_CALIBRATE, /* one zone's rates, one domain or not */
	ZNS_PROBE_DIES,
	ZNS_PROBE_CHANNELS,
	ZNS_PROBE_CHECK, /* groups found by reading, tried by writing */
	ZNS_PROBE_DONE,
};

struct zns_probe_progress {
	enum zns_probe_phase phase;
	uint32_t done, total; /* zones or dies of this phase: done, and in total */
	uint32_t groups; /* found so far */
	uint64_t written, budget; /* bytes */
	double left_s; /* wall time this phase may still take; negative: unknown */
};

struct zns_probe_params {
	uint32_t unit; /* program unit, bytes; 0: 192 KiB, or less where zones are small */
	/* most bytes to write, in all; 0: begin with zns_probe_budget, and what the tests of the groups
	 * found take comes on top */
	uint64_t budget;
	uint64_t seed; /* seed of the random choice of samples */
	/* a doubtful map is no error: zns_probe_map.doubt says what speaks against it */
	bool force;
	/* Called now and then, from the calling thread. */
	void (*progress)(void *arg, const struct zns_probe_progress *p);
	/* The state as it is now, for zns_probe_load: to be kept where a later run finds it. */
	void (*checkpoint)(void *arg, const void *state, size_t len);
	void *arg;
	const volatile sig_atomic_t *stop; /* set: clean up and return -EINTR; may be NULL */
};

/* What a map predicts of sets of zones that are written together. */
enum zns_probe_claim {
	ZNS_PROBE_SHARE, /* two zones of a group: half a zone's rate each */
	ZNS_PROBE_APART, /* a zone of each of several groups: all have a zone's rate */
	ZNS_PROBE_READ, /* small reads of a group do not wait for writes of others */
	ZNS_PROBE_CLAIMS
};

/* Times of such sets relative to what was predicted: 1 is as predicted. */
struct zns_probe_seen {
	uint32_t sets, wrong;
	double low, mean, high;
};

/* Owned by the caller: zeroed at first, ended with zns_probe_fini. */
struct zns_probe_map {
	uint32_t nr_zones, nr_groups, nr_channels;
	bool one_domain; /* then one group with every zone */
	uint32_t *zone_group; /* by zone; ZNS_PROBE_NONE: not known */
	float *zone_confidence; /* chance that it is right, 0 to 1; never more than @right */
	uint32_t *pivot; /* by group: the zone that stands for it */
	uint32_t *group_write_mibps; /* by group: sustained, of one zone alone; 0: not known */
	uint32_t *group_read_mibps; /* by group: of one zone alone; 0: not known */
	uint32_t *group_channel; /* by group; ZNS_PROBE_NONE */
	float *channel_confidence; /* by group */
	/* Zones without a group, among those that can be used or that failed in this run. */
	uint32_t nr_unknown;
	uint32_t nr_failed; /* zones among these that could not be written */
	char failure[200]; /* the error of the first failed zone */
	/*
	 * With 95 % certainty at least this share of the zones that can be used is in the right
	 * group; an unknown one is not, one that failed does not count. From tests made once more,
	 * of zones at random; of one domain, from how many zones were tried.
	 */
	double confidence;
	/* The same of dies and their channels, from tests of pairs of dies made once more; 0 where
	 * channels are not known. */
	double channels_right;
	uint32_t channel_tests, channel_tests_wrong;
	uint32_t retests, retests_wrong; /* tests of zones: number, and number of wrong ones */
	double right; /* lower bound for the share of right zones, from these tests */
	/* shares: of measurements that something disturbed, of votes that others contradicted */
	double spoiled, overruled;
	char channel_doubt[300]; /* why channels are not known although some pairs of dies disturb
				    each other; empty: they are, or none does */
	char doubt[300]; /* what speaks against storing the map; empty: nothing */
	uint32_t zone_write_mibps, zone_read_mibps; /* one zone alone */
	/* A write cache: what several zones together get while it takes all, and how much it holds
	 * at least. 0: no more than a few units of each zone. The rates above are those behind it.
	 */
	uint32_t cached_write_mibps, cache_mib;
	/* The prediction: zones that were tried and zones that had to be, sets of several groups that
	 * had to be, and what was seen. */
	uint32_t zones_predicted, zones_needed, sets_needed;
	struct zns_probe_seen seen[ZNS_PROBE_CLAIMS];
	/* Chance that all tried zones are right although 1 % of the map's pairs are wrong. */
	double miss;
	uint32_t nr_joined; /* groups of the reads that share a die with others when written */
	/* How many times as long as alone a set of groups takes, where something that they share,
	 * such as a channel, is slower than they are together, or stalls. The rates above are what is
	 * left then. 1: nothing is; 0: not known, as from a profile of an older program. */
	double load;
	double scaling; /* what up to 8 zones written together get, as a multiple of one alone */
	/* zones of all groups together, where that is notably less than their sum; else 0 */
	uint32_t device_write_mibps;
	/* what two dies on a channel lose against one alone, reading: 0.19 is 19 %; 0 unknown */
	double channel_loss;
	uint32_t unit; /* bytes of a unit, as used */
	/* effort of the run */
	uint64_t written, resets, reads, read_bytes;
	uint64_t device_ns, wall_ns; /* duration, by the device's clock and by ours */
	/* the state of the run, to continue it */
	enum zns_probe_phase phase;
	uint32_t *tested; /* by zone: it shares no die with groups of numbers below this */
};

/*
 * Find the map. @map: zeroed, or a state from zns_probe_load, which is continued. -EINTR: stopped,
 * @map is such a state. -EDQUOT: the budget is spent; -ENODATA: no empty zones to work with;
 * -EPROTO: reading and writing disagree about who shares a die; -EAGAIN: it could not be measured,
 * or not well enough. In every case what was written is reset, if the device lets us.
 */
int zns_probe_run(struct zns_dev *dev, const struct zns_probe_params *params,
		  struct zns_probe_map *map, struct zns_err *err);
/*
 * Reset the zones that a killed probe left behind; *nr: how many. zns_probe_run does so itself. But a
 * caller who opens the store on the device calls this before that: such a zone may be the next one
 * of the catalogue, and a write pointer that moves there would mean another writer. */
int zns_probe_clear(struct zns_dev *dev, uint32_t *nr, struct zns_err *err);
/* The arrays of a map of @nr_zones: no zone has a group, no group a channel. -ENOMEM: nothing is
 * left. */
int zns_probe_alloc(struct zns_probe_map *map, uint32_t nr_zones);
void zns_probe_fini(struct zns_probe_map *map);

/* What a budget of 0 begins with, in bytes; and the program unit that is used when @wanted (0: none)
 * is asked for. */
uint64_t zns_probe_budget(const struct zns_geometry *geo, uint32_t unit);
uint32_t zns_probe_unit(const struct zns_geometry *geo, uint32_t wanted);

/* malloc'ed; -EBADMSG: no state, damaged, or of another device (@nr_zones). */
int zns_probe_save(const struct zns_probe_map *map, void **out, size_t *len);
int zns_probe_load(const void *state, size_t len, uint32_t nr_zones, struct zns_probe_map *map,
		   struct zns_err *err);

/* How far a sample of zones, dies and rates still agrees with the map. */
struct zns_probe_drift {
	uint32_t zones_checked, zones_moved;
	uint32_t moved[16]; /* the first zones that moved */
	uint32_t groups_checked, groups_joined; /* pairs of groups that are on one die */
	uint32_t joined[2]; /* the first such pair */
	uint32_t channels_checked, channels_moved; /* pairs of dies that were tested */
	uint32_t waits_together; /* sets of several groups that wait for something else */
	uint32_t sets_checked, sets_wrong; /* of all kinds; see zns_probe_map.seen */
	bool domain_changed; /* one domain, but zones are independent; or the other way round */
	double scaling;
	uint32_t zone_write_mibps, zone_read_mibps; /* measured now */
	bool rates_changed; /* by more than a fifth */
};

/*
 * Test what @map predicts (see above) with @sample zones; 0: as many as a map needs to be given out. Of
 * @map, one_domain and the groups, channels, rates and load are looked at, and its counters are set.
 * Drift is no error. Rules and errors are those of zns_probe_run.
 */
int zns_probe_verify(struct zns_dev *dev, const struct zns_probe_params *params,
		     struct zns_probe_map *map, uint32_t sample, struct zns_probe_drift *out,
		     struct zns_err *err);

#endif
