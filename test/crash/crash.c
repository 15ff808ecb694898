/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Power cuts by enumeration, in the manner of SQLite's test6.c: run a load on a device that
 * remembers, then look at every state that a cut could have left (issue: crash safety; design.md
 * §7, §8).
 *
 *   crash [--disk] [--states N] [--seed N] [--only] [--omit data|log|move|order] [--flips N] [--verbose]
 *     --disk        an ordinary disk instead of drives: small checkpoints are written where others
 * were removed
 *     --states N    go on with further loads until so many distinct states were checked, a fifth of
 * them different in metadata zones (100000)
 *     --seed N      of the first load (1); a failure names its load's seed
 *     --only        that one load
 *     --flips N     instead: damage one live byte, N times; never wrong, never lost without a word
 *     --omit KIND   control: flushes of that kind do nothing; order: compaction resets before it
 * commits. Must end in failures.
 *
 * The first WHOLE loads, and all epochs that touch metadata zones, are enumerated whole where an
 * epoch has at most a 25th of N combinations, or 4,096 (with 3 data zones and 3 metadata zones
 * nearly all have); of others so many are drawn with the load's seed, corners first. Exit 0: all
 * states hold.
 */
#include <fcntl.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include "check.h"
#include "flip.h"

#define WHOLE 4 /* loads */
#define DRAWN 16
#define SHOW 5 /* failures in full */
#define DEFRAG_STATES 20000 /* after so many states, some are of moves to chosen groups */

static struct {
	uint64_t states, meta_states, epochs, exhaustive, failures, loads, dumps, pairs, aborts,
		removes, composed, encrypted, erased, rolls, moves, defrags, moved_zones, ops, anew,
		omitted;
} sum;
static bool verbose;
static uint64_t exhaustive; /* combinations of an epoch */

/* A set of 64-bit hashes, by open addressing. */
struct set {
	uint64_t *slot;
	size_t cap, nr;
};

static bool set_add(struct set *s, uint64_t h)
{
	h |= !h;
	if (2 * s->nr >= s->cap) {
		struct set n = { .cap = s->cap ? 2 * s->cap : 1024 };

		n.slot = calloc(n.cap, sizeof(*n.slot));
		if (!n.slot)
			abort();
		for (size_t i = 0; i < s->cap; i++)
			if (s->slot[i])
				set_add(&n, s->slot[i]);
		free(s->slot);
		*s = n;
	}
	for (size_t i = h % s->cap;; i = (i + 1) % s->cap) {
		if (s->slot[i] == h)
			return false;
		if (!s->slot[i]) {
			s->slot[i] = h;
			s->nr++;
			return true;
		}
	}
}

struct run {
	struct trace *t;
	struct load l;
	uint64_t seed;
	struct set all, meta; /* of this load: every load's content differs */
	bool failed;
};

static void look(struct run *r, uint32_t epoch, const uint32_t *pos)
{
	struct zns_err err = ZNS_ERR_INIT;
	uint32_t nr = r->t->dev.geo.nr_zones;

	if (!set_add(&r->all, zns_hash(pos, nr * sizeof(*pos))))
		return;
	set_add(&r->meta, zns_hash(pos, r->t->nr_meta * sizeof(*pos)));
	if (!check_state(r->t, &r->l, epoch, pos, &err))
		return;
	if (sum.failures++ < SHOW) {
		printf("FAIL seed %llu, epoch %u of %u: %s\n", (unsigned long long)r->seed, epoch,
		       r->t->nr_epochs, err.msg);
		for (uint32_t z = 0; z < nr && verbose; z++)
			printf("  zone %2u: step %u of %u to %u, write pointer %llu\n", z, pos[z],
			       r->t->epoch[epoch].low[z], r->t->epoch[epoch].high[z],
			       (unsigned long long)r->t->h[z].step[pos[z]].wp);
	}
	r->failed = true;
}

/* A mixed-radix counter over low … high. */
static bool next_pos(const struct epoch *e, uint32_t nr, uint32_t *pos)
{
	for (uint32_t z = 0; z < nr; z++) {
		if (pos[z] < e->high[z]) {
			pos[z]++;
			return true;
		}
		pos[z] = e->low[z];
	}
	return false;
}

static void enumerate(struct run *r, uint32_t n, uint64_t *rng)
{
	const struct epoch *e = &r->t->epoch[n];
	uint32_t nr = r->t->dev.geo.nr_zones;
	cleanup_free uint32_t *pos = calloc(nr, sizeof(*pos));
	uint64_t combinations = 1;
	bool whole = sum.loads < WHOLE;

	for (uint32_t z = 0; z < nr && combinations <= exhaustive; z++) {
		combinations *= e->high[z] - e->low[z] + 1;
		whole |= z < r->t->nr_meta && e->high[z] > e->low[z];
	}
	sum.epochs++;
	memcpy(pos, e->low, nr * sizeof(*pos));
	if (combinations <= DRAWN || (whole && combinations <= exhaustive)) {
		sum.exhaustive++;
		do
			look(r, n, pos);
		while (next_pos(e, nr, pos));
		return;
	}
	look(r, n, pos);
	look(r, n, e->high);
	/* Each zone alone lost, each zone alone kept. */
	for (uint32_t z = 0; z < nr; z++) {
		memcpy(pos, e->high, nr * sizeof(*pos));
		pos[z] = e->low[z];
		look(r, n, pos);
		memcpy(pos, e->low, nr * sizeof(*pos));
		pos[z] = e->high[z];
		look(r, n, pos);
	}
	for (uint32_t i = 0; i < DRAWN; i++) {
		for (uint32_t z = 0; z < nr; z++)
			pos[z] = e->low[z] + (uint32_t)load_rnd(rng, e->high[z] - e->low[z] + 1);
		look(r, n, pos);
	}
}

/* Small enough to enumerate; wide; with parking and finishing by an active limit; with long images.
 */
static const struct load_size sizes[] = {
	{ .nr_zones = 6, .nr_groups = 1, .steps = 60, .capacity = KIB(128), .max_len = 40000 },
	{ .nr_zones = 6, .nr_groups = 3, .steps = 60, .capacity = KIB(128), .max_len = 40000 },
	{ .nr_zones = 12, .nr_groups = 4, .steps = 100, .capacity = KIB(128), .max_len = 90000 },
	{ .nr_zones = 15,
	  .nr_groups = 4,
	  .steps = 100,
	  .capacity = KIB(256),
	  .max_active = 6,
	  .max_len = 150000 },
};

static const struct load_size disk = { .nr_zones = 7,
				       .nr_groups = 1,
				       .steps = 120,
				       .capacity = KIB(256),
				       .max_len = 30000,
				       .disk = true };
static bool on_a_disk;

static const struct load_size *size_of(uint64_t seed)
{
	return on_a_disk ? &disk : &sizes[seed % ZNS_ARRAY_SIZE(sizes)];
}

static int run(uint64_t seed, enum trace_omit omit)
{
	struct run r = { .seed = seed };
	struct zns_err err = ZNS_ERR_INIT;
	uint64_t rng = seed * 0xd1342543de82ef95ull | 1;

	r.t = load_run(size_of(seed), seed, omit, &r.l, &err);
	if (!r.t) {
		printf("FAIL seed %llu: the load itself: %s\n", (unsigned long long)seed, err.msg);
		sum.failures++;
		return -1;
	}
	for (uint32_t n = 0; n < r.t->nr_epochs && sum.failures < SHOW; n++)
		enumerate(&r, n, &rng);
	sum.loads++;
	sum.states += r.all.nr;
	sum.meta_states += r.meta.nr;
	sum.dumps += r.l.dumps;
	sum.pairs += r.l.pairs;
	sum.aborts += r.l.aborts;
	sum.removes += r.l.removes;
	sum.composed += r.l.composed;
	sum.encrypted += r.l.encrypted;
	sum.erased += r.l.erased;
	sum.rolls += r.l.rolls;
	sum.moves += r.l.moves;
	sum.defrags += r.l.defrags;
	sum.moved_zones += r.l.moved_zones;
	sum.ops += r.t->ops;
	sum.anew += r.t->anew;
	sum.omitted += r.t->omitted;
	if (r.failed)
		printf("reproduce it with: crash%s --seed %llu --only --verbose\n",
		       on_a_disk ? " --disk" : "", (unsigned long long)seed);
	free(r.all.slot);
	free(r.meta.slot);
	trace_free(r.t);
	load_free(&r.l);
	return r.failed ? -1 : 0;
}

/* At most so many flips in the state that each load left, and at least so many loads: some loads
 * leave no checkpoint behind. */
#define FLIPS_PER_LOAD 500
#define FLIP_LOADS 12

static int flips(uint64_t nr, uint64_t seed)
{
	struct flip_count n = { 0 };
	uint64_t all = 0, bad = 0;
	uint64_t per_load = zns_min(nr / FLIP_LOADS + 1, (uint64_t)FLIPS_PER_LOAD);

	for (uint64_t done = 0; done < nr; done += per_load, seed++) {
		struct zns_err err = ZNS_ERR_INIT;
		uint64_t rng = seed * 0xd1342543de82ef95ull | 1;
		struct load l;
		struct trace *t = load_run(size_of(seed), seed, OMIT_NONE, &l, &err);

		if (!t || flip_run(t, &l, zns_min(nr - done, per_load), &rng, &n, &err)) {
			printf("FAIL seed %llu: %s\n", (unsigned long long)seed, err.msg);
			bad++;
		}
		if (t) {
			trace_free(t);
			load_free(&l);
		}
	}
	printf("%-10s %8s %8s %8s %8s %8s %8s\n", "byte of", "flips", "refused", "noticed",
	       "harmless", "wrong", "lost");
	for (int p = 0; p < FLIP_PLACES; p++) {
		printf("%-10s %8llu %8llu %8llu %8llu %8llu %8llu\n", flip_place_name[p],
		       (unsigned long long)n.flips[p], (unsigned long long)n.refused[p],
		       (unsigned long long)n.noticed[p], (unsigned long long)n.harmless[p],
		       (unsigned long long)n.wrong[p], (unsigned long long)n.lost[p]);
		all += n.flips[p];
		bad += n.wrong[p] + n.lost[p];
	}
	printf("%llu passed, %llu failed, 0 skipped\n",
	       (unsigned long long)(all - zns_min(all, bad)), (unsigned long long)bad);
	return bad || !all ? 1 : 0;
}

static int usage(void)
{
	fprintf(stderr,
		"usage: crash [--disk] [--states N] [--seed N] [--only] [--omit data|log|move|order] [--flips N] [--verbose]\n");
	return 2;
}

int main(int argc, char **argv)
{
	static const struct option opts[] = {
		{ "disk", no_argument, NULL, 'd' },
		{ "states", required_argument, NULL, 'n' },
		{ "seed", required_argument, NULL, 's' },
		{ "only", no_argument, NULL, 'o' },
		{ "omit", required_argument, NULL, 'm' },
		{ "flips", required_argument, NULL, 'f' },
		{ "verbose", no_argument, NULL, 'v' },
		{ NULL, 0, NULL, 0 },
	};
	uint64_t want = 100000, seed = 1, nr_flips = 0;
	enum trace_omit omit = OMIT_NONE;
	bool only = false;
	int c, null;

	while ((c = getopt_long(argc, argv, "", opts, NULL)) != -1) {
		switch (c) {
		case 'd':
			on_a_disk = true;
			break;
		case 'n':
			want = strtoull(optarg, NULL, 0);
			break;
		case 's':
			seed = strtoull(optarg, NULL, 0);
			break;
		case 'o':
			only = true;
			break;
		case 'f':
			nr_flips = strtoull(optarg, NULL, 0);
			break;
		case 'v':
			verbose = true;
			break;
		case 'm':
			omit = !strcmp(optarg, "data")  ? OMIT_DATA :
			       !strcmp(optarg, "log")   ? OMIT_LOG :
			       !strcmp(optarg, "move")  ? OMIT_MOVE :
			       !strcmp(optarg, "order") ? OMIT_ORDER :
							  OMIT_NONE;
			if (!omit)
				return usage();
			break;
		default:
			return usage();
		}
	}
	if (optind < argc)
		return usage();
	exhaustive = zns_min(want / 25, (uint64_t)4096);
	/* The broker's log of a hundred thousand restarts is of no use to anybody. */
	null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	if (!verbose && null >= 0)
		dup2(null, STDERR_FILENO);
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (nr_flips)
		return flips(nr_flips, seed);
	do {
		run(seed++, omit);
	} while (!only && (sum.states < want || sum.meta_states < want / 5) && sum.failures < SHOW);
	printf("%llu loads: %llu dumps (%llu pairs), %llu begun live, %llu encrypted, %llu aborted, %llu removals (%llu with the key), %llu checkpoints moved (%llu to chosen groups) out of %llu zones, "
	       "%llu roll-overs; %llu device operations, %llu of them writes over removed data\n",
	       (unsigned long long)sum.loads, (unsigned long long)sum.dumps,
	       (unsigned long long)sum.pairs, (unsigned long long)sum.composed,
	       (unsigned long long)sum.encrypted, (unsigned long long)sum.aborts,
	       (unsigned long long)sum.removes, (unsigned long long)sum.erased,
	       (unsigned long long)sum.moves, (unsigned long long)sum.defrags,
	       (unsigned long long)sum.moved_zones, (unsigned long long)sum.rolls,
	       (unsigned long long)sum.ops, (unsigned long long)sum.anew);
	if (omit)
		printf(omit == OMIT_ORDER ? "control: %llu zones were reset too early\n" :
					    "control: %llu flushes did nothing\n",
		       (unsigned long long)sum.omitted);
	if (!omit && sum.states >= DEFRAG_STATES && !sum.defrags) {
		printf("FAIL: nothing was moved as by `compact --defrag`: that was not tried\n");
		sum.failures++;
	}
	if (on_a_disk && !sum.anew) {
		printf("FAIL: no small checkpoint was written over removed data: that was not tried\n");
		sum.failures++;
	}
	printf("%llu epochs, %llu of them enumerated whole; %llu distinct states, %llu different in metadata zones; %.1f s of CPU\n",
	       (unsigned long long)sum.epochs, (unsigned long long)sum.exhaustive,
	       (unsigned long long)sum.states, (unsigned long long)sum.meta_states,
	       (double)clock() / CLOCKS_PER_SEC);
	printf("%llu passed, %llu failed, 0 skipped\n",
	       (unsigned long long)(sum.states - zns_min(sum.states, sum.failures)),
	       (unsigned long long)sum.failures);
	return sum.failures ? 1 : 0;
}
