/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A zone may be on several dies, and share some of them with one zone and others with another zone.
 * Then both of these wait for it, but not for each other. Groups cannot describe that: zones that
 * share a die with the same zone are in one group, so they would have to share one too. Such a
 * drive is refused for this reason.
 */
#include "probe_priv.h"

#define ZONES 24u /* number of zones that are tried, first one of each group */
#define CENTRES 8u /* zones that are paired with all others; twice as many when a case was found */
/* number of cases needed, with different centres: a single one may be a disturbance */
#define CASES 2u
#define PARTNERS 4u /* zones that share a die with the centre and that later ones are paired with */
#define SETS 600u /* number of pairs of zones by which the default budget is increased */
#define TRIES 2u
#define ROUNDS 4u /* tries that confirm a case; one may fail */

enum relation { UNTRIED, UNTOLD, SHARE, APART };

struct trial {
	uint32_t zone[ZONES], nr;
	double alone[ZONES];
	enum relation known[ZONES][ZONES];
};

static bool listed(const struct trial *t, uint32_t zone)
{
	for (uint32_t i = 0; i < t->nr; i++)
		if (t->zone[i] == zone)
			return true;
	return false;
}

/* Picks one zone of each group first, then random others. */
static void pick(struct probe *p, struct trial *t)
{
	uint32_t any[ZONES], n = probe_pick_empty(p, any, ZONES), from = probe_random(p, p->nr);

	for (uint32_t g = 0; g < p->map->nr_groups && t->nr < ZONES; g++) {
		t->zone[t->nr] = probe_zone_of(p, g, from);
		t->nr += t->zone[t->nr] != ZNS_PROBE_NONE;
	}
	for (uint32_t i = 0; i < n && t->nr < ZONES; i++)
		if (!listed(t, any[i]))
			t->zone[t->nr++] = any[i];
}

static int alone(struct probe *p, struct trial *t, struct zns_err *err)
{
	int ret = 0;

	for (uint32_t i = 0; !ret && i < t->nr; i++)
		ret = probe_best_alone(p, t->zone[i], p->set_units, TRIES, &t->alone[i], err);
	return ret;
}

/* Do two of the zones share a die? */
static int relate(struct probe *p, struct trial *t, uint32_t a, uint32_t b, enum relation *out,
		  struct zns_err *err)
{
	const uint32_t pair[2] = { t->zone[a], t->zone[b] };
	double best;
	int ret;

	*out = t->known[a][b];
	if (*out != UNTRIED)
		return 0;
	ret = probe_best_set(p, pair, NULL, 2, zns_max(t->alone[a], t->alone[b]), PROBE_APART,
			     TRIES, &best, err);
	if (ret)
		return ret;
	*out = best <= PROBE_APART                           ? APART :
	       best >= PROBE_SAME && best <= PROBE_SAME_MOST ? SHARE :
							       UNTOLD;
	t->known[a][b] = t->known[b][a] = *out;
	return 0;
}

/*
 * Looks for a case: two zones that share a die with @centre but not with each other, which are put
 * into @with. If there is none, with[0] is ZONES.
 */
static int look(struct probe *p, struct trial *t, uint32_t centre, uint32_t with[2],
		struct zns_err *err)
{
	uint32_t partner[PARTNERS], nr = 0;

	with[0] = ZONES;
	for (uint32_t i = 0; i < t->nr; i++) {
		enum relation r;
		int ret = i == centre ? 0 : relate(p, t, centre, i, &r, err);

		if (ret)
			return ret;
		if (i == centre || r != SHARE)
			continue;
		for (uint32_t k = 0; k < nr; k++) {
			ret = relate(p, t, partner[k], i, &r, err);
			if (ret)
				return ret;
			if (r != APART)
				continue;
			with[0] = partner[k];
			with[1] = i;
			return 0;
		}
		if (nr < PARTNERS)
			partner[nr++] = i;
	}
	return 0;
}

/*
 * Tries a case again, and measures the times alone again in each round: a drive that becomes hot
 * changes its rate, but not between the same two measurements each time.
 */
static int confirm(struct probe *p, const struct trial *t, uint32_t centre, const uint32_t with[2],
		   bool *yes, struct zns_err *err)
{
	uint32_t right = 0;

	for (uint32_t k = 0; k < ROUNDS; k++) {
		struct trial c = { .zone = { t->zone[centre], t->zone[with[0]], t->zone[with[1]] },
				   .nr = 3 };
		enum relation r[3] = { UNTRIED };
		int ret = alone(p, &c, err);

		for (uint32_t i = 0; !ret && i < 3; i++)
			ret = relate(p, &c, i == 2, i ? 2 : 1, &r[i], err);
		if (ret)
			return ret;
		right += r[0] == SHARE && r[1] == SHARE && r[2] == APART;
	}
	*yes = right + 1 >= ROUNDS;
	return 0;
}

static int overlap(struct probe *p, struct zns_err *err)
{
	struct trial t = { .nr = 0 };
	uint32_t cases = 0, with[2] = { ZONES };
	int ret;

	if (!p->par->budget)
		p->budget += (uint64_t)SETS * 2 * p->set_units * p->unit;
	pick(p, &t);
	ret = alone(p, &t, err);
	for (uint32_t c = 0; !ret && c < t.nr && c < CENTRES * (1 + !!cases); c++) {
		bool yes = false;

		ret = look(p, &t, c, with, err);
		if (!ret && with[0] < ZONES)
			ret = confirm(p, &t, c, with, &yes, err);
		cases += yes;
		if (cases == CASES)
			return zns_fail(
				err, -EAGAIN,
				"cannot be mapped: zones lie on several dies each (zone %u waits for zones %u and %u when it is written, and these two do not wait for each other), and no groups of zones can describe that; nothing is stored: `znsctl format` without a map makes the drive one group",
				t.zone[c], t.zone[with[0]], t.zone[with[1]]);
	}
	return ret;
}

int probe_overlap(struct probe *p, struct zns_err *err)
{
	uint32_t units = p->set_units;
	int ret = p->open_room < 2 ? 0 : probe_drop(p, p->ours, p->nr_ours, err);

	if (ret || p->open_room < 2 || !units)
		return ret;
	/* zones that share one of three dies wait for each other in a long set only */
	p->set_units = probe_long_units(p);
	ret = overlap(p, err);
	p->set_units = units;
	return ret;
}
