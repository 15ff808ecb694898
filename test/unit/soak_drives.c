/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The probe on drives that it was not tuned for: dies of unequal rate, planes, write caches, small
 * groups, rows of zones, slow channels, large units, narrow controllers, zones on several dies,
 * throttling, drawn at random by seed. A map is right, refused, or wrong though it was given out;
 * so is a rate. A drive whose zones share a part of their dies has no right map, one that is throttled
 * none that stays right, and behind a channel that is hardly faster than a die no map can be told: each
 * of these is refused by its name.
 * In model time, so a seed always ends the same. Prints a line of JSON for each drive, and the sums.
 *
 *   soak_drives rows [TEXT]           the named drives, or those whose name has the text
 *   soak_drives random [N [SEED]]     N drives, from this seed on
 *   soak_drives power [N [SEED]]      wrong maps of right drives, given to the check of a map
 *   soak_drives judge [N [SEED]]      maps that a probe found, made wrong: does the judge see it?
 *   soak_drives again [N [SEED]]      right maps, checked on the drive they belong to and on others
 *   soak_drives kill [N [SEED]]       N probes that are killed at any moment, then continued
 */
#include <math.h>
#include <signal.h>
#include <sys/wait.h>

#include "emu_common.h"
#include "zns/probe.h"
#include "zns/store.h"

#define RATE_MOST 1.15 /* a rate may be at most this multiple of what the slowest die sustains */
#define GRANTS 8u /* sets of groups whose promises are tried */
#define GRANTED 64u /* most groups in a set */
#define CEILING 0.95 /* the part of the rate of all groups together that is promised */
#define LEAST 0.7 /* least rate in a map, as a part of what a map of the true dies would promise */
#define UNKNOWN_MOST 0.05 /* part of the zones that may be without a group */

enum outcome { RIGHT, REFUSED, WRONG, NAMED, OUTCOMES };

static const char *const outcome_name[] = { "right", "refused", "wrong", "named" };

static struct zns_emu_params base(uint32_t zones, uint32_t channels, uint32_t ways)
{
	struct zns_emu_params p;

	zns_emu_default_params(&p);
	p.nr_zones = zones;
	p.zone_size = p.zone_capacity = MIB(16);
	p.channels = channels;
	p.ways = ways;
	p.max_active = p.max_open = 0;
	p.map = ZNS_EMU_MAP_PERMUTED;
	p.map_seed = 2;
	p.timing = true;
	p.prealloc = ZNS_EMU_SPARSE;
	return p;
}

struct tally {
	double both, said, is;
};

static double share(double a, double b)
{
	return b > 0 ? a / b : 1;
}

struct result {
	enum outcome outcome;
	double precision, recall, channel_precision, channel_recall, overdue, worth, read, model_s;
	uint32_t groups, dies, unknown, rate, sustained;
	uint64_t written;
	char why[300];
};

/* How much the slowest die programs in a second. */
static uint32_t sustained_of(const struct zns_emu_params *p, const uint32_t *die)
{
	uint32_t all = p->channels * p->ways, n = p->zone_dies ? p->zone_dies : 1;
	double rate = p->die_write_mibps;

	for (uint32_t z = 0; z < p->nr_zones && p->map != ZNS_EMU_MAP_SHARED; z++)
		if (die[z] < p->odd_dies && (p->odd_pct > 100 || p->odd_dies == all))
			return rate * n * 100 / p->odd_pct;
	return p->map == ZNS_EMU_MAP_SHARED ? rate * all : rate * n;
}

/* Have zones with these first dies a die in common? */
static bool shares(const struct zns_emu_params *p, uint32_t a, uint32_t b)
{
	uint32_t all = p->channels * p->ways, apart = (a + all - b) % all;

	return p->zone_dies ? apart < p->zone_dies || all - apart < p->zone_dies : a == b;
}

/* Do some zones share dies with two others that share none? No groups describe that. */
static bool no_groups(const struct zns_emu_params *p, const uint32_t *die)
{
	for (uint32_t a = 0; p->zone_dies && a < p->nr_zones; a++)
		for (uint32_t b = 0; b < p->nr_zones; b++)
			for (uint32_t c = 0; c < b && shares(p, die[a], die[b]); c++)
				if (shares(p, die[a], die[c]) && !shares(p, die[b], die[c]))
					return true;
	return false;
}

/* Are several dies behind something that is hardly faster than one of them? */
static bool like_one_die(const struct zns_emu_params *p)
{
	double one = 1.5 * p->die_write_mibps;

	return (p->ways > 1 && p->channel_mibps < one) ||
	       (p->channels * p->ways > 1 && p->controller_mibps && p->controller_mibps < one);
}

static bool share_channel(const struct zns_emu_params *p, uint32_t a, uint32_t b)
{
	uint32_t n = p->zone_dies ? p->zone_dies : 1;

	for (uint32_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < n; k++)
			if ((a + i) % p->channels == (b + k) % p->channels)
				return true;
	return false;
}

static struct zns_dev *make(const struct zns_emu_params *p, const struct zns_emu_noise *n,
			    uint32_t **die)
{
	struct zns_dev *d;

	unlink(dev_path);
	setenv("ZNS_EMU_DATA", "none", 1);
	d = make_dev(p);
	unsetenv("ZNS_EMU_DATA");
	*die = calloc(p->nr_zones, sizeof(**die));
	assert_non_null(*die);
	assert_ok(zns_emu_set_noise(d, n, &err));
	assert_ok(zns_emu_set_clock(d, ZNS_EMU_CLOCK_THREAD, &err));
	assert_ok(zns_emu_zone_map(d, *die, &err));
	return d;
}

/* What a broker promises in a group: in a quick group no more than in most. A slow group is in
 * no promise, but dumps without a promise write to it, too. */
static uint32_t promised(const struct zns_probe_map *m, uint32_t group)
{
	ZnsPb__Profile p = ZNS_PB__PROFILE__INIT;
	uint32_t groups;

	p.n_groups = p.n_group_write_mibps = m->nr_groups;
	p.group_write_mibps = m->group_write_mibps;
	p.zone_write_mibps = m->zone_write_mibps;
	return zns_min(m->group_write_mibps[group], zns_profile_promise(&p, &groups));
}

/* Chooses as many of these groups as may be promised at once, from the first on, and a zone of
 * each. */
static uint32_t granted(const struct zns_emu_params *p, const struct zns_probe_map *m,
			const uint32_t *order, uint64_t *seed, uint32_t *zone)
{
	uint32_t most = zns_min(p->max_active ? p->max_active : GRANTED, GRANTED), n = 0;
	double sum = 0;

	for (uint32_t i = 0; i < m->nr_groups && n < most; i++) {
		uint32_t from = emu_random(seed) % m->nr_zones, z = from;

		while (m->zone_group[z] != order[i] && (z + 1) % m->nr_zones != from)
			z = (z + 1) % m->nr_zones;
		if (m->zone_group[z] != order[i] || !m->group_write_mibps[order[i]])
			continue;
		sum += promised(m, order[i]);
		if (n && m->device_write_mibps && sum > CEILING * m->device_write_mibps)
			break;
		zone[n++] = z;
	}
	return n;
}

/* Writes these zones at once, each with as many bytes as its group's promise gives in the same
 * time. Returns the time as a multiple of the promised one. */
static double overdue(struct zns_dev *d, const struct zns_emu_params *p,
		      const struct zns_probe_map *m, const uint32_t *zone, uint32_t n,
		      uint64_t capacity)
{
	/* commands as long as those that the promise was measured with */
	uint32_t len = zns_max(p->program_unit, m->unit);
	cleanup_free uint8_t *buf = calloc(1, len);
	struct zns_race r[GRANTED] = { 0 };
	uint32_t quick = 0, slow = UINT32_MAX;
	uint64_t start;
	double s, round;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t rate = promised(m, m->zone_group[zone[i]]);

		quick = zns_max(quick, rate);
		slow = zns_min(slow, rate);
	}
	s = (double)capacity / MIB(1) / quick;
	for (uint32_t i = 0; i < n; i++) {
		uint64_t bytes = s * promised(m, m->zone_group[zone[i]]) * MIB(1);

		r[i] = (struct zns_race){ .write = true,
					  .zone = zone[i],
					  .len = len,
					  .count = (uint32_t)(bytes / len),
					  .buf = buf };
		r[i].done_ns = calloc(r[i].count + 1, sizeof(*r[i].done_ns));
		assert_non_null(r[i].done_ns);
	}
	start = zns_dev_now_ns(d);
	assert_ok(zns_dev_race(d, r, n, &err));
	assert_ok(zns_dev_flush(d, &err));
	/* a round ends with a whole unit on each die */
	round = (double)p->program_unit / MIB(1) * zns_max(p->zone_dies, 1u) / slow;
	s = ((zns_dev_now_ns(d) - start) / 1e9 - round) / s;
	assert_ok(zns_dev_reset(d, zone, n, &err));
	for (uint32_t i = 0; i < n; i++)
		free(r[i].done_ns);
	return s;
}

/* What a zone alone is written with. */
static uint32_t alone_mibps(struct zns_dev *d, const struct zns_emu_params *p, uint32_t unit,
			    uint32_t zone)
{
	uint32_t *of = calloc(p->nr_zones, sizeof(*of)), rate = p->die_write_mibps;
	struct zns_probe_map one = { .unit = unit, .zone_group = of, .nr_groups = 1 };

	assert_non_null(of);
	one.group_write_mibps = &rate;
	/* the second time, less is left of the round that ends a set */
	for (uint32_t k = 0; k < 2; k++) {
		one.zone_write_mibps = rate;
		rate = (uint32_t)zns_max(rate / overdue(d, p, &one, &zone, 1, p->zone_capacity),
					 1.0);
	}
	free(of);
	return rate;
}

/* The most that is promised at once to groups of which so many may be written. */
static double promised_to_all(const struct zns_probe_map *m, uint32_t most)
{
	double sum = 0;

	for (uint32_t g = 0; g < m->nr_groups; g++)
		sum += promised(m, g);
	sum *= zns_min((double)most / m->nr_groups, 1.0);
	return m->device_write_mibps ? zns_min(sum, (double)m->device_write_mibps) : sum;
}

/*
 * What the map promises, as a part of what a map of the true dies would: the least of a group, and all
 * together. That map knows the rate of each die alone, and how much of it is left while all are written.
 */
static double worth(struct zns_dev *d, const struct zns_emu_params *p, const uint32_t *die,
		    const struct zns_probe_map *m, uint32_t sustained)
{
	uint32_t most = zns_min(p->max_active ? p->max_active : GRANTED, GRANTED), zone[GRANTED],
		 n = 0;
	struct zns_probe_map best = { .unit = m->unit };
	double left, least;

	assert_ok(zns_probe_alloc(&best, p->nr_zones));
	for (uint32_t z = 0; z < p->nr_zones; z++) {
		uint32_t g = 0;

		while (g < best.nr_groups && die[best.pivot[g]] != die[z])
			g++;
		best.zone_group[z] = g;
		if (g < best.nr_groups)
			continue;
		best.pivot[best.nr_groups++] = z;
		best.group_write_mibps[g] = alone_mibps(d, p, m->unit, z);
		/* a flush does not show what is behind such a cache */
		if (p->cache_backed)
			best.group_write_mibps[g] = zns_min(best.group_write_mibps[g], sustained);
		best.zone_write_mibps = best.group_write_mibps[g];
	}
	/* if not all can be written, those of few channels leave least */
	for (uint32_t c = 0; c < p->channels; c++)
		for (uint32_t g = 0; g < best.nr_groups && n < most; g++)
			if (die[best.pivot[g]] % p->channels == c)
				zone[n++] = best.pivot[g];
	left = 1 / zns_max(overdue(d, p, &best, zone, n, p->zone_capacity), 1.0);
	/* zones that share a part of their dies get more together than any map could promise */
	least = zns_emu_zones_overlap(p) ?
			1 :
			promised_to_all(m, most) / (left * promised_to_all(&best, most));
	for (uint32_t z = 0; z < p->nr_zones; z++)
		if (m->zone_group[z] != ZNS_PROBE_NONE)
			least = zns_min(least,
					promised(m, m->zone_group[z]) /
						(left * promised(&best, best.zone_group[z])));
	zns_probe_fini(&best);
	return least;
}

/*
 * Do promises hold? A zone of each of many groups is written, on a drive like the probed one: first
 * all groups, then sets as an allocator gives them out. Returns the worst time as a multiple of the
 * promised one.
 */
static double try_promises(struct zns_dev *d, const struct zns_emu_params *p,
			   const struct zns_probe_map *m, uint64_t seed)
{
	cleanup_free uint32_t *order = calloc(m->nr_groups, sizeof(*order));
	double worst = 0, late;

	assert_non_null(order);
	for (uint32_t i = 0; i < m->nr_groups; i++)
		order[i] = i;
	for (uint32_t k = 0; k < GRANTS; k++) {
		uint32_t zone[GRANTED], n = granted(p, m, order, &seed, zone);

		if (k % 4 == 3)
			n = 1 + emu_random(&seed) % n;
		late = overdue(d, p, m, zone, n, p->zone_capacity);
		/* a cache lets the model plan so far ahead that its calendars lose free time */
		if (late > RATE_MOST && p->cache_mib)
			late = zns_min(late, overdue(d, p, m, zone, n, p->zone_capacity / 3));
		worst = zns_max(worst, late);
		for (uint32_t i = m->nr_groups; i > 1; i--) {
			uint32_t to = emu_random(&seed) % i, g = order[to];

			order[to] = order[i - 1];
			order[i - 1] = g;
		}
	}
	return worst;
}

/* What four clients read of a zone that is written to its end, MiB/s. Where zones are striped, it depends on
 * whether the clients begin on the same die: the best of several ways to divide the zone counts. */
static double read_mibps(struct zns_dev *d, const struct zns_emu_params *p, uint32_t unit,
			 uint32_t zone)
{
	uint32_t len = zns_min((uint64_t)unit, p->zone_capacity / 8),
		 count = p->zone_capacity / len / 4;
	double best = 0;
	cleanup_free uint8_t *buf = calloc(4, len);
	cleanup_free uint64_t *done = calloc(8 * (size_t)count, sizeof(*done));
	struct zns_race r[4] = { { .write = true,
				   .zone = zone,
				   .len = len,
				   .count = 4 * count,
				   .buf = buf,
				   .done_ns = done } };

	assert_non_null(buf);
	assert_non_null(done);
	assert_ok(zns_dev_race(d, r, 1, &err));
	assert_ok(zns_dev_flush(d, &err));
	for (uint32_t k = 0; k < 4; k++, count -= count / 8) {
		uint64_t start;

		for (uint32_t i = 0; i < 4; i++)
			r[i] = (struct zns_race){ .zone = zone,
						  .off = (uint64_t)i * count * len,
						  .len = len,
						  .count = count,
						  .buf = buf + (size_t)i * len,
						  .done_ns = done + (size_t)i * count };
		start = zns_dev_now_ns(d);
		assert_ok(zns_dev_race(d, r, 4, &err));
		start = zns_dev_now_ns(d) - start;
		best = zns_max(best, 4.0 * count * len / MIB(1) / (start / 1e9));
	}
	assert_ok(zns_dev_reset(d, &zone, 1, &err));
	return best;
}

/* The stored rates of reading a group, as a part of what its zones are read with: the one that is
 * furthest from it. */
static double reads(struct zns_dev *d, const struct zns_emu_params *p,
		    const struct zns_probe_map *m)
{
	double worst = 1;

	for (uint32_t g = 0, z; g < m->nr_groups; g++) {
		double part;

		for (z = 0; z < m->nr_zones && m->zone_group[z] != g; z++)
			;
		if (z == m->nr_zones)
			continue;
		part = m->group_read_mibps[g] / read_mibps(d, p, m->unit, z);
		if (fabs(log(part)) > fabs(log(worst)))
			worst = part;
	}
	return worst;
}

/* Writes a drive like the probed one as the map promises. It does not get hot, since no map can say how
 * it is then. */
static void use(const struct zns_emu_params *params, const struct zns_probe_map *m,
		struct result *r)
{
	const struct zns_emu_noise none = { 0 };
	struct zns_emu_params p = *params;
	cleanup_free uint32_t *die = NULL;
	struct zns_dev *d;

	p.heat_mib = p.cool_mibps = p.throttle_pct = 0;
	d = make(&p, &none, &die);
	r->overdue = try_promises(d, &p, m, p.map_seed);
	r->worth = worth(d, &p, die, m, r->sustained);
	r->read = reads(d, &p, m);
	zns_dev_close(d);
}

static void judge(const struct zns_emu_params *p, const uint32_t *die,
		  const struct zns_probe_map *m, struct result *r)
{
	struct tally d = { 0 }, c = { 0 };
	double least;
	uint32_t seen[1024] = { 0 };

	for (uint32_t a = 0; a < m->nr_zones; a++) {
		uint32_t ga = m->zone_group[a];

		r->dies += !seen[die[a]]++;
		r->unknown += ga == ZNS_PROBE_NONE;
		for (uint32_t b = 0; b < a && ga != ZNS_PROBE_NONE; b++) {
			uint32_t gb = m->zone_group[b];
			bool said = ga == gb, is = shares(p, die[a], die[b]);

			if (gb == ZNS_PROBE_NONE)
				continue;
			d.both += said && is;
			d.said += said;
			d.is += is;
			if (said || m->group_channel[ga] == ZNS_PROBE_NONE)
				continue;
			said = m->group_channel[ga] == m->group_channel[gb];
			is = share_channel(p, die[a], die[b]);
			c.both += said && is && die[a] != die[b];
			c.said += said;
			c.is += is && m->group_channel[gb] != ZNS_PROBE_NONE;
		}
	}
	r->precision = share(d.both, d.said);
	r->recall = share(d.both, d.is);
	/* what goes through one controller shares its rate */
	r->channel_precision = m->nr_channels == 1 && p->controller_mibps ? 1 :
									    share(c.both, c.said);
	/* zones on several channels each may share some of them with zones that share none */
	r->channel_recall = p->zone_dies > 1 ? 1 : share(c.both, c.is);
	r->groups = m->nr_groups;
	r->rate = m->zone_write_mibps;
	use(p, m, r);
	/* groups that share a part of their dies are right if promises hold nevertheless */
	if (zns_emu_zones_overlap(p))
		r->recall = 1;
	r->written = m->written;
	/* while it was measured, the drive may have been as hot as it gets */
	least = LEAST / (p->heat_mib ? p->throttle_pct / 100.0 : 1);
	r->outcome = r->precision < 1 || r->recall < 1 || r->channel_precision < 1 ||
				     r->channel_recall < 1 ||
				     r->unknown > UNKNOWN_MOST * m->nr_zones ||
				     r->rate > RATE_MOST * r->sustained || r->overdue > RATE_MOST ||
				     r->worth < least || r->read < least || r->read > RATE_MOST ?
			     WRONG :
			     RIGHT;
}

static struct result probe(const struct zns_emu_params *p, const struct zns_emu_noise *n,
			   uint32_t unit, uint64_t seed)
{
	struct zns_probe_params par = { .seed = seed, .unit = unit };
	struct zns_probe_map map = { 0 };
	struct zns_err why = ZNS_ERR_INIT;
	cleanup_free uint32_t *die = NULL;
	struct result r = { .outcome = REFUSED };
	struct zns_dev *d = make(p, n, &die);
	int rc = zns_probe_run(d, &par, &map, &why);

	r.sustained = sustained_of(p, die);
	r.model_s = map.device_ns / 1e9;
	r.written = map.written;
	if (rc)
		snprintf(r.why, sizeof(r.why), "%s", why.msg);
	else
		judge(p, die, &map, &r);
	if (rc && ((strstr(why.msg, "on several dies each") && no_groups(p, die)) ||
		   (strstr(why.msg, "hardly faster than one die") && like_one_die(p)) ||
		   (strstr(why.msg, "rate changes") && p->heat_mib)))
		r.outcome = NAMED;
	for (uint32_t z = 0; z < p->nr_zones; z++)
		assert_zone(d, z, ZNS_ZONE_EMPTY, 0);
	zns_probe_fini(&map);
	zns_dev_close(d);
	return r;
}

static void print(const char *name, const struct zns_emu_params *p, const struct result *r)
{
	for (char *c = (char *)r->why; *c; c++)
		*c = *c == '"' || *c == '\\' ? '\'' : *c;
	printf("{\"drive\":\"%s\",\"outcome\":\"%s\",\"groups\":%u,\"dies\":%u,\"unknown\":%u,"
	       "\"precision\":%.4f,\"recall\":%.4f,\"channel_precision\":%.4f,"
	       "\"channel_recall\":%.4f,\"zone_write_mibps\":%u,\"sustained_mibps\":%u,"
	       "\"overdue\":%.2f,\"worth\":%.2f,\"read\":%.2f,\"written_mib\":%llu,"
	       "\"written_pct\":%.1f,\"model_s\":%.1f,\"why\":\"%s\"}\n",
	       name, outcome_name[r->outcome], r->groups, r->dies, r->unknown, r->precision,
	       r->recall, r->channel_precision, r->channel_recall, r->rate, r->sustained,
	       r->overdue, r->worth, r->read, (unsigned long long)(r->written >> 20),
	       100.0 * r->written / (p->nr_zones * p->zone_capacity), r->model_s, r->why);
	fflush(stdout);
}

static void total(const uint32_t n[OUTCOMES])
{
	printf("{\"right\":%u,\"refused\":%u,\"wrong\":%u,\"named\":%u}\n", n[RIGHT], n[REFUSED],
	       n[WRONG], n[NAMED]);
}

struct row {
	const char *name;
	struct zns_emu_params p;
	uint32_t unit;
};

static uint32_t fill_rows(struct row *r)
{
	uint32_t n = 0;
#define ROW(text, ...)                                    \
	do {                                              \
		struct zns_emu_params p = base(96, 4, 4); \
		uint32_t unit = 0;                        \
		__VA_ARGS__;                              \
		r[n++] = (struct row){ text, p, unit };   \
	} while (0)
	ROW("4 x 4, permuted");
	ROW("write cache of 6 MiB", p.cache_mib = 6, p.die_write_mibps = 40);
	ROW("write cache of 64 MiB", p.cache_mib = 64, p.die_write_mibps = 40);
	ROW("write cache of 512 MiB", p.cache_mib = 512, p.die_write_mibps = 40);
	for (uint32_t k = 0; k < 12; k++) {
		static const uint32_t mib[] = { 1, 6, 64, 512 }, controller[] = { 0, 400, 800 };
		static char name[12][60];

		snprintf(name[k], sizeof(name[k]), "backed cache of %u MiB, controller %u",
			 mib[k / 3], controller[k % 3]);
		ROW(name[k], p.cache_mib = mib[k / 3], p.cache_backed = true,
		    p.die_write_mibps = 40, p.controller_mibps = controller[k % 3]);
	}
	ROW("backed cache of 6 MiB, 2 dies, unit of 1M", p = base(64, 1, 2), p.cache_mib = 6,
	    p.cache_backed = true, p.program_unit = MIB(1));
	ROW("one domain, backed cache of 64 MiB", p = base(96, 4, 4), p.map = ZNS_EMU_MAP_SHARED,
	    p.cache_mib = 64, p.cache_backed = true);
	ROW("2 planes", p.planes = 2, p.nr_zones = 128);
	ROW("4 planes", p.planes = 4, p.nr_zones = 256);
	ROW("commands of 500 us", p.command_us = 500);
	ROW("commands of 1000 us", p.command_us = 1000);
	ROW("slow channel", p = base(128, 4, 2), p.zone_size = p.zone_capacity = MIB(8),
	    p.die_write_mibps = 20, p.die_read_mibps = 800, p.channel_mibps = 200);
	ROW("two dies, 3 of 500 zones on one", p = base(500, 1, 2), p.small_dies = 1,
	    p.small_zones = 3);
	ROW("two dies, 8 of 1000 zones on one", p = base(1000, 1, 2), p.small_dies = 1,
	    p.small_zones = 8);
	ROW("one die 15 % slower", p.odd_dies = 1, p.odd_pct = 118);
	ROW("one die 40 % slower", p.odd_dies = 1, p.odd_pct = 167);
	ROW("one die 15 % faster", p.odd_dies = 1, p.odd_pct = 87);
	ROW("one die 1.5 x slower", p.odd_dies = 1, p.odd_pct = 150);
	ROW("one die 2 x slower", p.odd_dies = 1, p.odd_pct = 200);
	ROW("one die 4 x slower", p.odd_dies = 1, p.odd_pct = 400);
	ROW("one die 2.5 x faster", p.odd_dies = 1, p.odd_pct = 40);
	ROW("two dies, 1 x 2", p = base(64, 1, 2));
	ROW("two dies, 2 x 1", p = base(64, 2, 1));
	ROW("two dies, 2 x 1, 6 active", p = base(64, 2, 1), p.max_active = p.max_open = 6);
	ROW("32 zones in a row, 32 active", p = base(512, 4, 4), p.row = 32, p.max_active = 32);
	ROW("256 zones in a row", p = base(1024, 2, 2), p.row = 256);
	ROW("program unit of 1M", p.program_unit = MIB(1));
	ROW("program unit of 1M, --unit 1M", p.program_unit = MIB(1), unit = MIB(1));
	ROW("zones of 256K", p.zone_size = p.zone_capacity = KIB(256));
	ROW("32 dies, 8 x 4, 32 active", p = base(256, 8, 4), p.max_active = 32);
	ROW("one domain", p = base(96, 4, 4), p.map = ZNS_EMU_MAP_SHARED);
	ROW("one domain, cache of 64 MiB", p = base(96, 4, 4), p.map = ZNS_EMU_MAP_SHARED,
	    p.cache_mib = 64);
	ROW("controller of 800 MiB/s", p.controller_mibps = 800);
	ROW("collections of 5 ms each 64 MiB", p.controller_mibps = 3200, p.gc_every_mib = 64,
	    p.gc_stall_ms = 5);
	ROW("collections of 40 ms each 256 MiB", p.controller_mibps = 3200, p.gc_every_mib = 256,
	    p.gc_stall_ms = 40);
	ROW("one channel, slower than a die is read", p = base(64, 1, 3), p.die_write_mibps = 60,
	    p.die_read_mibps = 800, p.channel_mibps = 200);
	ROW("three dies of 150 on a channel of 200", p = base(96, 4, 3), p.die_write_mibps = 150,
	    p.channel_mibps = 200);
	ROW("one domain, commands of 500 us", p.map = ZNS_EMU_MAP_SHARED, p.command_us = 500);
	ROW("zones on 2 dies, in pairs", p.zone_dies = 2);
	ROW("zones on 4 dies, in fours", p.zone_dies = 4);
	ROW("zones on 2 dies, from each one on", p.zone_dies = 2, p.zone_step = 1);
	ROW("zones on 4 dies, from each second on", p.zone_dies = 4, p.zone_step = 2);
	ROW("zones on 3 dies, from each one on, 14 active", p.zone_dies = 3, p.zone_step = 1,
	    p.max_active = p.max_open = 14);
	ROW("throttled after 64 MiB, to half", p.heat_mib = 64, p.cool_mibps = 100,
	    p.throttle_pct = 200);
	ROW("throttled after 256 MiB, to a third", p.heat_mib = 256, p.cool_mibps = 20,
	    p.throttle_pct = 300);
	ROW("throttled after 1 GiB, by a quarter", p.heat_mib = 1024, p.cool_mibps = 50,
	    p.throttle_pct = 133);
#undef ROW
	return n;
}

static int rows(const char *only)
{
	struct row r[70];
	uint32_t n = fill_rows(r), sum[OUTCOMES] = { 0 };
	const struct zns_emu_noise none = { 0 };

	for (uint32_t i = 0; i < n; i++)
		for (uint64_t seed = 1; seed <= 3 && (!only || strstr(r[i].name, only)); seed++) {
			struct result x;

			r[i].p.map_seed = seed + 1;
			x = probe(&r[i].p, &none, r[i].unit, seed);
			print(r[i].name, &r[i].p, &x);
			sum[x.outcome]++;
		}
	total(sum);
	return sum[WRONG] ? 1 : 0;
}

static uint64_t pick(uint64_t *seed, const uint64_t *v, uint32_t n)
{
	return v[emu_random(seed) % n];
}
#define PICK(...)                                   \
	pick(&s, (const uint64_t[]){ __VA_ARGS__ }, \
	     sizeof((uint64_t[]){ __VA_ARGS__ }) / sizeof(uint64_t))

/* A drive has each behaviour with a chance of its own, so that most have one to three of them. */
static struct zns_emu_params draw(uint64_t seed, char *name, size_t len)
{
	uint64_t s = seed * UINT64_C(0x9e3779b97f4a7c15);
	struct zns_emu_params p = base((uint32_t)(64 + emu_random(&s) % 200),
				       (uint32_t)PICK(1, 2, 2, 3, 4, 4, 5),
				       (uint32_t)PICK(1, 2, 2, 3, 4, 4));
	uint32_t dies = p.channels * p.ways;

	p.map_seed = emu_random(&s) % 1000000;
	p.map = emu_random(&s) % 12 ?
			emu_random(&s) % 3 ? ZNS_EMU_MAP_PERMUTED : ZNS_EMU_MAP_INTERLEAVED :
			ZNS_EMU_MAP_SHARED;
	p.die_write_mibps = (uint32_t)PICK(20, 40, 60, 100, 100, 150);
	p.die_read_mibps = (uint32_t)PICK(200, 400, 400, 800);
	p.channel_mibps = (uint32_t)PICK(200, 400, 800, 800, 1600);
	p.max_active = p.max_open = (uint32_t)PICK(0, 0, 0, 32, 14, 8);
	p.zone_size = p.zone_capacity = PICK(MIB(8), MIB(16), MIB(32), MIB(16));
	p.cache_mib = emu_random(&s) % 4 ? 0 : (uint32_t)PICK(6, 16, 64, 256, 512);
	p.cache_mibps = p.cache_mib && !(emu_random(&s) % 4) ? 1500 : 0;
	p.command_us = (uint32_t)PICK(10, 10, 10, 50, 200, 500);
	p.program_unit = (uint32_t)PICK(KIB(192), KIB(192), KIB(192), KIB(96), KIB(384), MIB(1));
	p.controller_mibps = emu_random(&s) % 8 ? 0 : (uint32_t)PICK(400, 1000, 3000);
	if (p.map != ZNS_EMU_MAP_SHARED) {
		p.planes = emu_random(&s) % 6 ? 0 : (uint32_t)PICK(2, 4);
		if (!(emu_random(&s) % 4)) {
			p.odd_dies = 1 + (uint32_t)(emu_random(&s) % 2);
			p.odd_dies = zns_min(p.odd_dies, dies);
			p.odd_pct = (uint32_t)PICK(40, 87, 115, 140, 200, 400);
		}
		p.row = emu_random(&s) % 6 ? 0 : (uint32_t)PICK(2, 8, 32);
		if (dies > 1 && !(emu_random(&s) % 6)) {
			p.small_dies = 1;
			p.small_zones = (uint32_t)PICK(1, 2, 3, 8);
		}
	}
	/* last, so that the drives of earlier seeds have stayed what they were but for these */
	if (p.map != ZNS_EMU_MAP_SHARED && dies > 1 && !p.small_dies && !(emu_random(&s) % 10)) {
		p.zone_dies = (uint32_t)PICK(2, 2, 3, 4);
		p.zone_dies = zns_min(p.zone_dies, dies);
		p.zone_step = (uint32_t)PICK(0, 0, 1, 2);
		p.zone_step = zns_min(p.zone_step, p.zone_dies);
	}
	if (!(emu_random(&s) % 8)) {
		p.heat_mib = (uint32_t)PICK(64, 256, 1024);
		p.cool_mibps = (uint32_t)PICK(20, 100, 400);
		p.throttle_pct = (uint32_t)PICK(130, 200, 300);
	}
	snprintf(
		name, len,
		"seed %llu: %u zones of %u MiB %ux%u map %d/%llu %u/%u/%u MiB/s cache %u/%u unit %uK command %u planes %u odd %u/%u small %u/%u row %u active %u controller %u zone on %u/%u hot %u/%u/%u",
		(unsigned long long)seed, p.nr_zones, (uint32_t)(p.zone_size >> 20), p.channels,
		p.ways, p.map, (unsigned long long)p.map_seed, p.die_write_mibps, p.die_read_mibps,
		p.channel_mibps, p.cache_mib, p.cache_mibps, p.program_unit >> 10, p.command_us,
		p.planes, p.odd_dies, p.odd_pct, p.small_dies, p.small_zones, p.row, p.max_active,
		p.controller_mibps, p.zone_dies, p.zone_step, p.heat_mib, p.cool_mibps,
		p.throttle_pct);
	return p;
}

static int drawn(uint64_t n, uint64_t first)
{
	uint32_t sum[OUTCOMES] = { 0 };

	for (uint64_t seed = first; seed < first + n; seed++) {
		struct zns_emu_noise noise = { .jitter_pct = seed % 3 ? 0 : 4, .seed = seed };
		char name[400];
		struct zns_emu_params p = draw(seed, name, sizeof(name));
		struct result x = probe(&p, &noise, 0, seed);

		print(name, &p, &x);
		sum[x.outcome]++;
	}
	total(sum);
	return sum[WRONG] ? 1 : 0;
}

/* Ways to make a right map wrong. */
enum spoil {
	NOTHING,
	ONE_ZONE,
	PAIRS_1,
	PAIRS_2,
	PAIRS_5,
	PAIRS_20,
	MERGED,
	SPLIT,
	SPOILS, /* up to here, for the check of a map; the judge must find the others, too */
	UNKNOWN = SPOILS,
	PROMISES_LOW,
	PROMISES_HIGH,
	ONE_PROMISE_LOW,
	CEILING_LOW,
	READS_LOW,
	READS_HIGH,
	CHANNELS_SPLIT,
	CHANNELS_MERGED,
	FAULTS
};

static const char *const spoil_name[] = {
	"nothing",
	"one zone moved",
	"1 % of pairs",
	"2 % of pairs",
	"5 % of pairs",
	"20 % of pairs",
	"two groups as one",
	"one group as two",
	"one of ten zones unknown",
	"promises of three fifths",
	"promises half as high again",
	"one promise of a half",
	"all together a third as fast",
	"reads half as fast",
	"reads half as fast again",
	"a channel for each group",
	"all groups on one channel",
};

static void spoil(struct zns_probe_map *m, enum spoil how, uint64_t *s)
{
	static const double share[] = {
		[PAIRS_1] = 0.01, [PAIRS_2] = 0.02, [PAIRS_5] = 0.05, [PAIRS_20] = 0.2, [SPOILS] = 0
	};
	uint32_t move = how == ONE_ZONE ? 1 : (uint32_t)ceil(m->nr_zones * share[how] / 2);

	for (uint32_t i = 0; i < move; i++) {
		uint32_t z = emu_random(s) % m->nr_zones;

		m->zone_group[z] = (m->zone_group[z] + 1 + emu_random(s) % (m->nr_groups - 1)) %
				   m->nr_groups;
	}
	for (uint32_t z = 0; how == MERGED && z < m->nr_zones; z++)
		m->zone_group[z] -= m->zone_group[z] == m->nr_groups - 1;
	m->nr_groups -= how == MERGED;
	for (uint32_t z = 0; how == SPLIT && z < m->nr_zones; z++)
		if (m->zone_group[z] == 0 && emu_random(s) % 2)
			m->zone_group[z] = m->nr_groups;
	if (how == SPLIT) {
		m->group_write_mibps[m->nr_groups] = m->group_write_mibps[0];
		m->group_read_mibps[m->nr_groups] = m->group_read_mibps[0];
		m->group_channel[m->nr_groups++] = m->group_channel[0];
	}
}

/* The sum of what is promised to all groups, MiB/s. */
static uint32_t sum_of(const struct zns_probe_map *m)
{
	uint32_t sum = 0;

	for (uint32_t g = 0; g < m->nr_groups; g++)
		sum += promised(m, g);
	return sum;
}

static void spoil_rates(struct zns_probe_map *m, enum spoil how)
{
	double write = how == PROMISES_LOW  ? 0.6 :
		       how == PROMISES_HIGH ? 1.5 :
					      1,
	       read = how == READS_LOW  ? 0.5 :
		      how == READS_HIGH ? 1.5 :
					  1;

	for (uint32_t g = 0; g < m->nr_groups; g++) {
		m->group_write_mibps[g] *= how == ONE_PROMISE_LOW && !g ? 0.5 : write;
		m->group_read_mibps[g] *= read;
	}
	m->zone_write_mibps *= write;
	if (how == CEILING_LOW)
		m->device_write_mibps =
			(m->device_write_mibps ? m->device_write_mibps : sum_of(m)) / 3;
	for (uint32_t z = 0; how == UNKNOWN && z < m->nr_zones; z += 10)
		m->zone_group[z] = ZNS_PROBE_NONE;
	for (uint32_t g = 0; how >= CHANNELS_SPLIT && g < m->nr_groups; g++)
		m->group_channel[g] = how == CHANNELS_SPLIT ? g : 0;
	if (how >= CHANNELS_SPLIT)
		m->nr_channels = how == CHANNELS_SPLIT ? m->nr_groups : 1;
}

/* 1: the fault was found, 0: not, -1: the map could not be verified. */
static int found(uint32_t zones, uint32_t active, enum spoil how, uint64_t seed)
{
	struct zns_emu_params p = base(zones, 4, 4);
	const struct zns_emu_noise n = { .jitter_pct = 4, .seed = seed };
	struct zns_probe_params par = { .seed = seed };
	struct zns_probe_drift drift;
	struct zns_probe_map map = { 0 };
	cleanup_free uint32_t *die = NULL;
	uint64_t s = seed * 1000 + how;
	struct zns_dev *d;
	int rc;

	p.map_seed = seed;
	p.max_active = p.max_open = active;
	d = make(&p, &n, &die);
	assert_ok(zns_probe_alloc(&map, zones));
	map.nr_groups = 16;
	map.zone_write_mibps = 100;
	map.zone_read_mibps = 400;
	for (uint32_t z = 0; z < zones; z++)
		map.zone_group[z] = die[z];
	spoil(&map, how, &s);
	rc = zns_probe_verify(d, &par, &map, 0, &drift, &err);
	zns_probe_fini(&map);
	zns_dev_close(d);
	return rc ? -1 : drift.sets_wrong > 0;
}

static int power(uint64_t n, uint64_t first)
{
	static const uint32_t sizes[][2] = { { 96, 0 }, { 400, 0 }, { 400, 14 } };
	int bad = 0;

	for (uint32_t i = 0; i < ZNS_ARRAY_SIZE(sizes); i++)
		for (int how = 0; how < SPOILS; how++) {
			uint32_t count[3] = { 0 };

			for (uint64_t seed = first; seed < first + n; seed++)
				count[found(sizes[i][0], sizes[i][1], how, seed) + 1]++;
			printf("{\"zones\":%u,\"active\":%u,\"map\":\"%s\",\"found\":%u,\"passed\":%u,\"refused\":%u}\n",
			       sizes[i][0], sizes[i][1], spoil_name[how], count[2], count[1],
			       count[0]);
			fflush(stdout);
			bad |= how > ONE_ZONE && count[1];
		}
	return bad;
}

static void copy_map(struct zns_probe_map *to, const struct zns_probe_map *from)
{
	size_t bytes = from->nr_zones * sizeof(*from->zone_group);
	struct zns_probe_map m = *from;

	assert_ok(zns_probe_alloc(to, from->nr_zones));
	m.zone_group = memcpy(to->zone_group, from->zone_group, bytes);
	m.group_write_mibps = memcpy(to->group_write_mibps, from->group_write_mibps, bytes);
	m.group_read_mibps = memcpy(to->group_read_mibps, from->group_read_mibps, bytes);
	m.group_channel = memcpy(to->group_channel, from->group_channel, bytes);
	m.zone_confidence = to->zone_confidence;
	m.pivot = to->pivot;
	m.channel_confidence = to->channel_confidence;
	m.tested = to->tested;
	*to = m;
}

/* Can a map be wrong in this way? Faults of one group or channel need others. */
static bool can_have(const struct zns_probe_map *m, enum spoil how)
{
	if (how == CHANNELS_SPLIT || how == CHANNELS_MERGED)
		return m->nr_channels > 1 && m->nr_channels < m->nr_groups;
	return m->nr_groups > 1 || how == NOTHING || (how >= SPOILS && how != ONE_PROMISE_LOW);
}

/* Makes the map that a probe found wrong in each way, and has it judged again. */
static void judge_spoilt(uint64_t seed, uint32_t count[FAULTS][OUTCOMES])
{
	const struct zns_emu_noise none = { 0 };
	struct zns_probe_params par = { .seed = seed };
	char name[400];
	struct zns_emu_params p = draw(seed, name, sizeof(name));
	cleanup_free uint32_t *die = NULL;
	struct zns_dev *d = make(&p, &none, &die);
	struct zns_probe_map map = { 0 };
	int rc = zns_probe_run(d, &par, &map, &err);

	zns_dev_close(d);
	for (enum spoil how = NOTHING; !rc && how < FAULTS; how++) {
		struct result r = { .sustained = sustained_of(&p, die) };
		struct zns_probe_map m = { 0 };
		uint64_t s = seed;

		if (!can_have(&map, how))
			continue;
		copy_map(&m, &map);
		if (how < SPOILS)
			spoil(&m, how, &s);
		else
			spoil_rates(&m, how);
		judge(&p, die, &m, &r);
		count[how][r.outcome]++;
		if ((r.outcome == RIGHT) != (how == NOTHING))
			print(name, &p, &r);
		zns_probe_fini(&m);
	}
	zns_probe_fini(&map);
}

static int judged(uint64_t n, uint64_t first)
{
	uint32_t count[FAULTS][OUTCOMES] = { 0 };
	int bad = 0;

	for (uint64_t seed = first; seed < first + n; seed++)
		judge_spoilt(seed, count);
	for (enum spoil how = NOTHING; how < FAULTS; how++) {
		printf("{\"map\":\"%s\",\"right\":%u,\"wrong\":%u}\n", spoil_name[how],
		       count[how][RIGHT], count[how][WRONG]);
		bad |= count[how][how == NOTHING ? WRONG : RIGHT];
	}
	return bad ? 1 : 0;
}

/* How a drive has changed since it was probed. */
static const struct change {
	const char *drive, *now;
	uint32_t channels, ways, write_mibps, channel_mibps, odd_pct;
	uint32_t write_pct, read_pct; /* of what it was */
	bool changed;
} changes[] = {
	{ "a die of eight takes 3 times as long", "as it was", 4, 2, 100, 800, 300, 100, 100,
	  false },
	{ "a die of eight takes 3 times as long", "slower by a third", 4, 2, 100, 800, 300, 67, 67,
	  true },
	{ "eight dies", "as it was", 4, 2, 100, 800, 0, 100, 100, false },
	{ "eight dies", "written half as fast again", 4, 2, 100, 800, 0, 150, 100, true },
	{ "eight dies", "read half as fast again", 4, 2, 100, 800, 0, 100, 150, true },
	{ "eight dies", "read slower by a third", 4, 2, 100, 800, 0, 100, 67, true },
	{ "three dies of 150 on a channel of 200", "as it was", 4, 3, 150, 200, 0, 100, 100,
	  false },
};

/* -1: not probed, or not verified. Else: does the check say that something changed? */
static int said_changed(const struct change *c, uint64_t seed)
{
	struct zns_emu_params p = base(48, c->channels, c->ways);
	const struct zns_emu_noise n = { .jitter_pct = 4, .seed = seed };
	struct zns_probe_params par = { .seed = seed };
	struct zns_probe_drift d = { 0 };
	struct zns_probe_map m = { 0 };
	cleanup_free uint32_t *die = NULL, *same = NULL;
	struct zns_dev *dev;
	int rc;

	p.map_seed = seed;
	p.die_write_mibps = c->write_mibps;
	p.channel_mibps = c->channel_mibps;
	p.odd_dies = c->odd_pct ? 1 : 0;
	p.odd_pct = c->odd_pct;
	dev = make(&p, &n, &die);
	rc = zns_probe_run(dev, &par, &m, &err);
	zns_dev_close(dev);
	p.die_write_mibps = p.die_write_mibps * c->write_pct / 100;
	p.die_read_mibps = p.die_read_mibps * c->read_pct / 100;
	dev = make(&p, &n, &same);
	par.seed = seed + 1000000;
	m.written = 0;
	if (!rc)
		rc = zns_probe_verify(dev, &par, &m, 0, &d, &err);
	zns_probe_fini(&m);
	zns_dev_close(dev);
	return rc ? -1 : d.rates_changed || d.sets_wrong || d.domain_changed || d.channels_moved;
}

static int again(uint64_t n, uint64_t first)
{
	int bad = 0;

	for (uint32_t i = 0; i < ZNS_ARRAY_SIZE(changes); i++) {
		uint32_t count[3] = { 0 };

		for (uint64_t seed = first; seed < first + n; seed++)
			count[said_changed(&changes[i], seed) + 1]++;
		printf("{\"drive\":\"%s\",\"now\":\"%s\",\"changed\":%u,\"same\":%u,\"refused\":%u}\n",
		       changes[i].drive, changes[i].now, count[2], count[1], count[0]);
		fflush(stdout);
		bad |= count[0] || count[changes[i].changed ? 1 : 2];
	}
	return bad;
}

static struct zns_dev_ops until_killed;
static const struct zns_dev_ops *whole;
static uint64_t races, races_left;

/* Kills this process before a race, after half of a race's writes, or never. */
static int race_or_die(struct zns_dev *d, const struct zns_race *r, uint32_t nr, struct zns_err *e)
{
	races++;
	if (races_left && !--races_left) {
		whole->race(d, r, nr / 2, e);
		raise(SIGKILL);
	}
	return whole->race(d, r, nr, e);
}

static char state_path[200];

static void keep_state(void *arg, const void *state, size_t len)
{
	zns_replace_file(AT_FDCWD, state_path, state, len, 0600);
}

/* Continues a probe from its stored state, if there is one; *from: the phase that it began with. */
static int go_on(struct zns_dev *d, uint64_t seed, struct zns_probe_map *map, uint32_t *from)
{
	struct zns_probe_params par = { .seed = seed, .checkpoint = keep_state };
	cleanup_free uint8_t *state = NULL;
	size_t len;

	if (!zns_read_file(AT_FDCWD, state_path, MIB(1), &state, &len))
		assert_ok(zns_probe_load(state, len, d->geo.nr_zones, map, &err));
	*from = map->phase;
	whole = d->ops;
	until_killed = *whole;
	until_killed.race = race_or_die;
	d->ops = &until_killed;
	return zns_probe_run(d, &par, map, &err);
}

/* Kills a probe after this many races, and continues it. Returns how many races the rest took. */
static uint64_t kill_one(uint64_t after, uint64_t seed, enum outcome *out, uint32_t *from)
{
	struct zns_emu_params p = base(48 + seed % 40, 2 + seed % 3, 2);
	struct zns_probe_map map = { 0 };
	struct result r = { .outcome = REFUSED };
	cleanup_free uint32_t *die = calloc(p.nr_zones, sizeof(*die));
	struct zns_dev *d;
	pid_t pid;
	int st;

	assert_non_null(die);
	p.zone_size = p.zone_capacity = MIB(4);
	p.map_seed = seed;
	p.max_active = p.max_open = seed % 2 ? 12 : 0;
	unlink(dev_path);
	snprintf(state_path, sizeof(state_path), "%s.state", dev_path);
	unlink(state_path);
	d = make_dev(&p);
	assert_ok(zns_emu_set_clock(d, ZNS_EMU_CLOCK_THREAD, &err));
	assert_ok(zns_emu_zone_map(d, die, &err));
	pid = after ? fork() : -1;
	if (!pid) {
		races_left = after;
		go_on(d, seed, &map, from);
		_exit(0);
	}
	assert_true(!after || waitpid(pid, &st, 0) == pid);
	if (after && WIFEXITED(st)) /* this was done in an earlier run */
		unlink(state_path);
	races = 0;
	if (!go_on(d, seed + 1, &map, from)) {
		r.sustained = sustained_of(&p, die);
		judge(&p, die, &map, &r);
	} else {
		printf("{\"after\":%llu,\"why\":\"%s\"}\n", (unsigned long long)after, err.msg);
	}
	for (uint32_t z = 0; z < p.nr_zones; z++)
		assert_zone(d, z, ZNS_ZONE_EMPTY, 0);
	*out = r.outcome;
	zns_probe_fini(&map);
	zns_dev_close(d);
	return races;
}

static int kills(uint64_t n, uint64_t first)
{
	uint32_t sum[OUTCOMES] = { 0 }, resumed = 0, from;
	enum outcome out;

	for (uint64_t seed = first; seed < first + n; seed++) {
		uint64_t s = seed * UINT64_C(0x9e3779b97f4a7c15),
			 all = kill_one(0, seed, &out, &from);

		kill_one(1 + emu_random(&s) % all, seed, &out, &from);
		sum[out]++;
		resumed += from != ZNS_PROBE_CALIBRATE;
	}
	printf("{\"resumed\":%u}\n", resumed);
	total(sum);
	return sum[WRONG] || sum[REFUSED] ? 1 : 0;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "rows";
	uint64_t n = argc > 2 ? strtoull(argv[2], NULL, 0) : 50,
		 first = argc > 3 ? strtoull(argv[3], NULL, 0) : 1;
	int rc;

	if (emu_begin(NULL))
		return 2;
	rc = !strcmp(what, "rows")   ? rows(argc > 2 ? argv[2] : NULL) :
	     !strcmp(what, "random") ? drawn(n, first) :
	     !strcmp(what, "power")  ? power(n, first) :
	     !strcmp(what, "judge")  ? judged(n, first) :
	     !strcmp(what, "again")  ? again(n, first) :
	     !strcmp(what, "kill")   ? kills(n, first) :
				       2;
	return emu_end(NULL) ? 2 : rc;
}
