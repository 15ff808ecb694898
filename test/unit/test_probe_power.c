/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The power of the test that a map must pass: wrong maps of drives in memory, handed to it. Each
 * time is noisy by 4 %. Without arguments it is a test; "test_probe_power N [SEED]" tries N maps of
 * each kind on each drive and prints how many were found.
 */
#include <math.h>

#include "probe_asserts.h"

enum spoil { NOTHING, ONE_ZONE, PAIRS_1, PAIRS_2, PAIRS_5, PAIRS_20, MERGED, SPLIT, SPOILS };

static const char *const spoil_name[] = {
	"nothing",      "one zone moved", "1 % of pairs",      "2 % of pairs",
	"5 % of pairs", "20 % of pairs",  "two groups as one", "one group as two",
};

static const struct {
	uint32_t zones, dies, active;
} drives[] = { { 48, 8, 0 }, { 120, 12, 14 }, { 400, 16, 0 } };

static uint32_t below(uint64_t *s, uint32_t n)
{
	*s = *s * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(*s >> 33) % n;
}

/* Each zone that is moved is another one. */
static void move(struct zns_probe_map *m, uint32_t n, uint64_t *s)
{
	bool gone[DRIVE_ZONES] = { 0 };

	while (n) {
		uint32_t z = below(s, m->nr_zones);

		if (gone[z])
			continue;
		gone[z] = true;
		n--;
		m->zone_group[z] = (m->zone_group[z] + 1 + below(s, m->nr_groups - 1)) %
				   m->nr_groups;
	}
}

static void spoil(struct zns_probe_map *m, enum spoil how, uint64_t *s)
{
	static const double wrong[SPOILS] = {
		[PAIRS_1] = 0.01, [PAIRS_2] = 0.02, [PAIRS_5] = 0.05, [PAIRS_20] = 0.2
	};
	uint32_t last = m->nr_groups - 1, of[DRIVE_DIES] = { 0 }, parts = 0;

	for (uint32_t z = 0; z < m->nr_zones; z++)
		of[m->zone_group[z]]++;
	while (of[parts] < 2) /* one zone has no parts */
		parts++;

	move(m, how == ONE_ZONE ? 1 : (uint32_t)ceil(m->nr_zones * wrong[how] / 2), s);
	for (uint32_t z = 0, turn = 0; z < m->nr_zones; z++) {
		if (how == MERGED && m->zone_group[z] == last)
			m->zone_group[z] = 0;
		else if (how == SPLIT && m->zone_group[z] == parts)
			m->zone_group[z] = turn++ % 2 ? last + 1 : parts;
	}
	m->nr_groups += how == SPLIT ? 1 : how == MERGED ? -1 : 0;
}

/* Was something wrong with the map? */
static bool found(uint32_t drive, enum spoil how, uint64_t seed)
{
	struct drive *v = drive_new(drives[drive].zones, drives[drive].dies, 4,
				    drives[drive].active, seed);
	struct zns_probe_params par = { .seed = seed, .unit = KIB(64) };
	struct zns_probe_drift drift;
	uint64_t s = seed * 100 + how;

	v->noise_pct = 4;
	memset(&map, 0, sizeof(map));
	assert_ok(zns_probe_alloc(&map, drives[drive].zones));
	map.nr_groups = drives[drive].dies;
	map.zone_write_mibps = 95;
	map.zone_read_mibps = 400;
	memcpy(map.zone_group, v->write_die, map.nr_zones * sizeof(*map.zone_group));
	spoil(&map, how, &s);
	assert_ok(zns_probe_verify(&v->dev, &par, &map, 0, &drift, &err));
	/* where much is wrong the sample ends early */
	if (how == NOTHING)
		assert_true(map.miss <= 0.001);
	zns_probe_fini(&map);
	zns_dev_close(&v->dev);
	return drift.sets_wrong > 0;
}

static uint32_t count(uint32_t drive, enum spoil how, uint64_t n, uint64_t first)
{
	uint32_t got = 0;

	for (uint64_t seed = first; seed < first + n; seed++)
		got += found(drive, how, seed);
	return got;
}

static void power(void **state)
{
	for (int how = 0; how < SPOILS; how++)
		for (uint32_t i = 0; i < 2; i++)
			assert_int_equal(count(i, how, 6, 1), how == NOTHING ? 0 : 6);
}

static int table(uint64_t n, uint64_t first)
{
	for (uint32_t i = 0; i < ZNS_ARRAY_SIZE(drives); i++)
		for (int how = 0; how < SPOILS; how++) {
			printf("%u zones, %u dies, %u active, %s: %u of %llu found\n",
			       drives[i].zones, drives[i].dies, drives[i].active, spoil_name[how],
			       count(i, how, n, first), (unsigned long long)n);
			fflush(stdout);
		}
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { T(power) };

	if (argc > 1)
		return table(strtoull(argv[1], NULL, 0), argc > 2 ? strtoull(argv[2], NULL, 0) : 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
