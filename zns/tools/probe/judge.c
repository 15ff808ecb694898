/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Decides whether the map may be stored. A wrong map is worse than none, since promises depend on
 * it. So every sign of a bad measurement is an error that names it, unless the caller wants the map
 * anyway.
 */
#include <stdarg.h>

#include "probe_priv.h"

#define LOOK_AFTER 1000u /* number of bursts before disturbed ones are counted */
#define HOPELESS 0.85 /* share of disturbed bursts above which the run ends */
#define SPOILED_MAX 0.6 /* share of disturbed bursts above which the map is doubtful */
#define OVERRULED_MAX 0.05 /* share of outvoted votes above which the map is doubtful */
#define UNTOLD_MAX 0.1 /* share of undecided tests above which the map is doubtful */
#define LEAST 0.99 /* confidence below which the map is doubtful */

void probe_doubt(struct probe *p, const char *fmt, ...)
{
	va_list ap;

	if (p->map->doubt[0])
		return;
	va_start(ap, fmt);
	vsnprintf(p->map->doubt, sizeof(p->map->doubt), fmt, ap);
	va_end(ap);
}

void probe_doubt_channels(struct probe *p, const char *fmt, ...)
{
	va_list ap;

	if (p->map->channel_doubt[0])
		return;
	va_start(ap, fmt);
	vsnprintf(p->map->channel_doubt, sizeof(p->map->channel_doubt), fmt, ap);
	va_end(ap);
}

int probe_hopeless(struct probe *p, struct zns_err *err)
{
	if (p->races < LOOK_AFTER || p->spoiled < HOPELESS * p->races)
		return 0;
	return zns_fail(
		err, -EAGAIN,
		"cannot be measured: %llu of %llu measurements were spoiled by something that hits the whole device or this host; nothing is stored: let both be idle and probe again",
		(unsigned long long)p->spoiled, (unsigned long long)p->races);
}

/*
 * Notes doubts that come from reads. They do not apply if every set of a full sample was as
 * predicted.
 */
static void doubt_reads(struct probe *p)
{
	struct zns_probe_map *m = p->map;

	if (p->retest_short)
		probe_doubt(
			p,
			"the budget is enough for %u tests of what was found only: give a larger --budget",
			m->retests);
	if (p->retests_untold > UNTOLD_MAX * (m->retests + p->retests_untold))
		probe_doubt(p, "%u of %u tests of what was found had no clear answer",
			    p->retests_untold, m->retests + p->retests_untold);
	if (m->spoiled > SPOILED_MAX)
		probe_doubt(
			p,
			"%.0f %% of all measurements were spoiled by something that hits the whole device or this host",
			100 * m->spoiled);
	if (m->overruled > OVERRULED_MAX)
		probe_doubt(p, "%.0f %% of all votes were overruled by others on the same question",
			    100 * m->overruled);
}

int probe_judge(struct probe *p, struct zns_err *err)
{
	struct zns_probe_map *m = p->map;

	m->spoiled = p->races ? (double)p->spoiled / p->races : 0;
	m->overruled = p->votes ? (double)p->dissents / p->votes : 0;
	if (!p->proved && !m->one_domain)
		doubt_reads(p);
	if (!m->one_domain && m->confidence < LEAST)
		probe_doubt(
			p,
			"of %u zones that were tested once more %u are in a wrong group, and %u zones are unknown: only %.2f %% of the zones are certain to be right, and %.1f %% should be",
			m->retests, m->retests_wrong, m->nr_unknown, 100 * m->confidence,
			100 * LEAST);
	if (!m->doubt[0] || p->par->force)
		return 0;
	return zns_fail(
		err, -EAGAIN,
		"cannot be measured well enough: %s; nothing is stored: let the device and this host be idle and probe again, or store it all the same with --force",
		m->doubt);
}
