/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Finds the die of each zone by reading. A pass keeps the pivots of some groups readable, and
 * compares all zones without a group with them, in waves as large as the limits allow. A zone that
 * shares a die with none of them becomes the pivot of a new group. If there is no room for more
 * pivots, the zone is left to the next pass, which does not compare it with the groups of this pass
 * again.
 */
#include <string.h>

#include "probe_priv.h"

#define WAVE_MAX 512u /* most zones of a wave */
#define PIVOTS_MAX 4096u
/* after this many rounds in which no zone seems to share its die, a zone begins a new group */
#define ROUNDS 3
#define UNSURE_MAX 4u /* passes in which a zone's die may stay undecided */
#define ANYWHERE 48u /* at the start, this many zones are taken at random */
#define CALIBRATE 12u /* number of zones by which the size of the burst is chosen */

enum verdict { FOUND, NO_MATCH, UNSURE };

struct pass {
	/* groups of this pass, whose pivots are readable: first <= group < end */
	uint32_t first, end;
	uint32_t cap;
	uint32_t control; /* a readable pivot of an earlier group; ZNS_PROBE_NONE: none */
	/* by group: the last zone that was shown to be on another die, plus 1 */
	uint32_t *refuted;
	uint32_t *list, *pivots; /* groups that are being tried, and their pivots */
};

/* Guesses the group of a zone: in a regular map, that of the zone one period earlier. */
static uint32_t guess(const struct probe *p, uint32_t zone)
{
	bool worth = p->hint_tried < 16 || p->hint_hit * 2 > p->hint_tried || zone % 16 == 0;

	if (!worth || !p->hint_distance || p->hint_distance > zone)
		return ZNS_PROBE_NONE;
	return p->map->zone_group[zone - p->hint_distance];
}

static void learn(struct probe *p, uint32_t zone, uint32_t group, uint32_t guessed)
{
	uint32_t last = p->last_of_group[group];

	if (guessed != ZNS_PROBE_NONE) {
		p->hint_tried++;
		p->hint_hit += guessed == group;
		if (p->hint_tried >= 256) {
			p->hint_tried /= 2;
			p->hint_hit /= 2;
		}
	}
	if (last && last - 1 < zone)
		p->hint_distance = zone - (last - 1);
	p->last_of_group[group] = zone + 1;
}

/*
 * Does the zone share a die with the group's pivot? *found is the result. If it stays undecided,
 * *unsure is set.
 */
static int try_group(struct probe *p, struct pass *ps, uint32_t zone, uint32_t group, bool quick,
		     bool *found, bool *unsure, float *conf, struct zns_err *err)
{
	int same, ret = probe_same_die(p, zone, p->map->pivot[group], quick, &same, conf, err);

	*found = !ret && same == 1;
	*unsure |= !ret && same < 0;
	if (!ret && !same)
		ps->refuted[group] = zone + 1;
	return ret;
}

/* Finds the group of a zone among those of this pass, from @first on. */
static int classify(struct probe *p, struct pass *ps, uint32_t zone, uint32_t first,
		    enum verdict *v, uint32_t *group, float *conf, struct zns_err *err)
{
	uint32_t guessed = guess(p, zone), late[PROBE_SET_MAX], nr_late;
	bool found = false, unsure = false, told = true;
	int ret = 0;

	*group = guessed;
	if (guessed != ZNS_PROBE_NONE && guessed >= first && guessed < ps->end)
		ret = try_group(p, ps, zone, guessed, true, &found, &unsure, conf, err);
	else
		guessed = ZNS_PROBE_NONE;
	for (int clean = 0; !ret && !found && !unsure && clean < ROUNDS; clean++) {
		uint32_t n = 0;

		for (uint32_t g = first; g < ps->end; g++) {
			if (ps->refuted[g] == zone + 1 && !clean)
				continue;
			ps->pivots[n] = p->map->pivot[g];
			ps->list[n++] = g;
		}
		/* ask in portions, so that the search ends soon after the group is found */
		for (uint32_t at = 0; !ret && !found && at < n; at += PROBE_SET_MAX) {
			uint32_t k = zns_min(n - at, PROBE_SET_MAX);

			ret = probe_suspects(p, zone, ps->pivots + at, k, late, &nr_late, &told,
					     err);
			unsure |= !told;
			for (uint32_t i = 0; !ret && !found && i < nr_late; i++) {
				*group = ps->list[at + late[i]];
				ret = try_group(p, ps, zone, *group, false, &found, &unsure, conf,
						err);
			}
		}
	}
	*v = found ? FOUND : unsure ? UNSURE : NO_MATCH;
	if (found)
		learn(p, zone, *group, guessed);
	return ret;
}

static void assign(struct probe *p, uint32_t zone, uint32_t group, float conf)
{
	p->map->zone_group[zone] = group;
	p->map->zone_confidence[zone] = conf;
}

static void new_group(struct probe *p, struct pass *ps, uint32_t zone)
{
	uint32_t g = p->map->nr_groups++;

	p->map->pivot[g] = zone;
	p->map->group_channel[g] = ZNS_PROBE_NONE;
	assign(p, zone, g, 1);
	p->last_of_group[g] = 0;
	learn(p, zone, g, ZNS_PROBE_NONE);
	ps->end++;
}

static int one_zone(struct probe *p, struct pass *ps, uint32_t zone, struct zns_err *err)
{
	uint32_t first = zns_max(ps->first, p->map->tested[zone]), group;
	enum verdict v;
	float conf = 0;
	int ret = classify(p, ps, zone, first, &v, &group, &conf, err);

	/* if another user's data cannot be read, the group of the zone stays unknown */
	if (ret && ret != -EINTR && p->kind[zone] == KIND_DATA) {
		p->given_up[zone] = true;
		return 0;
	}
	if (ret)
		return ret;
	/*
	 * As long as there is only one group, no zone is known to be on another die, so a
	 * disturbance of all zones looks like a shared die. Such a zone is tested again when there
	 * are two groups. If there is only one group at the end, reads have not shown anything.
	 */
	if (v == FOUND && p->map->nr_groups > 1)
		assign(p, zone, group, conf);
	else if (v == FOUND)
		return 0;
	else if (v == UNSURE) /* test it again in the next pass */
		p->given_up[zone] = ++p->unsure[zone] >= UNSURE_MAX;
	else if (ps->end == p->map->nr_groups && ps->end - ps->first < ps->cap)
		new_group(p, ps, zone);
	else
		p->map->tested[zone] = ps->end;
	return 0;
}

static bool is_open_question(const struct probe *p, uint32_t zone)
{
	return p->kind[zone] != KIND_NO && p->map->zone_group[zone] == ZNS_PROBE_NONE &&
	       !p->given_up[zone];
}

static uint32_t count_open(const struct probe *p)
{
	uint32_t n = 0;

	for (uint32_t z = 0; z < p->nr; z++)
		n += is_open_question(p, z);
	return n;
}

static bool is_pivot(const struct probe *p, const struct pass *ps, uint32_t zone)
{
	uint32_t g = p->map->zone_group[zone];

	return g != ZNS_PROBE_NONE && g >= ps->first && g < ps->end && p->map->pivot[g] == zone;
}

static int one_wave(struct probe *p, struct pass *ps, const uint32_t *wave, uint32_t n,
		    uint32_t *done, uint32_t total, struct zns_err *err)
{
	cleanup_free uint32_t *gone = calloc(n, sizeof(*gone));
	uint32_t nr_gone = 0;
	int ret = gone ? probe_need(p, wave, n, err) :
			 zns_fail(err, -ENOMEM, "no memory for %u zones", n);

	for (uint32_t i = 0; !ret && i < n; i++) {
		if (is_open_question(p, wave[i]))
			ret = one_zone(p, ps, wave[i], err);
		probe_tick(p, ++*done, total);
	}
	for (uint32_t i = 0; !ret && i < n; i++)
		if (!is_pivot(p, ps, wave[i]))
			gone[nr_gone++] = wave[i];
	return ret ? ret : probe_drop(p, gone, nr_gone, err);
}

/*
 * Checks groups of one zone: among large groups, such a group may be a die that was found twice.
 * Its zone is compared with the pivots of this pass once more. If it joins another group, the later
 * groups are renumbered.
 */
static int recheck_lonely(struct probe *p, struct pass *ps, struct zns_err *err)
{
	cleanup_free uint32_t *size = calloc(p->nr, sizeof(*size));
	uint32_t usable = 0;
	int ret = 0;

	if (!size)
		return zns_fail(err, -ENOMEM, "no memory for %u groups", p->nr);
	for (uint32_t z = 0; z < p->nr; z++) {
		if (p->map->zone_group[z] == ZNS_PROBE_NONE)
			continue;
		size[p->map->zone_group[z]]++;
		usable++;
	}
	for (uint32_t g = ps->end; !ret && g-- > ps->first;) {
		uint32_t zone = p->map->pivot[g], to = ZNS_PROBE_NONE;
		bool found = false, unsure = false;
		float conf = 0;

		if (size[g] != 1 || usable < 4 * p->map->nr_groups)
			continue;
		for (uint32_t k = ps->first; !ret && !found && k < ps->end; k++) {
			if (k == g)
				continue;
			ret = try_group(p, ps, zone, k, true, &found, &unsure, &conf, err);
			to = k;
		}
		if (ret || !found)
			continue;
		assign(p, zone, to, conf);
		size[to]++;
		for (uint32_t z = 0; z < p->nr; z++) {
			if (p->map->zone_group[z] != ZNS_PROBE_NONE && p->map->zone_group[z] > g)
				p->map->zone_group[z]--;
			if (p->map->tested[z] > g)
				p->map->tested[z]--;
		}
		memmove(p->map->pivot + g, p->map->pivot + g + 1,
			(p->map->nr_groups - g - 1) * sizeof(*p->map->pivot));
		memmove(size + g, size + g + 1, (p->map->nr_groups - g - 1) * sizeof(*size));
		memmove(p->last_of_group + g, p->last_of_group + g + 1,
			(p->map->nr_groups - g - 1) * sizeof(*p->last_of_group));
		p->map->nr_groups--;
		ps->end--;
		ret = probe_drop(p, &zone, 1, err);
	}
	return ret;
}

/*
 * Lists the zones without a group: some random ones at first, then in ascending order. Zones with
 * data come last: by then there are pivots to compare them with.
 */
static uint32_t list_open(struct probe *p, uint32_t *out, uint32_t below)
{
	uint32_t n = 0, first = 0;

	for (int data = 0; data < 2; data++)
		for (uint32_t z = 0; z < p->nr; z++)
			if (is_open_question(p, z) && p->map->tested[z] <= below &&
			    (p->kind[z] == KIND_DATA) == data)
				out[n++] = z;
	/* Many consecutive zones may be on one die, while random zones are on most dies. */
	for (; !p->map->nr_groups && first < zns_min(n, ANYWHERE); first++) {
		uint32_t k = first + probe_random(p, n - first), z = out[k];

		if (p->kind[z] == KIND_DATA)
			continue;
		memmove(out + first + 1, out + first, (k - first) * sizeof(*out));
		out[first] = z;
	}
	return n;
}

/*
 * Makes the pivots of this pass readable. In a continued run one may have failed meanwhile: then
 * another zone of its group replaces it.
 */
static int load_pivots(struct probe *p, const struct pass *ps, struct zns_err *err)
{
	uint32_t *pivot = p->map->pivot;
	int ret = probe_need(p, pivot + ps->first, ps->end - ps->first, err);

	for (uint32_t g = ps->first; !ret && g < ps->end; g++) {
		for (uint32_t z = 0; !ret && z < p->nr && p->kind[pivot[g]] == KIND_NO; z++) {
			if (p->map->zone_group[z] != g || p->kind[z] == KIND_NO)
				continue;
			pivot[g] = z;
			ret = probe_need(p, &z, 1, err);
		}
		if (!ret && p->kind[pivot[g]] == KIND_NO)
			ret = zns_fail(
				err, -EIO,
				"no zone of group %u can be written or read any more: probe anew, without --resume",
				g);
	}
	return ret;
}

/*
 * Keeps a zone of another die readable as a control, while there is room for it beside the pivots.
 * The remaining zones may all be on one die. Without a control, all readable zones would wait for
 * each other, which looks like a disturbance.
 */
static int take_control(struct probe *p, struct pass *ps, struct zns_err *err)
{
	uint32_t zone = ps->first ? p->map->pivot[probe_random(p, ps->first)] : ZNS_PROBE_NONE;

	ps->control = ZNS_PROBE_NONE;
	if (!ps->first || p->kind[zone] == KIND_NO || ps->end - ps->first + 1 >= ps->cap)
		return 0;
	ps->control = zone;
	return probe_need(p, &zone, 1, err);
}

static int leave_control(struct probe *p, struct pass *ps, struct zns_err *err)
{
	uint32_t zone = ps->control;

	ps->control = ZNS_PROBE_NONE;
	return zone == ZNS_PROBE_NONE ? 0 : probe_drop(p, &zone, 1, err);
}

static int one_pass(struct probe *p, struct pass *ps, uint32_t *todo, uint32_t nr, uint32_t total,
		    struct zns_err *err)
{
	uint32_t done = total - count_open(p);
	int ret = load_pivots(p, ps, err);

	if (!ret)
		ret = take_control(p, ps, err);

	for (uint32_t at = 0; !ret && at < nr;) {
		uint32_t left = p->room - zns_min(p->room - 1, p->nr_ours),
			 n = zns_min(nr - at, zns_min(left, WAVE_MAX));

		ret = one_wave(p, ps, todo + at, n, &done, total, err);
		at += n;
		if (!ret && ps->end - ps->first == ps->cap)
			ret = leave_control(p, ps, err);
	}
	if (!ret)
		ret = recheck_lonely(p, ps, err);
	if (!ret)
		ret = leave_control(p, ps, err);
	return ret ? ret : probe_drop(p, p->map->pivot + ps->first, ps->end - ps->first, err);
}

int probe_calibrate(struct probe *p, struct zns_err *err)
{
	uint32_t zones[CALIBRATE], n = probe_pick_empty(p, zones, zns_min(p->room, CALIBRATE));
	int ret = probe_need(p, zones, n, err);

	if (!ret && !n)
		ret = zns_fail(err, -ENODATA, "%s has no empty zone to work with", p->d->path);
	if (!ret)
		ret = probe_calibrate_burst(p, zones, n, err);
	return ret ? ret : probe_drop(p, zones, n, err);
}

int probe_dies(struct probe *p, struct zns_err *err)
{
	cleanup_free uint32_t *todo = calloc(p->nr, sizeof(*todo)),
			      *refuted = calloc(p->nr + 1, sizeof(*refuted)),
			      *list = calloc(p->nr + 1, sizeof(*list)),
			      *pivots = calloc(p->nr + 1, sizeof(*pivots));
	uint32_t total = 0, reserve = zns_max(1u, zns_min(p->room / 8, 64u));
	int ret;

	if (!todo || !refuted || !list || !pivots)
		return zns_fail(err, -ENOMEM, "no memory for %u zones", p->nr);
	for (uint32_t z = 0; z < p->nr; z++)
		total += p->kind[z] != KIND_NO;
	ret = probe_calibrate(p, err);
	for (uint32_t pass = 0; !ret && pass < PROBE_PASSES; pass++) {
		struct pass ps = { .first = UINT32_MAX,
				   .cap = zns_min(p->room - reserve, PIVOTS_MAX),
				   .refuted = refuted,
				   .list = list,
				   .pivots = pivots };
		uint32_t nr;

		if (pass > 1 && p->map->nr_groups == 1)
			break;

		for (uint32_t z = 0; z < p->nr; z++)
			if (is_open_question(p, z))
				ps.first = zns_min(ps.first, p->map->tested[z]);
		if (ps.first == UINT32_MAX)
			break;
		ps.first = zns_min(ps.first, p->map->nr_groups);
		ps.end = zns_min(p->map->nr_groups, ps.first + ps.cap);
		memset(refuted, 0, p->nr * sizeof(*refuted));
		nr = list_open(p, todo, ps.first);
		ret = one_pass(p, &ps, todo, nr, total, err);
	}
	return ret;
}
