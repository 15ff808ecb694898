/* SPDX-License-Identifier: GPL-2.0-only */
/* A memory context for users: one row, what is wrong with it, and JSON. */
#include <string.h>
#include "memory.h"

struct json_object *memory_json(const ZnsPb__MemoryStatus *s)
{
	return ctl_json(
		s, "name pid dram resident evicted processes{pid resident evicted evicts why} "
		   "skipped{locked! shared! file! special!} kept evicted_units clean_units "
		   "read_units zero_faults write_faults clean_writes cancelled lost_units "
		   "takeovers attach_stop_ns fault_ns_p50 fault_ns_p99 mechanism missing warning");
}

static const char *size(uint64_t bytes, char *buf, size_t len)
{
	return zns_format_size(bytes, buf, len);
}

static void processes(const ZnsPb__MemoryStatus *s)
{
	char a[32], b[32];

	for (size_t i = 0; i < s->n_processes; i++) {
		const ZnsPb__MemoryProcess *p = s->processes[i];

		printf("  PID %-8u resident %8s  on zones %8s%s%s\n", p->pid,
		       size(p->resident, a, sizeof(a)), size(p->evicted, b, sizeof(b)),
		       p->evicts ? "" : "  not evicted", p->why && *p->why ? ctl_text(p->why) : "");
	}
}

static void skipped(const ZnsPb__MemorySkipped *k)
{
	char a[32], b[32], c[32], d[32];

	if (!k || !(k->locked || k->shared || k->file || k->special))
		return;
	printf("  stays in memory: locked %s, shared %s, files %s, other %s\n",
	       size(k->locked, a, sizeof(a)), size(k->shared, b, sizeof(b)),
	       size(k->file, c, sizeof(c)), size(k->special, d, sizeof(d)));
}

static void remark(const char *text)
{
	if (text && *text)
		printf("  %s\n", ctl_text(text));
}

void memory_print(const ZnsPb__MemoryStatus *s, bool verbose)
{
	char a[32], b[32], c[32], name[CTL_NAME];

	printf("%-20s  DRAM %8s of %8s  on zones %8s  %zu process%s  faults %llu\n",
	       ctl_name(s->name, name, sizeof(name)), size(s->resident, a, sizeof(a)),
	       size(s->dram, b, sizeof(b)), size(s->evicted, c, sizeof(c)), s->n_processes,
	       s->n_processes == 1 ? "" : "es", (unsigned long long)s->read_units);
	remark(s->warning);
	remark(s->missing);
	if (s->lost_units)
		printf("  %llu units could not be read back: their processes got a signal\n",
		       (unsigned long long)s->lost_units);
	if (!verbose)
		return;
	processes(s);
	skipped(s->skipped);
	printf("  written %llu units of 64 KiB, read %llu; %llu evictions ended by a write, %llu in all\n",
	       (unsigned long long)(s->evicted_units - s->clean_units),
	       (unsigned long long)s->read_units, (unsigned long long)s->write_faults,
	       (unsigned long long)s->cancelled);
	printf("  %llu evictions without a write; %s in memory are as on zones\n",
	       (unsigned long long)s->clean_units, size(s->kept, a, sizeof(a)));
	if (s->has_fault_ns_p50)
		printf("  a fault took %.0f us, one of a hundred more than %.0f us\n",
		       (double)s->fault_ns_p50 / 1e3, (double)s->fault_ns_p99 / 1e3);
	if (s->has_attach_stop_ns)
		printf("  a thread stood still for %.1f ms to begin\n",
		       (double)s->attach_stop_ns / 1e6);
	printf("  pager PID %u, %llu before it; pages are dropped by: %s\n", s->pid,
	       (unsigned long long)s->takeovers, s->mechanism);
}
