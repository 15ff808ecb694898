/* SPDX-License-Identifier: GPL-2.0-only */
/* Plans a compaction from the broker's list of zones and checkpoints. */
#include <string.h>
#include "compaction.h"

static bool own_use(const char *owner)
{
	return owner && *owner == '(' && strcmp(owner, "(pack)");
}

/*
 * A number for an owner, from a hash. If two owners get the same number, they are only planned as
 * one.
 */
static uint32_t owner_number(const char *owner)
{
	return owner ? (uint32_t)zns_hash(owner, strlen(owner)) : 0;
}

/*
 * Adds the space for new manifests: each checkpoint whose data are moved gets one. Memory of a
 * context is not moved, since the context and other checkpoints may refer to the same data.
 */
static void add_manifests(struct compact *x)
{
	for (size_t i = 0; i < x->ls->n_checkpoints; i++) {
		const ZnsPb__Checkpoint *c = x->ls->checkpoints[i];

		for (size_t k = 0; c->manifest && k < c->n_zones; k++)
			if (c->zones[k]->zone < x->zones->n_zones) {
				x->table[c->zones[k]->zone].extra +=
					zns_align_up(c->manifest->len, 4096) + 4096;
				x->table[c->zones[k]->zone].fixed |= c->zones[k]->has_memory;
			}
	}
}

static void plan_tail(struct compact *x)
{
	for (uint32_t i = x->keep; i < x->zones->n_zones; i++)
		if (x->table[i].live) {
			x->victims[x->nr_victims++] = i;
			x->plan.live += x->table[i].live;
		}
}

int compact_plan(struct compact *x, struct zns_err *err)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	uint32_t nr;
	int ret = ctl_ls(&x->s.broker, &x->ls, err);

	req.has_zones = req.zones = 1;
	if (!ret)
		ret = zns_broker_call(&x->s.broker, &req, &x->zones, err);
	if (ret)
		return ret;
	nr = (uint32_t)x->zones->n_zones;
	x->table = calloc(nr + 1, sizeof(*x->table));
	x->zone_group = calloc(nr + 1, sizeof(*x->zone_group));
	x->victims = calloc(nr + 1, sizeof(*x->victims));
	x->emptied = calloc(nr + 1, sizeof(*x->emptied));
	x->written = calloc(nr + 1, sizeof(*x->written));
	if (!x->table || !x->zone_group || !x->victims || !x->emptied || !x->written)
		return zns_fail(err, -ENOMEM, "no memory for %u zones", nr);
	for (uint32_t i = 0; i < nr; i++) {
		const ZnsPb__ZoneLine *z = x->zones->zones[i];
		bool usable = z->state != ZNS_ZONE_READ_ONLY && z->state != ZNS_ZONE_OFFLINE &&
			      !own_use(z->owner);

		x->zone_group[i] = z->group;
		x->table[i] = (struct zns_compact_zone){
			.index = i,
			.group = z->group,
			.owner = owner_number(z->owner),
			.capacity = z->capacity,
			.wp = zns_min(z->wp, z->capacity),
			.live = z->live,
			.fixed = !usable,
			.empty = usable && z->state == ZNS_ZONE_EMPTY,
			.parked = usable && z->live &&
				  zns_zone_is_active((enum zns_zone_state)z->state),
		};
	}
	if (x->keep) {
		plan_tail(x);
		return 0;
	}
	add_manifests(x);
	ret = zns_compact_plan_make(x->table, nr, x->below, &x->plan, err);
	for (uint32_t i = 0; i < x->plan.nr && !ret; i++)
		for (uint32_t k = 0; k < x->plan.v[i].nr && !x->plan.v[i].blocked; k++)
			x->victims[x->nr_victims++] = x->plan.v[i].victims[k];
	return ret;
}

/* ---- messages ---- */

static const char *owner_of(const struct compact *x, uint32_t zone)
{
	const char *o = x->zones->zones[zone]->owner;

	return o ? o : "?";
}

static void print_group(const struct compact *x, const struct zns_compact_group *g)
{
	char live[16], cap[16];

	for (uint32_t i = 0; i < g->nr; i++) {
		const struct zns_compact_zone *z = &x->table[g->victims[i]];

		printf("zone %-6u group %-4u %-20s %9s live of %s  %s\n", z->index, z->group,
		       owner_of(x, z->index), zns_format_size(z->live, live, sizeof(live)),
		       zns_format_size(z->capacity, cap, sizeof(cap)),
		       g->blocked           ? "no empty zone to begin with" :
		       x->dry_run           ? "would be emptied" :
		       x->emptied[z->index] ? "emptied" :
					      "not emptied");
	}
	printf("group %u, %s: %u zones into %u\n", g->group, owner_of(x, g->victims[0]), g->nr,
	       g->taken);
}

/*
 * Formats an amount of space. For an ordinary disk it is printed in bytes, since zones mean nothing
 * to its user.
 */
static const char *room(const struct compact *x, uint32_t zones, char *buf, size_t len)
{
	char size[16];

	if (zns_spec_on_disk(x->s.reg.path) && x->zones->n_zones)
		snprintf(buf, len, "%s",
			 zns_format_size(zones * x->table[x->zones->n_zones - 1].capacity, size,
					 sizeof(size)));
	else
		snprintf(buf, len, "%u", zones);
	return buf;
}

void compact_print(const struct compact *x)
{
	bool disk = zns_spec_on_disk(x->s.reg.path);
	char bytes[16], freed[32], all[32];

	for (uint32_t i = 0; !disk && i < x->plan.nr; i++)
		print_group(x, &x->plan.v[i]);
	if (x->dry_run)
		printf("%s%s would be emptied by moving %s; %s more would be free\n",
		       room(x, x->nr_victims, all, sizeof(all)), disk ? "" : " zones",
		       zns_format_size(x->plan.live, bytes, sizeof(bytes)),
		       room(x, x->plan.freed, freed, sizeof(freed)));
	else
		printf("%u checkpoint%s moved, %s written; %s more %s free\n", x->moved,
		       x->moved == 1 ? "" : "s",
		       zns_format_size(x->moved_bytes, bytes, sizeof(bytes)),
		       room(x, x->freed, freed, sizeof(freed)), disk ? "is" : "zones are");
	if (x->given_up)
		printf("%u checkpoint%s could not be moved now: %s\n", x->given_up,
		       x->given_up == 1 ? "" : "s", x->why);
}

struct json_object *compact_json(const struct compact *x)
{
	struct json_object *list = json_object_new_array();

	for (uint32_t i = 0; i < x->plan.nr; i++) {
		const struct zns_compact_group *g = &x->plan.v[i];

		for (uint32_t k = 0; k < g->nr; k++) {
			const struct zns_compact_zone *z = &x->table[g->victims[k]];

			json_object_array_add(
				list, ctl_obj(J("zone", z->index), J("group", z->group),
					      J("owner", owner_of(x, z->index)), J("live", z->live),
					      J("capacity", z->capacity), JB("blocked", g->blocked),
					      JB("emptied", x->emptied[z->index])));
		}
	}
	return ctl_obj(J("zones", list), J("would_free_zones", x->plan.freed),
		       J("would_move_bytes", x->plan.live), J("freed_zones", x->freed),
		       J("moved_checkpoints", x->moved), J("moved_bytes", x->moved_bytes),
		       J("given_up", x->given_up),
		       J("why", x->given_up ? (const char *)x->why : NULL),
		       J("waited_s", (double)x->waited_ns / 1e9), JB("dry_run", x->dry_run));
}

void compact_free(struct compact *x)
{
	zns_session_close(&x->s);
	zns_compact_plan_fini(&x->plan);
	if (x->ls)
		zns_pb__response__free_unpacked(x->ls, NULL);
	if (x->zones)
		zns_pb__response__free_unpacked(x->zones, NULL);
	if (x->reset)
		zns_pb__response__free_unpacked(x->reset, NULL);
	free(x->table);
	free(x->zone_group);
	free(x->victims);
	free(x->emptied);
	free(x->written);
}
