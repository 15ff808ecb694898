/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Measures the rate of one zone, and whether several zones together are faster than one. If they
 * are not, the drive is one domain.
 */
#include "probe_priv.h"

#define TOGETHER 8u /* most zones that are written together */
#define ROUNDS 4u
/* number of rounds if fewer than four zones fit, which may share a die by chance */
#define ROUNDS_MAX 9u
#define DOMAIN_ROUNDS 6u /* number of rounds before the drive may count as one domain */
#define DOMAIN_LEAST 3u /* with fewer rounds, as a small budget allows, the result is doubtful */
#define SOLO_LEAST 12u /* fewest units that are written to a zone alone */
#define SOLO_MOST 40u
#define EACH_LEAST 8u /* fewest units that are written to each of several zones */
#define EACH_MOST 12u
#define ONE_DOMAIN 1.3 /* multiple of the rate of one zone: below it all zones are one domain */
#define SHARE 0.3 /* share of the budget for the rounds that look for one domain */
#define FAST 1.06 /* multiple of the sum of rates: above it, zones alone are measured again */
#define MORE 6u /* how often zones alone are measured again */
#define TOO_MUCH 1.15 /* multiple of the sum of rates that no drive reaches */
#define BUFFERS 4u /* units that a zone's own buffer may hold */
#define CACHED 1.5 /* multiple of the medium's rate: above it, a cache has accepted the data */
/* Multiple of the read rate: writes to flash are never faster than this. */
#define FASTER 1.25
#define AGREE 0.2 /* rounds agree if they differ from the median by at most this part */

static uint32_t clamp(uint64_t v, uint32_t low, uint32_t high)
{
	return v < low ? low : v > high ? high : v;
}

/*
 * Notes a write cache: the device has one if it accepts data faster than it programs them. A buffer
 * of a few units for each zone does not count.
 */
static void note_cache(struct probe *p, uint32_t n, uint32_t each, double ns)
{
	double held = (double)n * each * (1 - p->accept_ns / ns);
	uint32_t mib = held * p->unit / MIB(1);

	if (held < BUFFERS * n || p->accept_ns * CACHED > ns || mib <= p->map->cache_mib)
		return;
	p->map->cache_mib = mib;
	p->map->cached_write_mibps = probe_set_mibps(p, n, each, p->accept_ns);
}

static int one_round(struct probe *p, uint32_t n, uint32_t solo, uint32_t each, double *write,
		     double *read, double *together, struct zns_err *err)
{
	uint32_t zones[TOGETHER], got = probe_pick_empty(p, zones, n);
	double ns;
	int ret;

	*together = 0;

	if (got < n)
		return zns_fail(
			err, -ENODATA,
			"%s has too few empty zones to measure with: remove checkpoints first",
			p->d->path);
	ret = probe_write_timed(p, zones, 1, solo, &ns, err);
	*write = probe_set_mibps(p, 1, solo, ns);
	if (!ret)
		ret = probe_read_rate(p, zones[0], solo, read, err);
	if (!ret)
		ret = probe_drop(p, zones, 1, err);
	if (ret || n == 1)
		return ret;
	ret = probe_write_set(p, zones, n, each, &ns, err);
	*together = probe_set_mibps(p, n, each, ns);
	note_cache(p, n, each, ns);
	return ret;
}

/* Do most of the rounds agree? */
static bool agree(const double *v, uint32_t n, double median)
{
	uint32_t alike = 0;

	for (uint32_t i = 0; i < n; i++)
		alike += v[i] > (1 - AGREE) * median && v[i] < (1 + AGREE) * median;
	return alike * 3 >= n * 2;
}

int probe_rates(struct probe *p, struct zns_err *err)
{
	uint64_t total = (p->budget - zns_min(p->budget, p->map->written)) / p->unit;
	uint32_t n = zns_min(zns_min(p->room, p->open_room), TOGETHER), rounds, solo, each,
		 empty = 0;
	uint32_t fits = p->d->geo.zone_capacity / p->unit;
	int ret;
	double write[ROUNDS_MAX] = { 0 }, read[ROUNDS_MAX] = { 0 }, together[ROUNDS_MAX], most = 0,
	       one = 0;

	for (uint32_t z = 0; z < p->nr; z++)
		empty += p->kind[z] == KIND_EMPTY && p->typical[z];
	n = zns_min(n, empty);
	/*
	 * A few zones may share a die by chance, so they get more rounds, within this share of the
	 * budget.
	 */
	if (ROUNDS * (SOLO_LEAST + n * EACH_LEAST) > total * SHARE)
		n = zns_min(n, 4u);
	rounds = n < 4 ? ROUNDS_MAX : ROUNDS;
	while (rounds > 1 && rounds * (SOLO_LEAST + n * EACH_LEAST) > total * SHARE)
		rounds--;
	if (!n)
		return zns_fail(err, -ENODATA,
				"%s has no empty zone to measure with: remove checkpoints first",
				p->d->path);
	solo = zns_min(clamp(total / 10 / rounds, SOLO_LEAST, SOLO_MOST), fits);
	/* NOLINTNEXTLINE(clang-analyzer-core.DivideZero): n is not 0, see above */
	each = zns_min(clamp(total * 2 / 10 / rounds / n, EACH_LEAST, EACH_MOST), fits);
	for (uint32_t i = 0; i < rounds; i++) {
		ret = one_round(p, n, solo, each, &write[i], &read[i], &together[i], err);

		if (ret)
			return ret;
		most = zns_max(most, together[i]);
		one = zns_max(one, write[i]);
		probe_tick(p, i + 1, rounds);
		/* The result `one domain` must be certain, since no further test follows it. */
		if (i + 1 == rounds && n > 1 && most < ONE_DOMAIN * one && rounds < DOMAIN_ROUNDS &&
		    p->map->written + (solo + (uint64_t)n * each) * p->unit <= p->budget)
			rounds++;
	}
	/*
	 * it is too fast to be true: each zone alone may have been disturbed, so measure some again
	 */
	for (uint32_t i = 0;
	     n > 1 && most > FAST * n * one && i < MORE && total > 2 * rounds * (solo + n * each);
	     i++) {
		double again, as_fast, none;

		ret = one_round(p, 1, solo, each, &again, &as_fast, &none, err);

		if (ret)
			return ret;
		one = zns_max(one, again);
	}
	p->map->zone_write_mibps = zns_max(probe_median(write, rounds) + 0.5, 1.0);
	p->map->zone_read_mibps = zns_max(probe_median(read, rounds) + 0.5, 1.0);
	/* use the best of each, since stalls and shared dies only lower the rate */
	p->map->scaling = n > 1 ? most / one : 1;
	p->map->one_domain = p->map->scaling < ONE_DOMAIN;
	if (p->map->scaling > TOO_MUCH * n)
		probe_doubt(
			p,
			"%u zones together were written %.1f times as fast as one, which no drive can",
			n, p->map->scaling);
	if (p->map->zone_write_mibps > FASTER * p->map->zone_read_mibps)
		return zns_fail(
			err, -EAGAIN,
			"cannot be measured: a zone is written at %u MiB/s and read at %u, so writes go into a cache that a flush does not empty; nothing is stored",
			p->map->zone_write_mibps, p->map->zone_read_mibps);
	if (!p->map->one_domain)
		return 0;
	ret = probe_settled(p, err);
	if (ret)
		return ret;
	if (n == 1)
		probe_doubt(
			p,
			"only one zone can be written at a time, so whether zones are independent cannot be seen");
	else if (rounds < DOMAIN_LEAST)
		probe_doubt(
			p,
			"zones together seem to be written no faster than one, but the budget is enough for %u tries only: give a larger --budget",
			rounds);
	if (!agree(write, rounds, probe_median(write, rounds)) ||
	    (n > 1 && !agree(together, rounds, probe_median(together, rounds))))
		probe_doubt(
			p,
			"zones together seem to be written no faster than one, but their rates differ by more than %.0f %% from one time to the next",
			100 * AGREE);
	/*
	 * Laplace's rule of succession: the probability for the next zone, if all zones so far
	 * behaved the same.
	 */
	for (uint32_t z = 0; z < p->nr; z++) {
		p->map->zone_group[z] = 0;
		p->map->zone_confidence[z] = 1 - 1.0 / (rounds * n + 2);
	}
	p->map->nr_groups = 1;
	p->map->pivot[0] = 0;
	p->map->group_channel[0] = ZNS_PROBE_NONE;
	p->map->channel_confidence[0] = 0;
	p->map->nr_channels = 0;
	return 0;
}
