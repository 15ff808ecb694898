/* SPDX-License-Identifier: GPL-2.0-only */
/* Decides when the broker itself runs `znsctl gc`, which nothing else does on a machine without
 * systemd or with the timer disabled. The broker starts it only if there is something that it could
 * remove and no dump is running. If a timer runs it every hour, the broker never needs to. */
#include <string.h>
#include "policy.h"

/* Is there a checkpoint of a container runtime, or a retention rule? `znsctl gc` removes nothing
 * else. */
static bool has_cause(const struct znsd *d)
{
	const ZnsPb__Checkpoint *c;

	if (zns_store_retention(d->store, 0))
		return true;
	for (size_t i = 0; (c = zns_store_checkpoint(d->store, i)); i++)
		if (c->origin && c->origin->container_id)
			return true;
	return false;
}

bool gc_due(const struct znsd *d, uint64_t last_ns, uint64_t every_s, bool *from_now)
{
	uint64_t now = zns_mono_ns();
	const struct lease *l;

	/* a time from before the last boot may be in the future */
	*from_now = every_s && (!last_ns || last_ns > now);
	if (!every_s || *from_now || (now - last_ns) / 1000000000 < every_s)
		return false;
	for (l = d->leases; l; l = l->next)
		if (lease_admitted(l))
			return false;
	return has_cause(d);
}
