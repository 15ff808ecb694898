/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* ZNS_EMU_LIES: a drive that does not do what it says. */
#include <stdlib.h>
#include <string.h>

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

int control_lies_from_env(struct emu *e, struct zns_err *err)
{
	const char *env = secure_getenv("ZNS_EMU_LIES");

	if (!env || !*env)
		return 0;
	if (!strcmp(env, "flush")) {
		e->control->ops = *e->dev.ops;
		e->control->ops.flush = no_flush;
		e->control->ops.flush_zones = no_flush_zones;
		e->dev.ops = &e->control->ops;
	} else if (!strcmp(env, "open")) {
		e->dev.geo.max_open += 2;
		e->dev.geo.max_active += 2;
	} else {
		return zns_fail(err, -EINVAL,
				"ZNS_EMU_LIES=\"%.64s\": should be \"flush\" or \"open\"", env);
	}
	return 0;
}
