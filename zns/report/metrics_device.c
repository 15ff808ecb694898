/* SPDX-License-Identifier: GPL-2.0-only */
/* metrics of devices and their groups */
#include <stddef.h>
#include <string.h>
#include "metrics.h"

static const ZnsPb__Status *status(const struct ctl_view *v)
{
	return v->status->status;
}

static double d_live(const struct ctl_view *v)
{
	return (double)status(v)->bytes_live;
}

static double d_free(const struct ctl_view *v)
{
	return (double)status(v)->bytes_free;
}

static double d_wasted(const struct ctl_view *v)
{
	return (double)status(v)->bytes_wasted;
}

static double d_suspect(const struct ctl_view *v)
{
	return status(v)->suspect_zones;
}

static double d_granted(const struct ctl_view *v)
{
	return status(v)->zones_granted;
}

/* A negative value means unknown, and is left out. */
static double d_budget(const struct ctl_view *v)
{
	return status(v)->has_zones_budget ? (double)status(v)->zones_budget : -1;
}

static double d_checkpoints(const struct ctl_view *v)
{
	return (double)v->ls->n_checkpoints;
}

static double d_waiting(const struct ctl_view *v)
{
	return status(v)->nr_waiting;
}

static double d_promised(const struct ctl_view *v)
{
	double sum = 0;

	for (size_t i = 0; i < status(v)->n_leases; i++) {
		const ZnsPb__LeaseLine *l = status(v)->leases[i];

		sum += l->detail && l->detail->promised ? l->qos_mibps : 0;
	}
	return sum * (double)MIB(1);
}

static double d_since(const struct ctl_view *v)
{
	return (double)v->history->history->since_ns / 1e9;
}

/* Prints metrics with one value for each device. */
static void totals(FILE *f, const struct metrics *m)
{
	static const struct {
		const char *name, *help;
		double (*value)(const struct ctl_view *);
	} t[] = {
		{ "zns_live_bytes", "Bytes of committed checkpoints.", d_live },
		{ "zns_free_bytes", "Bytes that can be written now.", d_free },
		{ "zns_wasted_bytes", "Bytes written that are neither live nor reset yet.",
		  d_wasted },
		{ "zns_suspect_zones", "Zones that failed a write and are still usable.",
		  d_suspect },
		{ "zns_granted_zones", "Zones that running dumps may write at once.", d_granted },
		{ "zns_granted_zones_limit",
		  "How many such zones the device's open and active limits allow; absent: no limit.",
		  d_budget },
		{ "zns_checkpoints", "Checkpoints on the device.", d_checkpoints },
		{ "zns_waiting_dumps", "Dumps that wait for admission.", d_waiting },
		{ "zns_asked_bytes_per_second", "Bandwidth that running dumps asked for.",
		  ctl_view_asked },
		{ "zns_promised_bytes_per_second",
		  "The part of it that is promised: given by groups that nobody else gets.",
		  d_promised },
		{ "zns_available_bytes_per_second",
		  "Bandwidth that all groups together give, by the device's profile.",
		  ctl_view_bandwidth },
		{ "zns_counters_start_timestamp_seconds",
		  "Since when the counters of the device count: its first broker since the boot.",
		  d_since },
	};

	for (size_t k = 0; k < ZNS_ARRAY_SIZE(t); k++) {
		metrics_head(f, t[k].name, "gauge", t[k].help);
		for (size_t i = 0; i < m->nr; i++) {
			const struct ctl_view *v = &m->dev[i].v;

			if (ctl_view_up(v) && t[k].value(v) >= 0)
				metrics_line(f, t[k].name, t[k].value(v), "device", v->id, NULL);
		}
	}
}

static void zones_by_state(FILE *f, const struct metrics *m)
{
	static const enum zns_zone_state states[] = { ZNS_ZONE_EMPTY,     ZNS_ZONE_IMP_OPEN,
						      ZNS_ZONE_CLOSED,    ZNS_ZONE_FULL,
						      ZNS_ZONE_READ_ONLY, ZNS_ZONE_OFFLINE };

	metrics_head(f, "zns_zones", "gauge", "Zones by state.");
	for (size_t i = 0; i < m->nr; i++)
		for (size_t s = 0; ctl_view_up(&m->dev[i].v) && s < ZNS_ARRAY_SIZE(states); s++)
			metrics_line(f, "zns_zones", ctl_zones_in(status(&m->dev[i].v), states[s]),
				     "device", m->dev[i].v.id, "state",
				     zns_zone_state_name(states[s]), NULL);
}

static size_t leases_of(const struct ctl_view *v, const char *kind)
{
	size_t n = 0;

	for (size_t i = 0; i < status(v)->n_leases; i++)
		n += !strcmp(status(v)->leases[i]->kind, kind);
	return n;
}

static void leases(FILE *f, const struct metrics *m)
{
	size_t nr = ZNS_ARRAY_SIZE(ctl_lease_kinds);

	metrics_head(
		f, "zns_leases", "gauge",
		"Dumps, restores and other readers, compactions, and memory contexts that run now.");
	for (size_t i = 0; i < m->nr; i++)
		for (size_t k = 0; ctl_view_up(&m->dev[i].v) && k < nr; k++)
			metrics_line(f, "zns_leases",
				     (double)leases_of(&m->dev[i].v, ctl_lease_kinds[k]), "device",
				     m->dev[i].v.id, "kind", ctl_lease_kinds[k], NULL);
	metrics_head(f, "zns_transfer_bytes_per_second", "gauge",
		     "The rate of all of a kind together, as their helpers reported last.");
	for (size_t i = 0; i < m->nr; i++)
		for (size_t k = 0; ctl_view_up(&m->dev[i].v) && k < nr; k++)
			metrics_line(f, "zns_transfer_bytes_per_second",
				     ctl_view_rate(&m->dev[i].v, k), "device", m->dev[i].v.id,
				     "kind", ctl_lease_kinds[k], NULL);
}

/* Prints counters, each with at most one label. Lines with the same name must be together. */
static void counters(FILE *f, const struct metrics *m)
{
#define COUNT(member) offsetof(ZnsPb__LoadCounts, member)
	static const struct {
		const char *name, *help; /* help NULL: the same metric as in the row above */
		const char *key, *value;
		size_t at;
	} t[] = {
		{ "zns_dumps_total", "Dumps and imports by how they ended.", "result", "committed",
		  COUNT(dumps) },
		{ "zns_dumps_total", NULL, "result", "failed", COUNT(dumps_failed) },
		{ "zns_dumps_total", NULL, "result", "refused", COUNT(dumps_refused) },
		{ "zns_restores_total",
		  "Restores by how they ended. A server of a lazy restore counts as unfinished, too.",
		  "result", "done", COUNT(restores) },
		{ "zns_restores_total", NULL, "result", "unfinished", COUNT(restores_unfinished) },
		{ "zns_dump_bytes_total", "Bytes that dumps wrote.", NULL, NULL,
		  COUNT(dump_bytes) },
		{ "zns_restore_bytes_total", "Bytes that restores read.", NULL, NULL,
		  COUNT(restore_bytes) },
		{ "zns_compaction_bytes_total", "Bytes that compactions moved.", NULL, NULL,
		  COUNT(compact_bytes) },
		{ "zns_paging_written_bytes_total", "Bytes that memory contexts wrote.", NULL, NULL,
		  COUNT(memory_written) },
		{ "zns_paging_read_bytes_total", "Bytes that memory contexts read.", NULL, NULL,
		  COUNT(memory_read) },
		{ "zns_zone_write_failures_total", "Zones that failed a write of a dump.", NULL,
		  NULL, COUNT(zone_failures) },
	};

	for (size_t k = 0; k < ZNS_ARRAY_SIZE(t); k++) {
		if (t[k].help)
			metrics_head(f, t[k].name, "counter", t[k].help);
		for (size_t i = 0; i < m->nr; i++) {
			const struct ctl_view *v = &m->dev[i].v;
			uint64_t n;

			if (!ctl_view_up(v))
				continue;
			memcpy(&n, (const char *)v->history->history->all + t[k].at, sizeof(n));
			metrics_line(f, t[k].name, (double)n, "device", v->id, t[k].key, t[k].value,
				     NULL);
		}
	}
}

static double g_capacity(const struct ctl_group *g)
{
	return (double)g->capacity;
}

static double g_written(const struct ctl_group *g)
{
	return (double)g->written;
}

static double g_live(const struct ctl_group *g)
{
	return (double)g->live;
}

static double g_empty(const struct ctl_group *g)
{
	return g->empty;
}

static double g_zones(const struct ctl_group *g)
{
	return g->zones;
}

static double g_total(const struct ctl_group *g)
{
	return (double)g->written_total;
}

static double g_resets(const struct ctl_group *g)
{
	return (double)g->resets;
}

static void group_lines(FILE *f, const struct metrics *m, const char *name, const char *kind,
			size_t k, double (*value)(const struct ctl_group *))
{
	for (size_t i = 0; i < m->nr; i++) {
		const struct ctl_view *v = &m->dev[i].v;

		for (uint32_t g = 0; g < v->nr_groups; g++) {
			const struct ctl_group *one = &v->groups[g];
			char id[16], channel[16] = "";

			snprintf(id, sizeof(id), "%u", g);
			if (one->channel >= 0)
				snprintf(channel, sizeof(channel), "%d", one->channel);
			metrics_line(f, name, value ? value(one) : one->leases[k], "device", v->id,
				     "group", id, "channel", channel, kind ? "kind" : NULL, kind,
				     NULL);
		}
	}
}

static void groups(FILE *f, const struct metrics *m)
{
	static const struct {
		const char *name, *type, *help;
		double (*value)(const struct ctl_group *);
	} t[] = {
		{ "zns_group_zones", "gauge",
		  "Data zones of a group, which is a die as far as is known.", g_zones },
		{ "zns_group_empty_zones", "gauge", "Empty zones of the group.", g_empty },
		{ "zns_group_capacity_bytes", "gauge", "What its data zones can hold.",
		  g_capacity },
		{ "zns_group_occupied_bytes", "gauge",
		  "How far its data zones are written; live or not.", g_written },
		{ "zns_group_live_bytes", "gauge", "Bytes of committed checkpoints there.",
		  g_live },
		{ "zns_group_written_bytes_total", "counter",
		  "How far its write pointers moved, the catalogue's too.", g_total },
		{ "zns_group_zone_resets_total", "counter", "Resets of its zones by the broker.",
		  g_resets },
	};

	for (size_t k = 0; k < ZNS_ARRAY_SIZE(t); k++) {
		metrics_head(f, t[k].name, t[k].type, t[k].help);
		group_lines(f, m, t[k].name, NULL, 0, t[k].value);
	}
	metrics_head(f, "zns_group_leases", "gauge", "Who uses the group now, by kind.");
	for (size_t k = 0; k < ZNS_ARRAY_SIZE(ctl_lease_kinds); k++)
		group_lines(f, m, "zns_group_leases", ctl_lease_kinds[k], k, NULL);
}

/* The catalogue is in the order of commits, so the last one is the newest. */
int metrics_containers(struct metrics_device *d)
{
	const ZnsPb__Response *ls = d->v.ls;
	const ZnsPb__Status *s = status(&d->v);

	d->containers = calloc(ls->n_checkpoints + 1, sizeof(*d->containers));
	if (!d->containers)
		return -ENOMEM;
	for (size_t i = 0; i < ls->n_checkpoints; i++) {
		const ZnsPb__Checkpoint *c = ls->checkpoints[i];
		struct metrics_container *m = d->containers;

		while (m < d->containers + d->nr_containers &&
		       strcmp(m->c->container, c->container))
			m++;
		d->nr_containers += m == d->containers + d->nr_containers;
		m->c = c;
		m->nr++;
		m->bytes += c->bytes;
	}
	for (size_t i = 0; i < s->n_restores; i++)
		for (size_t k = 0; k < d->nr_containers; k++)
			if (!strcmp(d->containers[k].c->container, s->restores[i]->container))
				d->containers[k].restore = s->restores[i];
	return 0;
}

void metrics_devices(FILE *f, const struct metrics *m)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_tenant t;

	metrics_head(f, "zns_up", "gauge", "1 if the device answered.");
	for (size_t i = 0; i < m->nr; i++)
		metrics_line(f, "zns_up", ctl_view_up(&m->dev[i].v), "device", m->dev[i].v.id,
			     "path", m->dev[i].v.reg.path, NULL);
	metrics_head(f, "zns_tenants_config_valid", "gauge",
		     "0 if tenants.conf has an error: no dump is admitted then.");
	metrics_line(f, "zns_tenants_config_valid", !zns_tenant_find("", -1, &t, &err), NULL);
	totals(f, m);
	zones_by_state(f, m);
	leases(f, m);
	counters(f, m);
	groups(f, m);
}
