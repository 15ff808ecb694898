/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Checkpoints in which running programs still have memory: a restore into a memory context leaves
 * it there until it is touched. The context's lock file names the checkpoint, so this holds as long
 * as the context lives, whatever becomes of its pager and of us.
 */
#include <string.h>
#include "zns/chain.h"
#include "zns/context.h"
#include "policy.h"

static bool built_on(const struct znsd *d, const uint8_t *from, const uint8_t *id)
{
	const ZnsPb__Checkpoint *k = zns_store_find(d->store, from);

	for (int n = 0; k && n < ZNS_CHAIN_MAX; n++) {
		if (!memcmp(k->id.data, id, ZNS_UUID_LEN))
			return true;
		k = k->has_parent ? zns_store_find(d->store, k->parent.data) : NULL;
	}
	return false;
}

const struct lease *memory_in(const struct znsd *d, const uint8_t *id)
{
	static const uint8_t none[ZNS_UUID_LEN];
	const struct lease *l;
	struct zns_context c;

	for (l = d->leases; l; l = l->next)
		if (l->kind == LEASE_MEMORY && !zns_context_read(l->memory.fd, 0, &c, NULL) &&
		    memcmp(c.origin, none, ZNS_UUID_LEN) && built_on(d, c.origin, id))
			return l;
	return NULL;
}

int memory_may_go(const struct znsd *d, const uint8_t *id, struct zns_err *err)
{
	const struct lease *l = memory_in(d, id);
	char text[ZNS_UUID_STR];

	if (!l)
		return 0;
	/* the lease is called memory:NAME */
	return zns_fail(err, -EBUSY,
			"checkpoint %s has memory of the running program %s: `znsctl memory detach "
			"%s` reads it back first",
			zns_uuid_format(id, text), strchr(l->container, ':') + 1,
			strchr(l->container, ':') + 1);
}
