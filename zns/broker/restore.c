// SPDX-License-Identifier: GPL-2.0-only
/* A restore: the checkpoint's record, and a lease that keeps its zones from being reset. */
#include <string.h>
#include "znsd.h"

struct lease *restore_lease(struct znsd *d, struct conn *c, const ProtobufCBinaryData *id, struct reply *rep)
{
	const ZnsPb__Checkpoint *k;
	const ZnsPb__Tombstone *t;
	char str[ZNS_UUID_STR], when[32];
	struct lease *l;
	size_t i;

	if (id->len != ZNS_UUID_LEN) {
		zns_fail(&rep->err, -EINVAL, "a checkpoint id has %d bytes", ZNS_UUID_LEN);
		return NULL;
	}
	zns_uuid_format(id->data, str);
	k = zns_store_find(d->store, id->data);
	if (!k) {
		t = zns_store_find_tombstone(d->store, id->data);
		if (t)
			zns_fail(&rep->err, -ESTALE, "checkpoint %s of container %s was deleted at %s by %s", str,
				 t->container ? t->container : "(unknown)",
				 zns_format_time(t->deleted_ns, when, sizeof(when)), t->by);
		else
			zns_fail(&rep->err, -ENOENT, "%s has no checkpoint %s", d->reg.path, str);
		return NULL;
	}
	l = lease_new(d, c, false, k->container, k->id.data);
	l->groups = znsd_alloc(k->n_groups * sizeof(*l->groups));
	for (i = 0; i < k->n_groups; i++)
		if (k->groups[i] < d->nr_groups)
			l->groups[l->nr_groups++] = k->groups[i];
	for (i = 0; i < k->n_zones; i++)
		if (k->zones[i]->zone < d->nr_zones && !lease_zone_find(l, k->zones[i]->zone))
			lease_zone_add(d, l, k->zones[i]->zone, 0);
	rep->r.n_checkpoints = 1;
	rep->r.checkpoints = reply_alloc(rep, sizeof(*rep->r.checkpoints));
	rep->r.checkpoints[0] = (ZnsPb__Checkpoint *)k;
	return l;
}

int handle_restore_begin(struct znsd *d, struct conn *c, const ZnsPb__RestoreBegin *q, struct reply *rep)
{
	struct lease *l = restore_lease(d, c, &q->checkpoint, rep);

	if (!l)
		return rep->err.code;
	rep->r.has_rate_mibps = rep->r.has_one_domain = 1;
	rep->r.rate_mibps = rate_limit(d, l);
	rep->r.one_domain = rate_one_domain(d);
	rep->r.restore = restore_of(d, l->container);
	return 0;
}
