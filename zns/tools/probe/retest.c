/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Measures how much of the map is right. All votes for it may be wrong in the same way. So random
 * zones are tested again, later, with one random zone of each group: a zone must share a die with
 * the one of its own group and with no other. From the share of tests that agree follows a lower
 * bound for the share of zones that are right.
 */
#include <string.h>

#include "probe_priv.h"

#define TESTS 400u /* number of tests if none is wrong: then at least 99.25 % are right */
#define TESTS_MAX 1600u /* most tests if some are wrong */
#define SAMPLE 100u /* about this many zones are written for these tests */
#define ROUNDS_MIN 4u
#define ROUNDS_MAX 16u

struct retest {
	uint32_t *usable, nr_usable;
	uint32_t *groups; /* all groups in random order */
	uint32_t *reps, nr_reps; /* one zone of each group, as far as the limits allow */
	uint32_t *rep_of; /* by group: its zone in @reps; ZNS_PROBE_NONE: none */
	uint32_t *wave, nr_wave; /* the zones that are tested in this round */
	uint32_t *list, *late; /* buffers for one zone of each group */
	uint32_t tests, wrong, untold;
};

/* Returns a random zone of the group that can be read, preferably not @not. */
static uint32_t member(struct probe *p, const struct retest *t, uint32_t group, uint32_t not )
{
	uint32_t from = probe_random(p, t->nr_usable), last = ZNS_PROBE_NONE;

	for (uint32_t k = 0; k < t->nr_usable; k++) {
		uint32_t z = t->usable[(from + k) % t->nr_usable];

		if (p->map->zone_group[z] != group || p->kind[z] == KIND_NO)
			continue;
		if (z != not )
			return z;
		last = z;
	}
	return last;
}

/* How many of these zones can be made readable within the budget? */
static uint32_t affordable(const struct probe *p, const uint32_t *zones, uint32_t nr)
{
	uint64_t left = (p->budget - zns_min(p->budget, p->map->written)) / p->unit, n = 0;

	for (uint32_t i = 0; i < nr; i++) {
		n += p->kind[zones[i]] == KIND_EMPTY && !p->have[zones[i]];
		if (n > left)
			return i;
	}
	return nr;
}

/* Chooses the zones of a round and makes them readable. */
static int choose(struct probe *p, struct retest *t, struct zns_err *err)
{
	struct zns_probe_map *m = p->map;
	uint32_t reps = zns_max(zns_min(m->nr_groups, p->room / 2), 1u),
		 wave = zns_min(p->room - reps, SAMPLE / ROUNDS_MIN);
	int ret;

	/* as long as there is room, zones stay readable for later rounds */
	if (p->room < zns_min(p->nr, p->nr_ours + reps + wave)) {
		memcpy(t->list, p->ours, p->nr_ours * sizeof(*t->list));
		ret = probe_drop(p, t->list, p->nr_ours, err);
		if (ret)
			return ret;
	}
	probe_shuffle(p, t->groups, m->nr_groups);
	memset(t->rep_of, 0xff, m->nr_groups * sizeof(*t->rep_of));
	t->nr_reps = t->nr_wave = 0;
	for (uint32_t i = 0; i < m->nr_groups && t->nr_reps < reps; i++) {
		uint32_t z = member(p, t, t->groups[i], ZNS_PROBE_NONE);

		if (z != ZNS_PROBE_NONE)
			t->reps[t->nr_reps++] = z;
	}
	t->nr_reps = affordable(p, t->reps, t->nr_reps);
	for (uint32_t i = 0; i < t->nr_reps; i++)
		t->rep_of[m->zone_group[t->reps[i]]] = t->reps[i];
	ret = probe_need(p, t->reps, t->nr_reps, err);
	for (uint32_t i = 0; !ret && t->nr_reps && i < wave; i++) {
		/*
		 * if not all groups have a representative, take half of the zones from groups that
		 * have one
		 */
		uint32_t r = t->reps[probe_random(p, t->nr_reps)];

		uint32_t z = i % 2 && t->nr_reps < m->nr_groups ?
				     member(p, t, m->zone_group[r], r) :
				     t->usable[probe_random(p, t->nr_usable)],
			 k;

		for (k = 0; k < t->nr_wave && t->wave[k] != z; k++)
			;
		if (k == t->nr_wave)
			t->wave[t->nr_wave++] = z;
	}
	t->nr_wave = affordable(p, t->wave, t->nr_wave);
	return ret ? ret : probe_need(p, t->wave, t->nr_wave, err);
}

/*
 * Is @zone on the die of @own (or ZNS_PROBE_NONE) and on no die of @others? 1 or 0; -1: undecided.
 * @late: room for @nr entries.
 */
static int is_placed(struct probe *p, uint32_t zone, uint32_t own, const uint32_t *others,
		     uint32_t nr, uint32_t *late, int *right, struct zns_err *err)
{
	uint32_t nr_late;
	int ret = 0, same;
	float conf;
	bool told;

	*right = 1;
	if (own != ZNS_PROBE_NONE) {
		ret = probe_same_die(p, zone, own, false, &same, &conf, err);
		*right = same;
	}
	if (ret || *right != 1 || !nr)
		return ret;
	ret = probe_suspects(p, zone, others, nr, late, &nr_late, &told, err);
	if (!ret && !told)
		*right = -1;
	for (uint32_t i = 0; !ret && *right == 1 && i < nr_late; i++) {
		ret = probe_same_die(p, zone, others[late[i]], false, &same, &conf, err);
		*right = same < 0 ? -1 : !same;
	}
	return ret;
}

static int one_test(struct probe *p, struct retest *t, uint32_t zone, int *right,
		    struct zns_err *err)
{
	uint32_t group = p->map->zone_group[zone], own = t->rep_of[group], n = 0;

	if (own == zone || (own != ZNS_PROBE_NONE && p->kind[own] == KIND_NO))
		own = ZNS_PROBE_NONE;
	for (uint32_t i = 0; i < t->nr_reps; i++)
		if (t->reps[i] != zone && p->map->zone_group[t->reps[i]] != group &&
		    p->kind[t->reps[i]] != KIND_NO)
			t->list[n++] = t->reps[i];
	return is_placed(p, zone, own, t->list, n, t->late, right, err);
}

static int one_round(struct probe *p, struct retest *t, uint32_t tests, uint32_t total,
		     struct zns_err *err)
{
	int ret = choose(p, t, err);

	for (uint32_t i = 0; !ret && t->nr_wave && i < tests; i++) {
		uint32_t zone = t->wave[i % t->nr_wave];
		int right;

		if (p->kind[zone] == KIND_NO)
			continue;
		ret = one_test(p, t, zone, &right, err);
		if (ret)
			return ret;
		t->tests += right >= 0;
		t->wrong += !right;
		t->untold += right < 0;
		probe_tick(p, zns_min(t->tests, total), total);
	}
	return ret;
}

/* Returns the number of rounds. *each: number of units that each round may write. */
static uint32_t plan(const struct probe *p, uint32_t *each)
{
	uint32_t reps = zns_max(zns_min(p->map->nr_groups, p->room / 2), 1u),
		 wave = zns_min(p->room - reps, SAMPLE / ROUNDS_MIN);

	*each = reps + wave;
	return zns_min(zns_max(zns_min(p->nr, SAMPLE) / zns_max(wave, 1u), ROUNDS_MIN), ROUNDS_MAX);
}

static int all(struct probe *p, struct retest *t, struct zns_err *err)
{
	uint64_t left = (p->budget - zns_min(p->budget, p->map->written)) / p->unit;
	uint32_t each, rounds = plan(p, &each), want = TESTS;
	int ret = 0;

	/* if there is enough room, each zone is written only once */
	if (p->room < p->nr)
		rounds = zns_max((uint32_t)zns_min(rounds, left / each), 1u);
	for (uint32_t k = 0; !ret && t->tests < want && k < 4 * rounds; k++) {
		ret = one_round(p, t, (TESTS + rounds - 1) / rounds, want, err);
		want = zns_min(TESTS * (1 + t->wrong), TESTS_MAX);
		if (!t->nr_wave)
			break; /* the budget is used up */
	}
	memcpy(t->list, p->ours, p->nr_ours * sizeof(*t->list));
	return ret ? ret : probe_drop(p, t->list, p->nr_ours, err);
}

int probe_retest(struct probe *p, struct zns_err *err)
{
	struct zns_probe_map *m = p->map;
	uint32_t n = p->nr + 1;
	cleanup_free uint32_t *v = calloc(7 * (size_t)n, sizeof(*v));
	struct retest t = { .usable = v,
			    .groups = v + n,
			    .reps = v + 2 * (size_t)n,
			    .rep_of = v + 3 * (size_t)n,
			    .wave = v + 4 * (size_t)n,
			    .list = v + 5 * (size_t)n,
			    .late = v + 6 * (size_t)n };
	int ret;

	if (!v)
		return zns_fail(err, -ENOMEM, "no memory for %u zones", p->nr);
	for (uint32_t z = 0; z < p->nr; z++)
		if (p->kind[z] != KIND_NO && m->zone_group[z] != ZNS_PROBE_NONE)
			t.usable[t.nr_usable++] = z;
	for (uint32_t g = 0; g < m->nr_groups; g++)
		t.groups[g] = g;
	/* a continued run has not chosen its burst yet */
	ret = p->burst ? 0 : probe_calibrate(p, err);
	if (!ret && t.nr_usable)
		ret = all(p, &t, err);
	if (ret)
		return ret;
	m->retests = t.tests;
	m->retests_wrong = t.wrong;
	m->right = t.tests ? probe_lower_bound(t.tests, t.wrong) : 0;
	p->retest_short = t.tests < TESTS && !t.nr_wave;
	p->retests_untold = t.untold;
	return 0;
}
