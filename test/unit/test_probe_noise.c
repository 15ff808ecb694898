/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The probe while disturbances hit everything for a while: bursts in which the host does not run,
 * garbage collection of all dies, late erases, in storms or all the time, up to where nothing can
 * be measured. Every map is right or refused. All of it in model time, so the same run ends the
 * same on any machine. "table [SEEDS [NOISE]]" makes all runs and prints a table, SEEDS is how many
 * or, as in 4-7, which; without arguments a few of them are tests.
 */
#include "emu_common.h"
#include "zns/probe.h"

#define AIM 0.99 /* of precision and recall, of pairs on a die and of pairs on a channel */

enum outcome { RIGHT, REFUSED, WRONG, OUTCOMES };

static const char *const outcome_name[] = { "right", "refused", "WRONG" };

static const struct drive {
	const char *name;
	uint32_t zones, channels, ways, max_active, channel_mibps;
	enum zns_emu_map map;
} drives[] = {
	{ "16 zones, 2x2", 16, 2, 2, 0, 600, ZNS_EMU_MAP_PERMUTED },
	{ "32 zones, 4x1, no pairs on a channel", 32, 4, 1, 0, 600, ZNS_EMU_MAP_PERMUTED },
	{ "48 zones, 4x2", 48, 4, 2, 0, 600, ZNS_EMU_MAP_PERMUTED },
	{ "64 zones, 4x4", 64, 4, 4, 0, 800, ZNS_EMU_MAP_PERMUTED },
	{ "64 zones, 8x2, 14 active", 64, 8, 2, 14, 800, ZNS_EMU_MAP_PERMUTED },
	{ "64 zones, 2x3, one after another", 64, 2, 3, 0, 800, ZNS_EMU_MAP_INTERLEAVED },
	{ "40 zones, 1x4, one channel", 40, 1, 4, 0, 500, ZNS_EMU_MAP_PERMUTED },
	{ "32 zones, one domain", 32, 4, 2, 0, 800, ZNS_EMU_MAP_SHARED },
};

#define JITTER .jitter_pct = 5, .stall_every = 1000, .stall_us = 3000

static const struct strength {
	const char *name;
	struct zns_emu_noise noise;
} strengths[] = {
	{ "host stalls, 2 %", { JITTER, .host_every_us = 50000, .host_us = 1000 } },
	{ "host stalls, 15 %", { JITTER, .host_every_us = 10000, .host_us = 1500 } },
	{ "host stalls, 50 %, short", { JITTER, .host_every_us = 600, .host_us = 300 } },
	{ "host stalls, 60 %, long", { JITTER, .host_every_us = 50000, .host_us = 30000 } },
	{ "collections, 10 %", { JITTER, .gc_every_us = 20000, .gc_us = 2000 } },
	{ "collections, 50 %, short", { JITTER, .gc_every_us = 1000, .gc_us = 500 } },
	{ "late erases", { JITTER, .erase_late_us = 200000, .erase_us = 5000 } },
	{ "storms of host stalls",
	  { JITTER, .host_every_us = 1000, .host_us = 700, .calm_ms = 60, .storm_ms = 80 } },
	{ "storms of everything",
	  { JITTER, .host_every_us = 3000, .host_us = 800, .gc_every_us = 1500, .gc_us = 700,
	    .erase_late_us = 100000, .erase_us = 5000, .calm_ms = 300, .storm_ms = 200 } },
	{ "everything, 40 %",
	  { .jitter_pct = 8,
	    .stall_every = 300,
	    .stall_us = 3000,
	    .host_every_us = 5000,
	    .host_us = 1000,
	    .gc_every_us = 10000,
	    .gc_us = 2000,
	    .erase_late_us = 100000,
	    .erase_us = 4000 } },
	{ "host stalls, 80 %", { JITTER, .host_every_us = 1000, .host_us = 800 } },
	{ "hopeless",
	  { .jitter_pct = 60,
	    .stall_every = 20,
	    .stall_us = 3000,
	    .host_every_us = 2000,
	    .host_us = 1500,
	    .gc_every_us = 3000,
	    .gc_us = 2000 } },
	{ "storms as long as a phase",
	  { JITTER, .host_every_us = 2000, .host_us = 600, .gc_every_us = 1000, .gc_us = 500,
	    .calm_ms = 2000, .storm_ms = 1500 } },
	{ "wide times, short stalls", { .jitter_pct = 25, .stall_every = 15, .stall_us = 150 } },
};

struct tally {
	uint64_t both, said, is;
};

static bool enough(const struct tally *t)
{
	return t->both >= AIM * t->said && t->both >= AIM * t->is;
}

/* By pairs of zones: on one die, and on one channel but two dies. */
static bool judge(const struct zns_emu_params *p, const uint32_t *die,
		  const struct zns_probe_map *m)
{
	struct tally on_die = { 0 }, on_channel = { 0 };

	if (p->map == ZNS_EMU_MAP_SHARED)
		return m->one_domain && m->nr_groups == 1;
	for (uint32_t a = 0; a < m->nr_zones; a++) {
		for (uint32_t b = 0; b < a; b++) {
			uint32_t ga = m->zone_group[a], gb = m->zone_group[b];
			bool known = ga != ZNS_PROBE_NONE && gb != ZNS_PROBE_NONE, said,
			     is = die[a] == die[b];

			said = known && ga == gb;
			on_die.both += said && is;
			on_die.said += said;
			on_die.is += is;
			said = known && ga != gb && m->group_channel[ga] != ZNS_PROBE_NONE &&
			       m->group_channel[ga] == m->group_channel[gb];
			is = !is && die[a] % p->channels == die[b] % p->channels;
			on_channel.both += said && is;
			on_channel.said += said;
			on_channel.is += is;
		}
	}
	/* channels that are not known are no wrong ones */
	return enough(&on_die) && (!m->nr_channels || enough(&on_channel));
}

struct result {
	enum outcome outcome;
	double confidence, device_s;
	uint64_t written;
	char why[300];
};

static struct result probe(const struct drive *v, const struct strength *s, uint64_t seed)
{
	struct zns_emu_params p;
	struct zns_probe_params par = { .seed = seed };
	struct zns_probe_map map = { 0 };
	struct zns_emu_noise n = s->noise;
	struct zns_err why = ZNS_ERR_INIT;
	cleanup_free uint32_t *die = calloc(v->zones, sizeof(*die));
	struct zns_dev *d;
	struct result r = { 0 };
	int rc;

	assert_non_null(die);
	zns_emu_default_params(&p);
	p.nr_zones = v->zones;
	p.zone_size = p.zone_capacity = MIB(8);
	p.channels = v->channels;
	p.ways = v->ways;
	p.channel_mibps = v->channel_mibps;
	p.max_active = p.max_open = v->max_active;
	p.map = v->map;
	p.map_seed = seed;
	p.timing = true;
	p.prealloc = ZNS_EMU_SPARSE;
	d = make_dev(&p);
	n.seed = seed * 1000 + (s - strengths);
	assert_ok(zns_emu_set_noise(d, &n, &err));
	assert_ok(zns_emu_set_clock(d, ZNS_EMU_CLOCK_THREAD, &err));
	assert_ok(zns_emu_zone_map(d, die, &err));
	rc = zns_probe_run(d, &par, &map, &why);
	r.outcome = rc ? REFUSED : judge(&p, die, &map) ? RIGHT : WRONG;
	r.confidence = map.confidence;
	r.device_s = map.device_ns / 1e9;
	r.written = map.written;
	if (rc)
		snprintf(r.why, sizeof(r.why), "%s", why.msg);
	else
		snprintf(r.why, sizeof(r.why), "%u groups, %u channels%s, confidence %.4f",
			 map.nr_groups, map.nr_channels, map.one_domain ? ", one domain" : "",
			 map.confidence);
	for (uint32_t z = 0; z < v->zones; z++)
		assert_zone(d, z, ZNS_ZONE_EMPTY, 0);
	zns_probe_fini(&map);
	zns_dev_close(d);
	unlink(dev_path);
	return r;
}

static int table(uint32_t first, uint32_t last, const char *only)
{
	uint32_t sum[OUTCOMES] = { 0 }, runs = 0,
		 each = ZNS_ARRAY_SIZE(drives) * (last - first + 1);

	printf("seeds %u to %u\n\n| noise | runs | right | refused | wrong and stored | model s, mean |\n| --- | --- | --- | --- | --- | --- |\n",
	       first, last);
	for (uint32_t k = 0; k < ZNS_ARRAY_SIZE(strengths); k++) {
		uint32_t n[OUTCOMES] = { 0 };
		double took = 0;

		if (only && !strstr(strengths[k].name, only))
			continue;
		for (uint32_t i = 0; i < ZNS_ARRAY_SIZE(drives); i++) {
			for (uint32_t seed = first; seed <= last; seed++) {
				struct result r = probe(&drives[i], &strengths[k], seed);

				n[r.outcome]++;
				sum[r.outcome]++;
				runs++;
				took += r.device_s;
				fprintf(stderr, "%s; %s; seed %u: %s: %.1f s, %.1f MiB: %s\n",
					strengths[k].name, drives[i].name, seed,
					outcome_name[r.outcome], r.device_s, r.written / 1048576.0,
					r.why);
			}
		}
		printf("| %s | %u | %u | %u | %u | %.1f |\n", strengths[k].name, each, n[RIGHT],
		       n[REFUSED], n[WRONG], took / each);
		fflush(stdout);
	}
	printf("| all | %u | %u | %u | %u | |\n", runs, sum[RIGHT], sum[REFUSED], sum[WRONG]);
	return sum[WRONG] ? 1 : 0;
}

/* N, the first N of them, or FIRST-LAST. */
static int table_of(const char *seeds, const char *only)
{
	char *end;
	uint32_t first = 1, last = strtoul(seeds, &end, 10);

	if (*end == '-') {
		first = last;
		last = strtoul(end + 1, &end, 10);
	}
	if (*end || !first || last < first) {
		fprintf(stderr, "seeds are a number of them, or FIRST-LAST, not \"%s\"\n", seeds);
		return 2;
	}
	return table(first, last, only);
}

/* Each strength on one drive, another for each. */
static void right_or_refused(void **state)
{
	uint32_t right = 0;

	for (uint32_t k = 0; k < ZNS_ARRAY_SIZE(strengths); k++) {
		const struct drive *v = &drives[k % ZNS_ARRAY_SIZE(drives)];
		struct result r = probe(v, &strengths[k], 7 + k);

		print_message("%s; %s: %s: %s\n", strengths[k].name, v->name,
			      outcome_name[r.outcome], r.why);
		assert_int_not_equal(r.outcome, WRONG);
		right += r.outcome == RIGHT;
		if (!strcmp(strengths[k].name, "hopeless"))
			assert_int_equal(r.outcome, REFUSED);
	}
	assert_true(right >= 5);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { T(right_or_refused) };

	setenv("ZNS_EMU_DATA", "none", 1); /* gigabytes that nobody reads */
	if (argc > 1 && !strcmp(argv[1], "table")) {
		int rc = emu_begin(NULL) ?
				 2 :
				 table_of(argc > 2 ? argv[2] : "3", argc > 3 ? argv[3] : NULL);

		return emu_end(NULL) ? 2 : rc;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
