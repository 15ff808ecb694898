/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* ZNS_EMU_LIES: a drive that reports success without doing the work. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control.h"

static int no_flush(struct zns_dev *d, struct zns_err *err)
{
	return 0;
}

static int no_flush_zones(struct zns_dev *d, const uint32_t *zones, uint32_t nr,
			  struct zns_err *err)
{
	return 0;
}

static _Noreturn int no_append(struct zns_dev *d, uint32_t zone, const void *buf, size_t len,
			       uint64_t *off, struct zns_err *err)
{
	for (;;)
		pause();
}

static _Noreturn int no_race(struct zns_dev *d, const struct zns_race *r, uint32_t nr,
			     struct zns_err *err)
{
	for (;;)
		pause();
}

/* The zone that some lies are about. No case of the conformance suite uses it alone. */
static uint32_t odd_zone(const struct zns_dev *d)
{
	return d->geo.nr_zones / 2 + 1;
}

static struct zns_zone *odd_of(struct zns_dev *d, uint32_t first, uint32_t nr, struct zns_zone *out)
{
	uint32_t odd = odd_zone(d);

	return odd >= first && odd - first < nr ? &out[odd - first] : NULL;
}

/* One zone is reported a block larger than it is. */
static int large_report(struct zns_dev *d, uint32_t first, uint32_t nr, struct zns_zone *out,
			struct zns_err *err)
{
	int ret = emu_ops.report(d, first, nr, out, err);
	struct zns_zone *odd = ret ? NULL : odd_of(d, first, nr, out);

	if (odd)
		odd->capacity += d->geo.block_size;
	return ret;
}

/* Another zone is reported to be written a block less far than it is. */
static int late_report(struct zns_dev *d, uint32_t first, uint32_t nr, struct zns_zone *out,
		       struct zns_err *err)
{
	int ret = emu_ops.report(d, first, nr, out, err);
	struct zns_zone *odd = ret ? NULL : odd_of(d, first, nr, out);

	if (odd && odd->state != ZNS_ZONE_FULL && odd->wp >= d->geo.block_size)
		odd->wp -= d->geo.block_size;
	return ret;
}

/* Every 16th append of a handle returns a place, but is lost. */
static int lost_append(struct zns_dev *d, uint32_t zone, const void *buf, size_t len, uint64_t *off,
		       struct zns_err *err)
{
	struct zns_zone z;
	int ret;

	if (!len || atomic_fetch_add(&emu_of(d)->control->appends, 1) % 16 != 15)
		return emu_ops.append(d, zone, buf, len, off, err);
	ret = emu_ops.report(d, zone, 1, &z, err);
	if (!ret)
		*off = z.wp;
	return ret;
}

static void limits(struct zns_geometry *g, int more)
{
	g->max_open += more;
	g->max_active += more;
}

int control_lies_from_env(struct emu *e, struct zns_err *err)
{
	const char *env = secure_getenv("ZNS_EMU_LIES");
	struct zns_dev_ops *ops = &e->control->ops;

	if (!env || !*env)
		return 0;
	if (!strcmp(env, "open")) {
		limits(&e->dev.geo, 2);
		return 0;
	}
	if (!strcmp(env, "low")) {
		limits(&e->dev.geo, -2);
		return 0;
	}
	*ops = *e->dev.ops;
	e->dev.ops = ops;
	if (!strcmp(env, "hang")) {
		ops->append = no_append;
		ops->race = no_race;
	} else if (!strcmp(env, "flush")) {
		ops->flush = no_flush;
		ops->flush_zones = no_flush_zones;
	} else if (!strcmp(env, "capacity")) {
		ops->report = large_report;
	} else if (!strcmp(env, "pointer")) {
		ops->report = late_report;
	} else if (!strcmp(env, "append")) {
		ops->append = lost_append;
	} else {
		return zns_fail(err, -EINVAL,
				"ZNS_EMU_LIES=\"%.64s\": controls.h has the words for it", env);
	}
	return 0;
}
