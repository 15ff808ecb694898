/* SPDX-License-Identifier: GPL-2.0-only */
/* Leases of readers: such a lease keeps the zones of a checkpoint from being reset. */
#include <string.h>
#include "policy.h"

static void protect(struct znsd *d, struct lease *l, const ZnsPb__Checkpoint *k)
{
	size_t i;

	for (i = 0; i < k->n_zones; i++)
		if (k->zones[i]->zone < d->nr_zones && !lease_zone_find(l, k->zones[i]->zone))
			lease_zone_add(d, l, k->zones[i]->zone, 0);
}

int read_begin(struct znsd *d, const struct holder *who, const ProtobufCBinaryData *id,
	       bool with_parents, struct chain *chain, struct lease **out, struct zns_err *err)
{
	const ZnsPb__Checkpoint *k;
	struct lease *l;
	size_t i;
	int ret;

	*chain = (struct chain){ .v = NULL };
	if (id->len != ZNS_UUID_LEN)
		return zns_fail(err, -EINVAL, "a checkpoint's id must have %d bytes", ZNS_UUID_LEN);
	k = zns_store_find(d->store, id->data);
	if (!k)
		return checkpoint_absent(d, id, "checkpoint", err);
	if (with_parents) {
		ret = chain_of(d, k, chain, err);
		if (ret)
			return ret;
	} else {
		chain->v = znsd_alloc(sizeof(*chain->v));
		chain->v[chain->nr++] = k;
	}
	l = *out = lease_new(d, who->conn, who->pid, LEASE_RESTORE, k->container, k->id.data);
	l->groups = znsd_alloc(k->n_groups * sizeof(*l->groups));
	for (i = 0; i < k->n_groups; i++)
		if (k->groups[i] < d->nr_groups)
			l->groups[l->nr_groups++] = k->groups[i];
	for (i = 0; i < chain->nr; i++)
		protect(d, l, chain->v[i]);
	weight_reader(d, l, chain);
	return 0;
}
