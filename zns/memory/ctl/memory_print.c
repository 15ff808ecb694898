/* SPDX-License-Identifier: GPL-2.0-only */
/* Prints a memory context: as one row with warnings, or as JSON. */
#include <string.h>
#include "memory.h"

static const char *state_word(const ZnsPb__MemoryStatus *s)
{
	switch (s->has_state ? s->state : ZNS_PB__MEMORY_STATE__MEMORY_ACTIVE) {
	case ZNS_PB__MEMORY_STATE__MEMORY_GOING_DOWN:
		return "going down";
	case ZNS_PB__MEMORY_STATE__MEMORY_HIBERNATED:
		return "hibernated";
	case ZNS_PB__MEMORY_STATE__MEMORY_WAKING:
		return "waking";
	default:
		return "active";
	}
}

struct json_object *memory_json(const ZnsPb__MemoryStatus *s)
{
	struct json_object *o = ctl_json(
		s,
		"name pid state= since=since_ns:time active=active_ns:time idle_ms "
		"record_units wakes activations record_left_out record_missed "
		"dram resident evicted processes{pid resident evicted evicts why} "
		"skipped{locked! shared! file! special!} kept evicted_units clean_units "
		"read_units spare_units zero_faults write_faults clean_writes cancelled lost_units left_processes "
		"auto_total auto_min "
		"predict prefetched prefetch_used prefetch_unused "
		"takeovers qos_mibps write_rate moved_units attach_stop_ns stops stopped_ns fault_ns_p50 fault_ns_p99 "
		"missing warning unread "
		"checkpoint encrypted!");

	json_object_object_add(o, "state", json_object_new_string(state_word(s)));
	return o;
}

static const char *size(uint64_t bytes, char *buf, size_t len)
{
	return zns_format_size(bytes, buf, len);
}

static bool rests(const ZnsPb__MemoryStatus *s)
{
	return s->has_state && s->state == ZNS_PB__MEMORY_STATE__MEMORY_HIBERNATED;
}

static void processes(const ZnsPb__MemoryStatus *s)
{
	char a[32], b[32];

	for (size_t i = 0; i < s->n_processes; i++) {
		const ZnsPb__MemoryProcess *p = s->processes[i];

		printf("  PID %-8u resident %8s  on zones %8s%s%s\n", p->pid,
		       size(p->resident, a, sizeof(a)), size(p->evicted, b, sizeof(b)),
		       p->evicts || rests(s) ? "" : "  not evicted",
		       p->why && *p->why && !rests(s) ? ctl_text(p->why) : "");
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

const char *memory_state_text(const ZnsPb__MemoryStatus *s, char *buf, size_t len)
{
	bool active = !s->has_state || s->state == ZNS_PB__MEMORY_STATE__MEMORY_ACTIVE;
	int64_t ns = zns_now_ns() - (active ? s->active_ns : s->since_ns);
	uint64_t sec = ns > 0 ? (uint64_t)ns / 1000000000 : 0;
	char time[32];

	/* above 5 minutes, seconds do not matter */
	if (sec > 300)
		sec -= sec % 60;
	zns_format_duration(zns_max(sec, (uint64_t)1), time, sizeof(time));
	if (active && sec >= 2)
		snprintf(buf, len, "idle %s", time);
	else if (rests(s))
		snprintf(buf, len, "%s %s", state_word(s), time);
	else
		snprintf(buf, len, "%s", state_word(s));
	return buf;
}

/* Prints how much was read ahead, and how much of that was used. */
static void predicted(const ZnsPb__MemoryStatus *s)
{
	uint64_t known = s->prefetch_used + s->prefetch_unused;

	if (!s->predict)
		printf("  nothing is read ahead\n");
	else if (!known)
		printf("  %llu units were read ahead\n", (unsigned long long)s->prefetched);
	else
		printf("  %llu units were read ahead; of a sample of %llu %.0f %% were used\n",
		       (unsigned long long)s->prefetched, (unsigned long long)known,
		       100.0 * (double)s->prefetch_used / (double)known);
}

static void record(const ZnsPb__MemoryStatus *s)
{
	char a[32];

	if (!s->record_units)
		return;
	printf("  its last activations used %s; %llu wakes and %llu activations so far",
	       size(s->record_units * 65536, a, sizeof(a)), (unsigned long long)s->wakes,
	       (unsigned long long)s->activations);
	if (s->record_left_out)
		printf("; of a sample of %llu units %.0f %% were used",
		       (unsigned long long)s->record_left_out,
		       100.0 * (double)s->record_missed / (double)s->record_left_out);
	printf("\n");
}

void memory_print(const ZnsPb__MemoryStatus *s, bool verbose)
{
	char a[32], b[32], c[32], d[64], name[CTL_NAME];

	printf("%-20s  %-15s  DRAM %8s of %8s  on zones %8s  %zu process%s  faults %llu\n",
	       ctl_name(s->name, name, sizeof(name)), memory_state_text(s, d, sizeof(d)),
	       size(s->resident, a, sizeof(a)), size(s->dram, b, sizeof(b)),
	       size(s->evicted, c, sizeof(c)), s->n_processes, s->n_processes == 1 ? "" : "es",
	       (unsigned long long)s->read_units);
	if (s->checkpoint)
		printf("  needs checkpoint %s: %s are there alone\n", ctl_text(s->checkpoint),
		       size(s->unread, a, sizeof(a)));
	if (verbose && s->encrypted)
		printf("  what is on zones is encrypted\n");
	remark(s->warning);
	remark(s->missing);
	if (s->lost_units)
		printf("  %llu units could not be read back: their processes got a signal\n",
		       (unsigned long long)s->lost_units);
	if (!verbose)
		return;
	if (s->auto_total)
		printf("  its budget is its part of %s, at least %s\n",
		       size(s->auto_total, a, sizeof(a)), size(s->auto_min, b, sizeof(b)));
	if (s->idle_ms)
		printf("  hibernates after %s without activity\n",
		       zns_format_duration(s->idle_ms / 1000, a, sizeof(a)));
	record(s);
	processes(s);
	skipped(s->skipped);
	printf("  written %llu units of 64 KiB, read %llu; %llu evictions ended by a write, %llu in all\n",
	       (unsigned long long)(s->evicted_units - s->clean_units),
	       (unsigned long long)s->read_units, (unsigned long long)s->write_faults,
	       (unsigned long long)s->cancelled);
	printf("  %llu evictions without a write; %s in memory are as on zones\n",
	       (unsigned long long)s->clean_units, size(s->kept, a, sizeof(a)));
	if (s->qos_mibps || s->write_rate || s->moved_units) {
		printf("  writes %s/s", size(s->write_rate, a, sizeof(a)));
		if (s->qos_mibps)
			printf(" of %u MiB/s", s->qos_mibps);
		printf("; %llu units were moved to empty their zones\n",
		       (unsigned long long)s->moved_units);
	}
	predicted(s);
	if (s->has_fault_ns_p50)
		printf("  a fault took %.0f us, one of a hundred more than %.0f us\n",
		       (double)s->fault_ns_p50 / 1e3, (double)s->fault_ns_p99 / 1e3);
	if (s->has_attach_stop_ns)
		printf("  its threads stood still for %.1f ms at most, in %llu stops for %.1f ms\n",
		       (double)s->attach_stop_ns / 1e6, (unsigned long long)s->stops,
		       (double)s->stopped_ns / 1e6);
	printf("  pager PID %u, %llu before it\n", s->pid, (unsigned long long)s->takeovers);
}

int memory_show(const struct ctl_cmd *cmd, const char *name, bool json)
{
	struct zns_err err = ZNS_ERR_INIT;
	ZnsPb__MemoryAnswer *r;

	if (memory_status(name, &r, &err))
		return ctl_fail(cmd, &err);
	if (json)
		ctl_print_json(memory_json(r->status));
	else
		memory_print(r->status, true);
	zns_pb__memory_answer__free_unpacked(r, NULL);
	return CTL_OK;
}
