/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Zones for memory contexts. A context's lease belongs to no connection: it exists as long as a
 * process holds the lock on the context's lock file, and any connection that names the context
 * takes over the lease. A zone is written into the lock file before it is granted, so the next
 * broker knows it too (adopt_all). A context's writes give way to dumps and restores, its reads do
 * not.
 */
#include <string.h>
#include "zns/broker.h"
#include "zns/context.h"
#include "memory.h"

#define WIDTH_MAX 16u
#define WIDTH_UNASKED 4u
#define LOOK_NS 500000000ull /* ns between two checks of a lock file */

/* Finds the context's lease; NULL: it has none. */
static struct lease *find(const struct znsd *d, const uint8_t *id)
{
	struct lease *l = yielding_find(d, id);

	return l && memory_is(l) ? l : NULL;
}

/*
 * Chooses the best groups, as for a dump that shares no group. Never chooses all groups, since
 * dumps need some too.
 */
static int choose(struct znsd *d, struct lease *l, const ZnsPb__MemoryBegin *q, struct zns_err *err)
{
	cleanup_free struct zns_group_state *gs = znsd_alloc(d->nr_groups * sizeof(*gs));
	uint32_t width = q->width, most = zns_max(1u, d->nr_groups / 2), n;

	if (!width)
		width = q->qos_mibps ? zns_alloc_width(q->qos_mibps, d->zone_mibps) :
				       zns_min(WIDTH_UNASKED, zns_max(1u, d->nr_groups / 4));
	width = zns_min(zns_min(width, most), WIDTH_MAX);
	groups_state(d, l->container, l, gs);
	l->groups = znsd_alloc(d->nr_groups * sizeof(*l->groups));
	n = zns_alloc_pick(gs, d->nr_groups, width, l->groups);
	if (!n)
		return zns_fail(err, -ENOSPC,
				"%s has no free zone for memory; `znsctl gc --compact` or "
				"`znsctl rm` makes room",
				d->reg.path);
	l->nr_groups = memory_of(l)->width = n;
	return 0;
}

static struct lease *new_lease(struct znsd *d, const struct zns_context *c, int fd, uint32_t pid)
{
	char name[sizeof(c->container) + 16];
	struct lease *l;

	/* the container's own name would let the container's dumps continue these zones */
	snprintf(name, sizeof(name), "memory:%s", c->container);
	l = lease_new(d, NULL, pid, LEASE_YIELDING, name, c->id);
	l->yields.ops = &memory_leases;
	l->yields.own = znsd_alloc(sizeof(struct memory_lease));
	l->yields.encrypted = c->encrypted;
	memory_of(l)->fd = fd;
	return l;
}

/* Stops writing to the zones that another connection of this context was writing. */
static void take_over(struct znsd *d, struct lease *l, const struct holder *who)
{
	uint32_t i;

	l->conn = who->conn;
	l->pid = who->pid;
	for (i = 0; i < l->nr_zones; i++) {
		l->zones[i].done = true;
		zone_close(d, l->zones[i].zone);
	}
	d->park_check = d->freed = true;
}

static bool over(struct lease *l)
{
	uint64_t now = zns_mono_ns();

	if (now < memory_of(l)->look_ns)
		return false;
	memory_of(l)->look_ns = now + LOOK_NS;
	return !zns_context_alive(memory_of(l)->fd);
}

int memory_begin(struct znsd *d, const struct holder *who, const ZnsPb__MemoryBegin *q,
		 struct lease **out, struct zns_err *err)
{
	cleanup_close int fd = -1;
	struct zns_context c;
	struct lease *l;
	int ret;

	if (lease_last(d, who->conn))
		return zns_fail(err, -EBUSY, "this connection has a lease already");
	if (q->context.len != ZNS_UUID_LEN)
		return zns_fail(err, -EINVAL, "a memory context's id must have %d bytes",
				ZNS_UUID_LEN);
	l = find(d, q->context.data);
	if (l && !over(l)) {
		take_over(d, l, who);
		*out = l;
		return 0;
	}
	ret = zns_context_open(d->reg.uuid, q->context.data, d->nr_zones, &c, &fd, err);
	if (ret)
		return ret;
	if (wanted_encryption(d) && !c.encrypted)
		return zns_fail(err, -EOPNOTSUPP,
				"%s takes encrypted data only, and this memory would not be",
				d->reg.path);
	if (!zns_context_alive(fd))
		return zns_fail(err, -ESTALE, "nobody holds the lock file of this context");
	l = new_lease(d, &c, zns_take_fd(&fd), who->pid);
	l->conn = who->conn;
	ret = choose(d, l, q, err);
	if (ret) {
		lease_unlink(d, l);
		lease_free(l);
		return ret;
	}
	*out = l;
	return 0;
}

static void note(struct znsd *d, struct lease *l, const uint32_t *zones, size_t nr, bool bad)
{
	size_t i;

	for (i = 0; i < nr; i++) {
		struct lease_zone *lz = lease_zone_find(l, zones[i]);

		if (!lz || lz->bad || (lz->done && !bad))
			continue;
		lz->done = true;
		if (bad) {
			lz->bad = d->zones[zones[i]].suspect = true;
			znsd_say(LOG_WARNING, l, "zone %u failed a write of %s", zones[i],
				 l->container);
		}
		zone_close(d, zones[i]);
		d->park_check = d->freed = true;
	}
}

int memory_zone(struct znsd *d, struct lease *l, const ZnsPb__MemoryZone *q, uint32_t *zone,
		struct zns_err *err)
{
	struct wish w = {
		.l = l, .not_zones = q->not_zones, .nr_not = q->n_not_zones, .spares = true
	};
	char most[YIELDING_MOST_MAX];
	uint32_t i;
	int ret;

	if (q->group >= d->nr_groups || !lease_has_group(l, q->group))
		return zns_fail(err, -EINVAL, "group %u was not granted to this context", q->group);
	note(d, l, q->not_zones, q->n_not_zones, true);
	note(d, l, q->done_zones, q->n_done_zones, false);
	for (i = 0; i < l->nr_zones; i++)
		if (!l->zones[i].done)
			zones_refresh(d, l->zones[i].zone, 1, NULL);
	if (d->policy->nr_waiting || d->policy->compact_yield)
		return zns_fail(err, -EBUSY, "dumps wait for zones of %s", d->reg.path);
	if (lease_unfull(d, l) >= memory_of(l)->width || !memory_room(d, l))
		return zns_fail(err, -EBUSY, "all zones that %s may have open are in use",
				d->reg.path);
	if (memory_has_its_part(d)) {
		yielding_most(d, most);
		return zns_fail(
			err, -ENOSPC,
			"memory of running programs has %u zones, half of %s, and gets no more; %s",
			yielding_zones(d), d->reg.path, most);
	}
	*zone = zone_search(d, &w, q->group);
	if (*zone == ZNSD_NONE)
		return zns_fail(err, -ENOSPC,
				"%s has no free zone for memory; `znsctl gc --compact` or "
				"`znsctl rm` makes room",
				d->reg.path);
	ret = make_room(d, *zone, true, err);
	if (ret)
		return ret;
	/* write the zone to the lock file first, so that the next broker knows it */
	ret = zns_context_set(memory_of(l)->fd, *zone, true);
	if (ret)
		return zns_fail_sys(err, ret, "cannot write the lock file of %s", l->container);
	l->yields.worked_ns = memory_of(l)->wrote_ns = zns_mono_ns();
	lease_zone_add(d, l, *zone, 0);
	return 0;
}

int memory_free(struct znsd *d, struct lease *l, const ZnsPb__MemoryFree *q, struct zns_err *err)
{
	size_t i;

	for (i = 0; i < q->n_zones; i++)
		if (!lease_zone_find(l, q->zones[i]))
			return zns_fail(err, -EINVAL, "zone %u was not granted to this context",
					q->zones[i]);
	note(d, l, q->not_zones, q->n_not_zones, true);
	for (i = 0; i < q->n_zones; i++) {
		if (!lease_zone_find(l, q->zones[i]))
			continue; /* the request names the zone twice */
		lease_zone_drop(d, l, q->zones[i]);
		if (!zones_refresh(d, q->zones[i], 1, NULL))
			zone_settle(d, q->zones[i]);
		zns_context_set(memory_of(l)->fd, q->zones[i], false);
	}
	d->sweep = d->freed = true;
	return 0;
}

int memory_step(struct znsd *d, struct lease *l, const ZnsPb__MemoryStep *q, uint32_t *busy,
		size_t *nr, bool *give_way, struct zns_err *err)
{
	struct memory_lease *m = memory_of(l);
	bool fast;
	size_t i;

	*nr = 0;
	for (i = 0; i < q->n_groups; i++)
		if (q->groups[i] >= d->nr_groups)
			return zns_fail(err, -EINVAL, "no group %u", q->groups[i]);
	if (q->written != m->written || q->read != m->read)
		l->yields.worked_ns = zns_mono_ns();
	if (q->written != m->written)
		m->wrote_ns = l->yields.worked_ns;
	m->live = q->live;
	m->dead = q->dead;
	m->group_limit = q->group_limit;
	if (q->read > m->read)
		d->history.all.memory_read += q->read - m->read;
	m->written = q->written;
	m->read = q->read;
	rate_note(d, l, q->written, 0);
	note(d, l, q->done_zones, q->n_done_zones, false);
	fast = memory_too_fast(l);
	for (i = 0; i < q->n_groups; i++)
		if (fast || group_at_work(d, q->groups[i], LEASE_YIELDING))
			busy[(*nr)++] = q->groups[i];
	*give_way = d->policy->compact_yield || d->policy->nr_waiting || memory_gives_back(d, l);
	return 0;
}

size_t memory_named(const struct znsd *d, const struct lease *l, uint32_t *zones)
{
	size_t nr = 0;

	for (uint32_t i = 0; i < l->nr_zones; i++)
		if (zone_live(d, l->zones[i].zone))
			zones[nr++] = l->zones[i].zone;
	return nr;
}

/* ---- leases without a connection, and their adoption by the next broker ---- */

static void unheld(struct lease *l)
{
	memory_of(l)->look_ns = 0;
}

static void forget(struct znsd *d, struct lease *l)
{
	char path[4096];

	if (!zns_context_path(d->reg.uuid, l->id, path, sizeof(path)))
		unlink(path);
}

/*
 * May the lock file claim this zone? Only if all live data in it, which checkpoints refer to, are
 * memory of this context.
 */
static bool may_have(const struct znsd *d, const struct zns_context *c, uint32_t zone)
{
	const ZnsPb__ZoneUse *u = zns_store_zone_memory(d->store, zone);

	if (d->zones[zone].meta || d->zones[zone].writer || d->groups[d->zones[zone].group].io)
		return false;
	return zone_live(d, zone) ==
	       (u && !memcmp(u->memory.data, c->id, ZNS_UUID_LEN) ? u->len : 0);
}

static void adopt(struct znsd *d, const struct zns_context *c, int fd)
{
	struct lease *l = new_lease(d, c, fd, (uint32_t)zns_flock_holder(fd));
	uint32_t i;

	l->groups = znsd_alloc(d->nr_groups * sizeof(*l->groups));
	for (i = 0; i < d->nr_zones; i++) {
		if (zns_context_has(fd, i) != 1)
			continue;
		if (!may_have(d, c, i)) {
			znsd_say(LOG_WARNING, l,
				 "%s has zone %u in its lock file, which is not its own",
				 l->container, i);
			continue;
		}
		lease_zone_add(d, l, i, 0);
		/* the pager may still write to the zone until it connects again */
		l->zones[l->nr_zones - 1].done = true;
		if (!lease_has_group(l, d->zones[i].group) && l->nr_groups < WIDTH_MAX)
			l->groups[l->nr_groups++] = d->zones[i].group;
	}
	for (i = 0; i < d->nr_groups && !l->nr_groups; i++)
		if (d->groups[i].nr_zones && !d->groups[i].io)
			l->groups[l->nr_groups++] = i;
	memory_of(l)->width = l->nr_groups;
	znsd_say(LOG_INFO, l, "%s lives on, with %u zones", l->container, l->nr_zones);
}

static int adopt_one(void *arg, const uint8_t id[ZNS_UUID_LEN])
{
	struct zns_err err = ZNS_ERR_INIT;
	struct znsd *d = arg;
	struct zns_context c;
	char path[4096];
	int fd;

	if (find(d, id))
		return 0;
	if (zns_context_open(d->reg.uuid, id, d->nr_zones, &c, &fd, &err)) {
		znsd_warn("%s", err.msg);
		return 0;
	}
	if (zns_context_alive(fd)) {
		adopt(d, &c, fd);
		return 0;
	}
	close(fd);
	if (!zns_context_path(d->reg.uuid, id, path, sizeof(path)))
		unlink(path);
	return 0;
}

static void adopt_all(struct znsd *d)
{
	zns_context_each(d->reg.uuid, adopt_one, d);
}

/* ---- what the broker reports of contexts ---- */

static void release(struct lease *l)
{
	close(memory_of(l)->fd);
	free(l->yields.own);
}

/*
 * Returns the checkpoint from which the context was restored. Such a restore leaves memory in its
 * checkpoint until the memory is touched. The lock file names the checkpoint as long as the context
 * exists.
 */
static bool origin(const struct lease *l, uint8_t *id)
{
	static const uint8_t none[ZNS_UUID_LEN];
	struct zns_context c;

	if (zns_context_read(memory_of(l)->fd, 0, &c, NULL) ||
	    !memcmp(c.origin, none, ZNS_UUID_LEN))
		return false;
	memcpy(id, c.origin, ZNS_UUID_LEN);
	return true;
}

static int in_use(const struct lease *l, const char *checkpoint, struct zns_err *err)
{
	const char *name = strchr(l->container, ':') + 1; /* the lease's name is memory:NAME */

	return zns_fail(err, -EBUSY,
			"checkpoint %s has memory of the running program %s: `znsctl memory detach "
			"%s` reads it back first",
			checkpoint, name, name);
}

static void tell(const struct lease *l, ZnsPb__MemoryDetail *det)
{
	const struct memory_lease *m = memory_of(l);

	det->live = m->live;
	det->dead = m->dead;
	det->read = m->read;
	det->zones = l->nr_zones;
	det->connected = l->conn != NULL;
	det->context = (ProtobufCBinaryData){ ZNS_UUID_LEN, (uint8_t *)l->id };
}

const struct yielding memory_leases = {
	.kind = "memory",
	.id_field = "ZNS_CONTEXT",
	.what = "memory of running programs",
	.command = "znsctl memory detach",
	.over = over,
	.unheld = unheld,
	.ended = forget,
	.free = release,
	.origin = origin,
	.in_use = in_use,
	.adopt = adopt_all,
	.tell = tell,
};

__attribute__((constructor)) static void enrol(void)
{
	yielding_register(&memory_leases);
}
