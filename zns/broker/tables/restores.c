/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Figures about the last restore of each container. They are not stored on the device, because a
 * restore must not cause writes, and must work on a device that is read-only or full. Besides, they
 * only apply to this machine.
 */
#include <string.h>
#include "tables.h"

#define RESTORES_MAX 256 /* number of containers; if there are more, the oldest entry is dropped */

void restores_load(struct znsd *d)
{
	d->restores = (ZnsPb__RestoreLog *)keepsake_load(d, "restores",
							 &zns_pb__restore_log__descriptor);
}

void restores_free(struct znsd *d)
{
	if (d->restores)
		zns_pb__restore_log__free_unpacked(d->restores, NULL);
	d->restores = NULL;
}

ZnsPb__RestoreStat *restore_of(const struct znsd *d, const char *container)
{
	size_t i;

	for (i = 0; d->restores && i < d->restores->n_restores; i++)
		if (!strcmp(d->restores->restores[i]->container, container))
			return d->restores->restores[i];
	return NULL;
}

/* Removes entry @i from the list. */
static void forget(ZnsPb__RestoreLog *log, size_t i)
{
	zns_pb__restore_stat__free_unpacked(log->restores[i], NULL);
	log->n_restores--;
	memmove(log->restores + i, log->restores + i + 1,
		(log->n_restores - i) * sizeof(*log->restores));
}

static void add(struct znsd *d, ZnsPb__RestoreStat *s)
{
	ZnsPb__RestoreLog *log = d->restores;
	ZnsPb__RestoreStat **list;
	size_t i;

	if (!log) {
		log = d->restores = znsd_alloc(sizeof(*log));
		zns_pb__restore_log__init(log);
	}
	for (i = 0; i < log->n_restores; i++) {
		if (!strcmp(log->restores[i]->container, s->container)) {
			forget(log, i);
			break;
		}
	}
	if (log->n_restores == RESTORES_MAX)
		forget(log, 0);
	list = znsd_alloc((log->n_restores + 1) * sizeof(*list));
	if (log->n_restores)
		memcpy(list, log->restores, log->n_restores * sizeof(*list));
	free(log->restores);
	log->restores = list;
	list[log->n_restores++] = s;
}

/* How many groups of @l are now reserved by another container or used by another lease. */
static uint32_t shared_now(const struct znsd *d, const struct lease *l)
{
	cleanup_free struct zns_group_state *gs = znsd_alloc(d->nr_groups * sizeof(*gs));
	uint32_t i, n = 0;

	groups_state(d, l->container, l, gs);
	for (i = 0; i < l->nr_groups; i++)
		n += gs[l->groups[i]].nr_reservations > 0 || gs[l->groups[i]].nr_leases > 0;
	return n;
}

ZnsPb__RestoreStat *restore_remember(struct znsd *d, const struct lease *l,
				     const ZnsPb__Progress *q)
{
	const ZnsPb__Checkpoint *k = zns_store_find(d->store, l->id);
	ZnsPb__RestoreStat *s = znsd_alloc(sizeof(*s));
	char rate[32] = "too short to rate";

	zns_pb__restore_stat__init(s);
	s->container = znsd_strdup(l->container);
	s->checkpoint.data = znsd_alloc(ZNS_UUID_LEN);
	s->checkpoint.len = ZNS_UUID_LEN;
	memcpy(s->checkpoint.data, l->id, ZNS_UUID_LEN);
	s->started_ns = l->since_ns;
	s->ended_ns = zns_now_ns();
	s->bytes = q->bytes;
	s->has_data_us = 1;
	s->data_us = q->data_us;
	s->achieved_mibps = zns_rate_mibps(q->bytes, q->data_us);
	s->has_achieved_mibps = s->achieved_mibps > 0;
	if (s->has_achieved_mibps)
		snprintf(rate, sizeof(rate), "%.0f MiB/s", s->achieved_mibps);
	s->has_qos_requested_mibps = k && k->has_qos_requested_mibps;
	s->qos_requested_mibps = k ? k->qos_requested_mibps : 0;
	s->has_nr_zones = s->has_shared_groups = 1;
	s->nr_zones = l->nr_zones;
	s->n_groups = l->nr_groups;
	s->groups = znsd_alloc(l->nr_groups * sizeof(*s->groups));
	memcpy(s->groups, l->groups, l->nr_groups * sizeof(*s->groups));
	s->shared_groups = shared_now(d, l);
	znsd_say(
		LOG_INFO, l,
		"restore of %s (PID %u): %llu bytes from %u zones of %u groups (%u shared), data phase %.3f s, %s",
		l->container, l->pid, (unsigned long long)q->bytes, l->nr_zones, l->nr_groups,
		s->shared_groups, (double)q->data_us / 1e6, rate);
	add(d, s);
	keepsake_save(d, "restores", &d->restores->base);
	return s;
}
