/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Zones for memory contexts. A context's lease belongs to no connection: it lives as long as its
 * lock file has a holder, and a connection that names it takes it over. Which zones it has stands
 * in that file before they are granted, so the next broker knows them too (memory_adopt). What a
 * context writes gives way to dumps and restores; what it reads does not.
 */
#include <string.h>
#include "zns/broker.h"
#include "zns/context.h"
#include "policy.h"

#define WIDTH_MAX 16u
#define WIDTH_UNASKED 4u
#define LOOK_NS 500000000ull /* between two looks at a lock file */

struct lease *memory_lease(const struct znsd *d, const uint8_t *id)
{
	struct lease *l;

	for (l = d->leases; l; l = l->next)
		if (l->kind == LEASE_MEMORY && !memcmp(l->id, id, ZNS_UUID_LEN))
			return l;
	return NULL;
}

/* The best groups as for a dump that shares with nobody, but never all: dumps need some too. */
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
	l->nr_groups = l->memory.width = n;
	return 0;
}

static struct lease *new_lease(struct znsd *d, const struct zns_context *c, int fd, uint32_t pid)
{
	char name[sizeof(c->container) + 16];
	struct lease *l;

	/* Not the container's own name: its dumps must not continue these zones. */
	snprintf(name, sizeof(name), "memory:%s", c->container);
	l = lease_new(d, NULL, pid, LEASE_MEMORY, name, c->id);
	l->memory.fd = fd;
	l->memory.encrypted = c->encrypted;
	return l;
}

/* Zones that another connection of this context was writing are not written any more. */
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
	l = memory_lease(d, q->context.data);
	if (l && !memory_over(l)) {
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
	char most[MEMORY_MOST_MAX];
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
	if (lease_unfull(d, l) >= l->memory.width || !memory_room(d, l))
		return zns_fail(err, -EBUSY, "all zones that %s may have open are in use",
				d->reg.path);
	if (memory_has_its_part(d))
		return zns_fail(
			err, -ENOSPC,
			"memory of running programs has %u zones, half of %s, and gets no more; %s",
			memory_zones(d), d->reg.path, memory_most(d, most));
	*zone = zone_search(d, &w, q->group);
	if (*zone == ZNSD_NONE)
		return zns_fail(err, -ENOSPC,
				"%s has no free zone for memory; `znsctl gc --compact` or "
				"`znsctl rm` makes room",
				d->reg.path);
	ret = make_room(d, *zone, true, err);
	if (ret)
		return ret;
	/* The next broker must know it as well. */
	ret = zns_context_set(l->memory.fd, *zone, true);
	if (ret)
		return zns_fail_sys(err, ret, "the lock file of %s", l->container);
	l->memory.worked_ns = l->memory.wrote_ns = zns_mono_ns();
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
	for (i = 0; i < q->n_zones; i++) {
		if (!lease_zone_find(l, q->zones[i]))
			continue; /* named twice */
		lease_zone_drop(d, l, q->zones[i]);
		if (!zones_refresh(d, q->zones[i], 1, NULL))
			zone_settle(d, q->zones[i]);
		zns_context_set(l->memory.fd, q->zones[i], false);
	}
	d->sweep = d->freed = true;
	return 0;
}

int memory_step(struct znsd *d, struct lease *l, const ZnsPb__MemoryStep *q, uint32_t *busy,
		size_t *nr, bool *give_way, struct zns_err *err)
{
	bool fast;
	size_t i;

	*nr = 0;
	for (i = 0; i < q->n_groups; i++)
		if (q->groups[i] >= d->nr_groups)
			return zns_fail(err, -EINVAL, "no group %u", q->groups[i]);
	if (q->written != l->memory.written || q->read != l->memory.read)
		l->memory.worked_ns = zns_mono_ns();
	if (q->written != l->memory.written)
		l->memory.wrote_ns = l->memory.worked_ns;
	l->memory.live = q->live;
	l->memory.dead = q->dead;
	l->memory.group_limit = q->group_limit;
	if (q->read > l->memory.read)
		d->history.all.memory_read += q->read - l->memory.read;
	l->memory.written = q->written;
	l->memory.read = q->read;
	rate_note(d, l, q->written, 0);
	note(d, l, q->done_zones, q->n_done_zones, false);
	fast = memory_too_fast(l);
	for (i = 0; i < q->n_groups; i++)
		if (fast || group_at_work(d, q->groups[i], LEASE_MEMORY))
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

/* ---- without its pager, and without the broker that knew it ---- */

bool memory_over(struct lease *l)
{
	uint64_t now = zns_mono_ns();

	if (now < l->memory.look_ns)
		return false;
	l->memory.look_ns = now + LOOK_NS;
	return !zns_context_alive(l->memory.fd);
}

void memory_forget(struct znsd *d, struct lease *l)
{
	char path[4096];

	if (!zns_context_path(d->reg.uuid, l->id, path, sizeof(path)))
		unlink(path);
}

bool memory_to_finish(const struct znsd *d, uint32_t zone)
{
	const struct zn_zone *z = &d->zones[zone];
	const struct lease_zone *lz;

	if (!z->writer || z->writer->kind != LEASE_MEMORY || z->finishing || !zone_usable(z) ||
	    !zns_zone_is_active(z->z.state) || !d->dev->geo.max_active || !z->writer->conn)
		return false;
	lz = lease_zone_find(z->writer, zone);
	return lz && lz->done;
}

/* What is live there must be memory of its own, which checkpoints name. */
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
		/* Its pager may still write there, until it comes back. */
		l->zones[l->nr_zones - 1].done = true;
		if (!lease_has_group(l, d->zones[i].group) && l->nr_groups < WIDTH_MAX)
			l->groups[l->nr_groups++] = d->zones[i].group;
	}
	for (i = 0; i < d->nr_groups && !l->nr_groups; i++)
		if (d->groups[i].nr_zones && !d->groups[i].io)
			l->groups[l->nr_groups++] = i;
	l->memory.width = l->nr_groups;
	znsd_say(LOG_INFO, l, "%s lives on, with %u zones", l->container, l->nr_zones);
}

static int adopt_one(void *arg, const uint8_t id[ZNS_UUID_LEN])
{
	struct zns_err err = ZNS_ERR_INIT;
	struct znsd *d = arg;
	struct zns_context c;
	char path[4096];
	int fd;

	if (memory_lease(d, id))
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

void memory_adopt(struct znsd *d)
{
	zns_context_each(d->reg.uuid, adopt_one, d);
}
