/* SPDX-License-Identifier: GPL-2.0-only */
/* metrics of memory contexts */
#include "metrics.h"

typedef ZnsPb__MemoryStatus status;

static double m_resident(const status *s)
{
	return (double)s->resident;
}

static double m_budget(const status *s)
{
	return (double)s->dram;
}

static double m_evicted(const status *s)
{
	return (double)s->evicted;
}

static double m_processes(const status *s)
{
	return (double)s->n_processes;
}

static double m_frozen(const status *s)
{
	return s->has_state && s->state != ZNS_PB__MEMORY_STATE__MEMORY_ACTIVE;
}

static double m_faults(const status *s)
{
	return (double)s->read_units;
}

static double m_evictions(const status *s)
{
	return (double)s->evicted_units;
}

static double m_read(const status *s)
{
	return (double)(memory_units_read(s) * MEMORY_UNIT);
}

static double m_written(const status *s)
{
	return (double)(memory_units_written(s) * MEMORY_UNIT);
}

static double m_lost(const status *s)
{
	return (double)(s->lost_units * MEMORY_UNIT);
}

static double m_takeovers(const status *s)
{
	return (double)s->takeovers;
}

/* A negative value means unknown. */
static double m_p50(const status *s)
{
	return s->has_fault_ns_p50 ? (double)s->fault_ns_p50 / 1e9 : -1;
}

static double m_p99(const status *s)
{
	return s->has_fault_ns_p99 ? (double)s->fault_ns_p99 / 1e9 : -1;
}

void metrics_contexts(FILE *f, const struct metrics *m)
{
	static const struct {
		const char *name, *type, *help;
		double (*value)(const status *);
	} t[] = {
		{ "zns_memory_resident_bytes", "gauge",
		  "DRAM that the processes of a memory context have.", m_resident },
		{ "zns_memory_budget_bytes", "gauge", "DRAM that they may have.", m_budget },
		{ "zns_memory_evicted_bytes", "gauge", "Their memory that is on zones.",
		  m_evicted },
		{ "zns_memory_processes", "gauge", "Processes of the context.", m_processes },
		{ "zns_memory_hibernating", "gauge",
		  "1 if it is hibernated, or on its way there or back.", m_frozen },
		{ "zns_memory_faults_total", "counter", "Faults that had to read.", m_faults },
		{ "zns_memory_evictions_total", "counter", "Units of 64 KiB that were evicted.",
		  m_evictions },
		{ "zns_memory_read_bytes_total", "counter", "Bytes read from zones.", m_read },
		{ "zns_memory_written_bytes_total", "counter", "Bytes written to zones.",
		  m_written },
		{ "zns_memory_lost_bytes_total", "counter", "Bytes that could not be read back.",
		  m_lost },
		{ "zns_memory_pager_takeovers_total", "counter",
		  "Pagers that died before the present one.", m_takeovers },
		{ "zns_memory_fault_median_seconds", "gauge",
		  "How long a fault took, the median of the last 1024.", m_p50 },
		{ "zns_memory_fault_p99_seconds", "gauge", "One of a hundred of them took longer.",
		  m_p99 },
	};

	for (size_t k = 0; k < ZNS_ARRAY_SIZE(t); k++) {
		metrics_head(f, t[k].name, t[k].type, t[k].help);
		for (size_t i = 0; i < m->nr_contexts; i++) {
			const status *s = m->context[i]->status;

			if (t[k].value(s) >= 0)
				metrics_line(f, t[k].name, t[k].value(s), "context", s->name, NULL);
		}
	}
}
