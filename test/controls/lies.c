/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* ZNS_EMU_LIES: a drive that does not do what it says. */
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

int control_lies_from_env(struct emu *e, struct zns_err *err)
{
	const char *env = secure_getenv("ZNS_EMU_LIES");

	if (!env || !*env)
		return 0;
	if (!strcmp(env, "flush") || !strcmp(env, "hang")) {
		e->control->ops = *e->dev.ops;
		e->dev.ops = &e->control->ops;
	}
	if (!strcmp(env, "hang")) {
		e->control->ops.append = no_append;
		e->control->ops.race = no_race;
	} else if (!strcmp(env, "flush")) {
		e->control->ops.flush = no_flush;
		e->control->ops.flush_zones = no_flush_zones;
	} else if (!strcmp(env, "open")) {
		e->dev.geo.max_open += 2;
		e->dev.geo.max_active += 2;
	} else {
		return zns_fail(err, -EINVAL,
				"ZNS_EMU_LIES=\"%.64s\": should be \"flush\", \"open\" or \"hang\"",
				env);
	}
	return 0;
}
