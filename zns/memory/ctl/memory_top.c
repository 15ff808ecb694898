/* SPDX-License-Identifier: GPL-2.0-only */
/* Shows what all contexts do, by the difference of two readings of their counters: znsctl top. */
#include <fcntl.h>
#include <string.h>
#include "memory.h"

/* Rates between two readings; unknown without an earlier reading. */
struct rates {
	bool known;
	/* faults and evictions in units per second, the last two in bytes per second */
	double faults, evictions, read, written;
};

struct row {
	const ZnsPb__MemoryStatus *s;
	struct rates r;
};

static const ZnsPb__MemoryStatus *find(const struct memory_look *l, const char *name)
{
	for (size_t i = 0; i < l->nr; i++)
		if (!strcmp(l->a[i]->status->name, name))
			return l->a[i]->status;
	return NULL;
}

static struct rates rates_of(const ZnsPb__MemoryStatus *s, const struct memory_look *before,
			     uint64_t ns)
{
	const ZnsPb__MemoryStatus *b = find(before, s->name);
	double sec = (double)(ns - before->ns) / 1e9;

	/* if a counter went back, this is a new context with the same name */
	if (!b || s->read_units < b->read_units || s->evicted_units < b->evicted_units ||
	    memory_units_read(s) < memory_units_read(b) ||
	    memory_units_written(s) < memory_units_written(b) || sec <= 0)
		return (struct rates){ 0 };
	return (struct rates){
		.known = true,
		.faults = (double)(s->read_units - b->read_units) / sec,
		.evictions = (double)(s->evicted_units - b->evicted_units) / sec,
		.read = (double)(memory_units_read(s) - memory_units_read(b)) *
			(double)MEMORY_UNIT / sec,
		.written = (double)(memory_units_written(s) - memory_units_written(b)) *
			   (double)MEMORY_UNIT / sec,
	};
}

/* The share of the units read ahead that was used; negative: unknown. */
static double accuracy(const ZnsPb__MemoryStatus *s)
{
	uint64_t known = s->prefetch_used + s->prefetch_unused;

	return s->predict && known ? (double)s->prefetch_used / (double)known : -1;
}

/* Sorts the busiest context first. */
static int by_work(const void *a, const void *b)
{
	const struct row *x = a, *y = b;
	double p = x->r.faults + x->r.evictions, q = y->r.faults + y->r.evictions;

	return p != q ? (p < q ? 1 : -1) : strcmp(x->s->name, y->s->name);
}

static struct row *rows_of(const struct memory_look *now, const struct memory_look *before)
{
	struct row *row = calloc(now->nr + 1, sizeof(*row));

	for (size_t i = 0; row && i < now->nr; i++)
		row[i] = (struct row){ now->a[i]->status,
				       rates_of(now->a[i]->status, before, now->ns) };
	if (row)
		qsort(row, now->nr, sizeof(*row), by_work);
	return row;
}

/* Reads avg10 of "some" and "full"; false: the kernel does not report it. */
static bool pressure(double *some, double *full)
{
	cleanup_free uint8_t *text = NULL;
	size_t len;

	return !zns_read_file(AT_FDCWD, "/proc/pressure/memory", 4096, &text, &len) &&
	       sscanf((const char *)text, "some avg10=%lf %*[^\n]\nfull avg10=%lf", some, full) ==
		       2;
}

static struct json_object *number(bool known, double v)
{
	return known ? json_object_new_double(v) : NULL;
}

static struct json_object *row_json(const struct row *w)
{
	double used = accuracy(w->s);
	struct json_object *o = memory_json(w->s);

	json_object_object_add(o, "faults_per_s", number(w->r.known, w->r.faults));
	json_object_object_add(o, "evictions_per_s", number(w->r.known, w->r.evictions));
	json_object_object_add(o, "read_bytes_per_s", number(w->r.known, w->r.read));
	json_object_object_add(o, "written_bytes_per_s", number(w->r.known, w->r.written));
	json_object_object_add(o, "prefetch_accuracy", number(used >= 0, used));
	return o;
}

struct json_object *memory_pressure_json(void)
{
	double some, full;

	return pressure(&some, &full) ? ctl_obj(J("some_avg10", some), J("full_avg10", full)) :
					NULL;
}

void memory_pressure_text(FILE *f)
{
	double some, full;

	if (pressure(&some, &full))
		fprintf(f, "; memory pressure (10 s): some %.1f %%, full %.1f %%", some, full);
}

struct json_object *memory_top_json(const struct memory_look *now, const struct memory_look *before)
{
	struct json_object *list = json_object_new_array();
	struct row *row = rows_of(now, before);

	for (size_t i = 0; row && i < now->nr; i++)
		json_object_array_add(list, row_json(&row[i]));
	free(row);
	return list;
}

static void show_row(FILE *f, const struct row *w)
{
	char name[CTL_NAME], state[64], a[32], b[32], c[32], used[16] = "-";
	const struct rates *r = &w->r;

	if (accuracy(w->s) >= 0)
		snprintf(used, sizeof(used), "%.0f %%", 100 * accuracy(w->s));
	fprintf(f, "%-20s  %-15s %9s %9s %9s", ctl_name(w->s->name, name, sizeof(name)),
		memory_state_text(w->s, state, sizeof(state)),
		zns_format_size(w->s->resident, a, sizeof(a)),
		zns_format_size(w->s->dram, b, sizeof(b)),
		zns_format_size(w->s->evicted, c, sizeof(c)));
	if (r->known)
		fprintf(f, " %8.0f %8.0f %7.1f %7.1f", r->faults, r->evictions, r->read / 1048576,
			r->written / 1048576);
	else
		fprintf(f, " %8s %8s %7s %7s", "-", "-", "-", "-");
	fprintf(f, " %6s\n", used);
}

void memory_top_text(FILE *f, const struct memory_look *now, const struct memory_look *before)
{
	struct row *row = rows_of(now, before);

	fprintf(f, "%-20s  %-15s %9s %9s %9s %8s %8s %7s %7s %6s\n", "CONTEXT", "STATE", "DRAM",
		"BUDGET", "ON ZONES", "FAULTS/s", "EVICT/s", "R MiB/s", "W MiB/s", "AHEAD");
	for (size_t i = 0; row && i < now->nr; i++)
		show_row(f, &row[i]);
	free(row);
}
