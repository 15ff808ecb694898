// SPDX-License-Identifier: GPL-2.0-only
/* A restore: the checkpoint's record, and a lease that keeps its zones from being reset. */
#include <string.h>
#include "../znsd.h"

static void protect(struct znsd *d, struct lease *l, const ZnsPb__Checkpoint *k)
{
	size_t i;

	for (i = 0; i < k->n_zones; i++)
		if (k->zones[i]->zone < d->nr_zones && !lease_zone_find(l, k->zones[i]->zone))
			lease_zone_add(d, l, k->zones[i]->zone, 0);
}

/* With @chain its parents too. */
static struct lease *lease_on(struct znsd *d, struct conn *c, const ProtobufCBinaryData *id, bool chain, struct reply *rep)
{
	const ZnsPb__Checkpoint *k;
	struct lease *l;
	size_t i;

	if (id->len != ZNS_UUID_LEN) {
		zns_fail(&rep->err, -EINVAL, "a checkpoint id has %d bytes", ZNS_UUID_LEN);
		return NULL;
	}
	k = zns_store_find(d->store, id->data);
	if (!k) {
		checkpoint_absent(d, id, "checkpoint", &rep->err);
		return NULL;
	}
	if (!chain) {
		rep->r.n_checkpoints = 1;
		rep->r.checkpoints = reply_alloc(rep, sizeof(*rep->r.checkpoints));
		rep->r.checkpoints[0] = (ZnsPb__Checkpoint *)k;
	} else if (parents_tell(d, k, rep)) {
		return NULL;
	}
	l = lease_new(d, c, false, k->container, k->id.data);
	l->groups = znsd_alloc(k->n_groups * sizeof(*l->groups));
	for (i = 0; i < k->n_groups; i++)
		if (k->groups[i] < d->nr_groups)
			l->groups[l->nr_groups++] = k->groups[i];
	for (i = 0; i < rep->r.n_checkpoints; i++)
		protect(d, l, rep->r.checkpoints[i]);
	return l;
}

struct lease *restore_lease(struct znsd *d, struct conn *c, const ProtobufCBinaryData *id, struct reply *rep)
{
	return lease_on(d, c, id, false, rep);
}

int handle_restore_begin(struct znsd *d, struct conn *c, const ZnsPb__RestoreBegin *q, struct reply *rep)
{
	struct lease *l = lease_on(d, c, &q->checkpoint, q->chain, rep);

	if (!l)
		return rep->err.code;
	rep->r.has_rate_mibps = rep->r.has_one_domain = 1;
	rep->r.rate_mibps = rate_limit(d, l);
	rep->r.one_domain = rate_one_domain(d);
	rep->r.restore = restore_of(d, l->container);
	return 0;
}
