/* SPDX-License-Identifier: GPL-2.0-only */
/* Reads the state of a device at one moment. */
#include <string.h>
#include "view.h"
#include "zns/store.h"

const char *const ctl_lease_kinds[4] = { "dump", "restore", "compact", "memory" };

void ctl_view_open(const struct zns_registered *reg, struct ctl_view *v)
{
	*v = (struct ctl_view){ .reg = *reg };
	zns_uuid_format(reg->uuid, v->id);
	if (!zns_broker_connect(reg, &v->broker, &v->away))
		return;
	v->broker.fd = -1;
	if (!v->away.code)
		v->away.code = -EIO;
}

static void drop(struct ctl_view *v)
{
	ctl_free_answer(&v->status);
	ctl_free_answer(&v->ls);
	ctl_free_answer(&v->zones);
	ctl_free_answer(&v->profile);
	ctl_free_answer(&v->history);
	v->status = v->ls = v->zones = v->profile = v->history = NULL;
	free(v->groups);
	v->groups = NULL;
	v->nr_groups = 0;
}

void ctl_view_hang_up(struct ctl_view *v)
{
	zns_broker_close(&v->broker);
	v->broker.fd = -1;
}

void ctl_view_close(struct ctl_view *v)
{
	drop(v);
	ctl_view_hang_up(v);
}

bool ctl_zone_data(const ZnsPb__ZoneLine *z)
{
	return !z->owner || (strcmp(z->owner, "(metadata)") && strcmp(z->owner, "(conventional)"));
}

static void add_zone(struct ctl_view *v, const ZnsPb__ZoneLine *z)
{
	struct ctl_group *g = z->group < v->nr_groups ? &v->groups[z->group] : NULL;

	if (!g || !ctl_zone_data(z))
		return;
	g->zones++;
	g->empty += z->state == ZNS_ZONE_EMPTY;
	g->capacity += z->capacity;
	g->written += zns_min(z->wp, z->capacity);
	g->live += z->live;
}

static void add_lease(struct ctl_view *v, const ZnsPb__LeaseLine *l)
{
	size_t k = 0;

	while (k < ZNS_ARRAY_SIZE(ctl_lease_kinds) && strcmp(ctl_lease_kinds[k], l->kind))
		k++;
	for (size_t i = 0; k < ZNS_ARRAY_SIZE(ctl_lease_kinds) && i < l->n_groups; i++)
		if (l->groups[i] < v->nr_groups)
			v->groups[l->groups[i]].leases[k]++;
}

static int find_groups(struct ctl_view *v)
{
	const ZnsPb__Profile *p = v->profile->profile;
	const ZnsPb__History *h = v->history ? v->history->history : NULL;

	v->groups = calloc(p->n_groups + 1, sizeof(*v->groups));
	if (!v->groups)
		return zns_fail(&v->away, -ENOMEM, "no memory for the groups");
	v->nr_groups = (uint32_t)p->n_groups;
	for (uint32_t i = 0; i < v->nr_groups; i++) {
		struct ctl_group *g = &v->groups[i];

		g->unknown = p->has_unknown_group && p->unknown_group == i;
		g->channel = p->groups[i]->has_channel ? (int32_t)p->groups[i]->channel : -1;
		if (h && i < h->n_groups) {
			g->written_total = h->groups[i]->written;
			g->resets = h->groups[i]->resets;
		}
	}
	for (size_t i = 0; i < v->zones->n_zones; i++)
		add_zone(v, v->zones->zones[i]);
	for (size_t i = 0; i < v->status->status->n_leases; i++)
		add_lease(v, v->status->status->leases[i]);
	return 0;
}

/* Does the answer have all parts that @what asks for? */
static bool whole(const struct ctl_view *v, unsigned what)
{
	return (!(what & VIEW_STATUS) || v->status->status) &&
	       (!(what & VIEW_PROFILE) || v->profile->profile) &&
	       (!(what & VIEW_HISTORY) || v->history->history);
}

void ctl_view_ask(struct ctl_view *v, unsigned what)
{
	ZnsPb__Request status = ZNS_PB__REQUEST__INIT, ls = ZNS_PB__REQUEST__INIT,
		       zones = ZNS_PB__REQUEST__INIT, profile = ZNS_PB__REQUEST__INIT,
		       history = ZNS_PB__REQUEST__INIT;
	const struct {
		unsigned flag;
		ZnsPb__Request *q;
		ZnsPb__Response **to;
	} ask[] = {
		{ VIEW_STATUS, &status, &v->status },    { VIEW_LS, &ls, &v->ls },
		{ VIEW_ZONES, &zones, &v->zones },       { VIEW_PROFILE, &profile, &v->profile },
		{ VIEW_HISTORY, &history, &v->history },
	};
	int ret = v->away.code;

	status.has_status = status.status = 1;
	ls.has_ls = ls.ls = 1;
	zones.has_zones = zones.zones = 1;
	profile.has_profile = profile.profile = 1;
	history.has_history = history.history = 1;
	for (size_t i = 0; !ret && i < ZNS_ARRAY_SIZE(ask); i++)
		if (what & ask[i].flag)
			ret = zns_broker_call(&v->broker, ask[i].q, ask[i].to, &v->away);
	if (!ret && !whole(v, what))
		ret = zns_fail(
			&v->away, -EPROTO,
			"the broker's answer lacks what was asked for: is it of another build?");
	if (!ret && what & VIEW_LS)
		ctl_marks_sort(0, &v->ls);
	if (!ret && what & VIEW_ZONES)
		ret = find_groups(v);
	if (ret) {
		v->away.code = ret;
		drop(v);
	}
}

int ctl_view_devices(const char *spec, struct zns_registered **regs, size_t *nr,
		     struct zns_err *err)
{
	int ret;

	*regs = NULL;
	*nr = 0;
	if (!spec)
		return zns_registered_list(regs, nr, err);
	*regs = calloc(1, sizeof(**regs));
	if (!*regs)
		return zns_fail(err, -ENOMEM, "no memory for a list of devices");
	ret = zns_resolve_device(spec, *regs, err);
	*nr = !ret;
	return ret;
}

double ctl_view_rate(const struct ctl_view *v, size_t kind)
{
	const ZnsPb__Status *s = v->status->status;
	double sum = 0;

	for (size_t i = 0; i < s->n_leases; i++)
		if (!strcmp(s->leases[i]->kind, ctl_lease_kinds[kind]))
			sum += s->leases[i]->mibps * (double)MIB(1);
	return sum;
}

double ctl_view_bandwidth(const struct ctl_view *v)
{
	const ZnsPb__Profile *p = v->profile->profile;
	double all = 0;

	for (uint32_t i = 0; i < v->nr_groups; i++)
		all += v->groups[i].zones ? zns_profile_group_mibps(p, i) : 0;
	if (p->has_device_write_mibps && p->device_write_mibps)
		all = zns_min(all, (double)p->device_write_mibps);
	return all * (double)MIB(1);
}

double ctl_view_asked(const struct ctl_view *v)
{
	const ZnsPb__Status *s = v->status->status;
	double sum = 0;

	for (size_t i = 0; i < s->n_leases; i++)
		sum += s->leases[i]->qos_mibps;
	return sum * (double)MIB(1);
}

struct json_object *ctl_view_group_json(const struct ctl_view *v, uint32_t g)
{
	const struct ctl_group *p = &v->groups[g];
	struct json_object *leases = json_object_new_object();

	for (size_t k = 0; k < ZNS_ARRAY_SIZE(ctl_lease_kinds); k++)
		json_object_object_add(leases, ctl_lease_kinds[k], ctl_j_uint(p->leases[k]));
	return ctl_obj(J("group", g),
		       J("channel", p->channel < 0 ? NULL : json_object_new_int(p->channel)),
		       J("zones", p->zones), J("empty_zones", p->empty),
		       J("capacity_bytes", p->capacity), J("occupied_bytes", p->written),
		       J("live_bytes", p->live), J("written_bytes_total", p->written_total),
		       J("resets_total", p->resets), J("leases", leases));
}
