/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A dump of a program whose memory is on zones refers to the memory context's units at their
 * present places. While the dump runs, a second lease of its connection reads all zones of the
 * context: the context may give zones back, but they are not reset. After the commit the
 * checkpoint's record protects the units.
 */
#include <string.h>
#include "policy.h"

static struct lease *find_named(const struct znsd *d, const struct lease *dump, uint32_t zone)
{
	struct lease *l;

	for (l = d->leases; l; l = l->next)
		if (l->kind == LEASE_NAMED && l->conn == dump->conn &&
		    (zone == ZNSD_NONE || lease_zone_find(l, zone)))
			return l;
	return NULL;
}

int naming_begin(struct znsd *d, struct lease *dump, const ZnsPb__MemoryNaming *q,
		 struct zns_err *err)
{
	struct lease *m, *l;
	uint32_t i;

	if (q->context.len != ZNS_UUID_LEN)
		return zns_fail(err, -EINVAL, "a memory context's id must have %d bytes",
				ZNS_UUID_LEN);
	m = yielding_find(d, q->context.data);
	if (m && dump->dump.encrypted != m->yields.encrypted)
		return zns_fail(
			err, -EOPNOTSUPP,
			"only one of this checkpoint and the program's memory on zones is encrypted: `znsctl memory detach` the program first");
	if (!m)
		return zns_fail(
			err, -ENOENT,
			"the program's memory is on zones of another device than %s, or its "
			"pager died just now: run the dump again",
			d->reg.path);
	l = lease_new(d, dump->conn, dump->pid, LEASE_NAMED, dump->container, m->id);
	for (i = 0; i < m->nr_zones; i++)
		lease_zone_add(d, l, m->zones[i].zone, 0);
	return 0;
}

int naming_refresh(struct znsd *d, const struct lease *dump, struct zns_err *err)
{
	struct lease *l;
	uint32_t i;
	int ret = 0;

	for (l = d->leases; l; l = l->next)
		for (i = 0;
		     !ret && l->kind == LEASE_NAMED && l->conn == dump->conn && i < l->nr_zones;
		     i++)
			ret = zones_refresh(d, l->zones[i].zone, 1, err);
	return ret;
}

int naming_check(const struct znsd *d, const struct lease *dump, const ZnsPb__ZoneUse *u,
		 struct zns_err *err)
{
	const struct lease *l = find_named(d, dump, u->zone);

	if (!l || u->memory.len != ZNS_UUID_LEN || memcmp(u->memory.data, l->id, ZNS_UUID_LEN))
		return zns_fail(err, -EINVAL,
				"commit: zone %u holds no memory that this dump may refer to",
				u->zone);
	if (d->zones[u->zone].z.state == ZNS_ZONE_OFFLINE)
		return zns_fail(err, -ENXIO, "commit: zone %u turned offline", u->zone);
	if (u->start || !u->len || u->len > d->zones[u->zone].z.wp)
		return zns_fail(err, -EINVAL,
				"commit: zone %u: bytes %llu+%llu are not what the context wrote",
				u->zone, (unsigned long long)u->start, (unsigned long long)u->len);
	return 0;
}

void naming_end(struct znsd *d, const struct lease *dump)
{
	struct lease *l;

	while ((l = find_named(d, dump, ZNSD_NONE)))
		lease_end(d, l);
}
