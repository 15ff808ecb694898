/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Fills in the status that a context reports. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hiber.h"

struct sums {
	uint64_t evicted, kept, unread; /* bytes */
};

static int count(struct proc *p, struct unit *u, uint64_t base, void *arg)
{
	struct sums *s = arg;
	uint64_t word = u->word, bytes = (unsigned int)__builtin_popcount(u->pages & 0xffff) * PAGE;

	if (ON_ZONE(word))
		s->evicted += bytes;
	else if (HAS_PLACE(word))
		s->kept += bytes;
	if (ON_ZONE(word) && PLACE(word) & ZNS_MEM_ORIGIN)
		s->unread += bytes;
	return 0;
}

static int compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static void latencies(struct zns_mem *m, ZnsPb__MemoryStatus *st)
{
	uint32_t n = zns_min((uint32_t)m->latencies, LATENCIES), ns[LATENCIES];

	for (uint32_t i = 0; i < n; i++)
		ns[i] = m->latency_ns[i];
	if (!n)
		return;
	qsort(ns, n, sizeof(*ns), compare);
	st->has_fault_ns_p50 = st->has_fault_ns_p99 = true;
	st->fault_ns_p50 = ns[n / 2];
	st->fault_ns_p99 = ns[n * 99 / 100];
}

static int one_process(struct proc *p, ZnsPb__MemoryStatus *st)
{
	ZnsPb__MemoryProcess *out = calloc(1, sizeof(*out));
	struct sums sums = { 0 };

	if (!out)
		return -ENOMEM;
	zns_pb__memory_process__init(out);
	out->pid = (uint32_t)p->pid;
	out->resident = proc_resident(p);
	table_each(p, count, &sums);
	out->evicted = sums.evicted;
	out->evicts = p->evicts && !p->why[0];
	pthread_mutex_lock(&p->m->text);
	out->why = p->why[0] ? strdup(p->why) : NULL;
	pthread_mutex_unlock(&p->m->text);
	st->resident += out->resident;
	st->evicted += out->evicted;
	st->kept += sums.kept;
	st->unread += sums.unread;
	st->processes[st->n_processes++] = out;
	return 0;
}

static char *line(struct zns_mem *m, const char *text)
{
	char *copy;

	pthread_mutex_lock(&m->text);
	copy = text[0] ? strdup(text) : NULL;
	pthread_mutex_unlock(&m->text);
	return copy;
}

static void counters(const struct zns_mem *m, ZnsPb__MemoryStatus *st)
{
	const struct shared *sh = m->sh;

	st->dram = sh->dram;
	st->evicted_units = sh->evicted_units;
	st->read_units = sh->read_units;
	st->zero_faults = sh->zero_faults;
	st->write_faults = sh->write_faults;
	st->cancelled = sh->cancelled;
	st->lost_units = sh->lost_units;
	st->takeovers = sh->takeovers;
	st->has_clean_units = st->has_clean_writes = st->has_kept = true;
	st->clean_units = sh->clean_units;
	st->has_left_processes = true;
	st->left_processes = sh->left;
	st->has_moved_units = true;
	st->moved_units = sh->moved_units;
	st->clean_writes = sh->clean_writes;
	st->has_spare_units = st->has_prefetched = st->has_predict = true;
	st->has_prefetch_used = st->has_prefetch_unused = true;
	st->spare_units = sh->spare_units;
	st->prefetched = sh->ahead_units;
	st->prefetch_used = sh->ahead_used;
	st->prefetch_unused = sh->ahead_unused;
	st->predict = !sh->no_predict;
	st->has_auto_total = st->has_auto_min = sh->auto_total > 0;
	st->auto_total = sh->auto_total;
	st->auto_min = sh->auto_min;
	st->has_attach_stop_ns = m->stop_ns > 0;
	st->attach_stop_ns = m->stop_ns;
	st->has_stops = st->has_stopped_ns = true;
	st->stops = m->stops;
	st->stopped_ns = m->stopped_ns;
}

static void hibernation(const struct zns_mem *m, ZnsPb__MemoryStatus *st)
{
	static const ZnsPb__MemoryState state[] = {
		[HIBER_AWAKE] = ZNS_PB__MEMORY_STATE__MEMORY_ACTIVE,
		[HIBER_DOWN] = ZNS_PB__MEMORY_STATE__MEMORY_GOING_DOWN,
		[HIBER_REST] = ZNS_PB__MEMORY_STATE__MEMORY_HIBERNATED,
		[HIBER_UP] = ZNS_PB__MEMORY_STATE__MEMORY_WAKING,
	};
	const struct shared_hiber *h = &m->sh->hiber;

	st->has_state = st->has_wanted = st->has_since_ns = st->has_active_ns = true;
	st->state = state[zns_min((uint32_t)h->state, (uint32_t)HIBER_UP)];
	if (h->state == HIBER_REST && h->again) /* it is hibernated, but will evict again */
		st->state = ZNS_PB__MEMORY_STATE__MEMORY_GOING_DOWN;
	st->wanted = state[h->wanted ? HIBER_REST : HIBER_AWAKE];
	st->since_ns = h->since_ns;
	st->active_ns = h->active_ns;
	st->has_idle_ms = h->idle_ms > 0;
	st->idle_ms = h->idle_ms;
	st->has_record_units = st->has_wakes = true;
	st->record_units = record_nr(m);
	st->has_record_left_out = st->has_record_missed = true;
	st->record_left_out = h->left_out;
	st->record_missed = h->missed;
	st->wakes = h->wakes;
	st->has_activations = true;
	st->activations = m->hiber.activations;
}

static void skipped(const struct zns_mem *m, ZnsPb__MemoryStatus *st)
{
	st->skipped = malloc(sizeof(*st->skipped));
	if (!st->skipped)
		return;
	zns_pb__memory_skipped__init(st->skipped);
	st->skipped->has_locked = st->skipped->has_shared = true;
	st->skipped->has_file = st->skipped->has_special = true;
	st->skipped->locked = m->locked;
	st->skipped->shared = m->shared;
	st->skipped->file = m->file;
	st->skipped->special = m->special;
}

int zns_mem_status(struct zns_mem *m, ZnsPb__MemoryStatus *st)
{
	struct proc *list[PROCS_MAX];
	unsigned int nr;
	int ret = 0;

	zns_pb__memory_status__init(st);
	st->name = strdup(m->sh->name);
	st->processes = calloc(PROCS_MAX, sizeof(*st->processes));
	procs(m, list, &nr);
	for (unsigned int i = 0; i < nr; i++) {
		if (!ret && st->processes)
			ret = one_process(list[i], st);
		proc_put(list[i]);
	}
	counters(m, st);
	latencies(m, st);
	skipped(m, st);
	hibernation(m, st);
	st->warning = line(m, m->warning);
	st->missing = line(m, m->missing);
	st->pid = (uint32_t)getpid();
	if (ret || !st->name || !st->processes) {
		zns_mem_status_free(st);
		return -ENOMEM;
	}
	return 0;
}

void zns_mem_status_free(ZnsPb__MemoryStatus *st)
{
	for (size_t i = 0; i < st->n_processes; i++) {
		free(st->processes[i]->why);
		free(st->processes[i]);
	}
	free(st->processes);
	free(st->skipped);
	free(st->warning);
	free(st->missing);
	free(st->name);
	free(st->checkpoint);
	zns_pb__memory_status__init(st);
}
