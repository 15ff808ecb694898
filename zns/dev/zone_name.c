/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Names of zone states. */
#include "zns/dev.h"
#include "zns/util.h"

const char *zns_zone_state_name(enum zns_zone_state state)
{
	static const char *const name[ZNS_ZONE_NR_STATES] = {
		[ZNS_ZONE_EMPTY] = "empty",     [ZNS_ZONE_IMP_OPEN] = "open",
		[ZNS_ZONE_EXP_OPEN] = "open",   [ZNS_ZONE_CLOSED] = "closed",
		[ZNS_ZONE_FULL] = "full",       [ZNS_ZONE_READ_ONLY] = "read-only",
		[ZNS_ZONE_OFFLINE] = "offline",
	};

	return (unsigned)state < ZNS_ZONE_NR_STATES ? name[state] : "unknown";
}
