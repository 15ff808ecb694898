/* SPDX-License-Identifier: GPL-2.0-only */
/* memory top: what all contexts do just now, between two looks at their counters. */
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>
#include "memory.h"
#include "zns/grow.h"

#define UNIT 65536.0
#define CLEAR "\033[H\033[2J"
#define HEADING_ROWS 3u

struct look {
	ZnsPb__MemoryAnswer **a;
	size_t nr, max;
	uint64_t ns;
};

/* Per second, between two looks; false: there is no earlier one. */
struct rates {
	bool known;
	double faults, evictions, read, written; /* the last two in bytes */
};

struct row {
	const ZnsPb__MemoryStatus *s;
	struct rates r;
};

static void look_free(struct look *l)
{
	while (l->nr)
		zns_pb__memory_answer__free_unpacked(l->a[--l->nr], NULL);
	free(l->a);
	*l = (struct look){ 0 };
}

/* A context that ends meanwhile, or whose pager just died, is left out. */
static int look_take(struct look *l, struct zns_err *err)
{
	char **names;
	size_t nr;
	int ret = memory_names(&names, &nr, err);

	*l = (struct look){ 0 };
	if (ret)
		return ret;
	for (size_t i = 0; i < nr && !ret; i++) {
		struct zns_err no = ZNS_ERR_INIT;
		ZnsPb__MemoryAnswer *a;

		if (memory_status(names[i], &a, &no))
			continue;
		ret = zns_grow(l->a, l->nr, l->max);
		if (ret)
			zns_pb__memory_answer__free_unpacked(a, NULL);
		else
			l->a[l->nr++] = a;
	}
	l->ns = zns_mono_ns();
	memory_names_free(names, nr);
	if (ret)
		look_free(l);
	return ret ? zns_fail_sys(err, ret, "a look at memory contexts") : 0;
}

static const ZnsPb__MemoryStatus *find(const struct look *l, const char *name)
{
	for (size_t i = 0; i < l->nr; i++)
		if (!strcmp(l->a[i]->status->name, name))
			return l->a[i]->status;
	return NULL;
}

/* Units that went over the device. */
static uint64_t units_read(const ZnsPb__MemoryStatus *s)
{
	uint64_t all = s->read_units + s->prefetched;

	return all - zns_min(all, s->spare_units);
}

static uint64_t units_written(const ZnsPb__MemoryStatus *s)
{
	return s->evicted_units - zns_min(s->evicted_units, s->clean_units) + s->moved_units;
}

static struct rates rates_of(const ZnsPb__MemoryStatus *s, const struct look *before, uint64_t ns)
{
	const ZnsPb__MemoryStatus *b = find(before, s->name);
	double sec = (double)(ns - before->ns) / 1e9;

	/* one that counts anew is another context of that name */
	if (!b || s->read_units < b->read_units || s->evicted_units < b->evicted_units ||
	    units_read(s) < units_read(b) || units_written(s) < units_written(b) || sec <= 0)
		return (struct rates){ 0 };
	return (struct rates){
		.known = true,
		.faults = (double)(s->read_units - b->read_units) / sec,
		.evictions = (double)(s->evicted_units - b->evicted_units) / sec,
		.read = (double)(units_read(s) - units_read(b)) * UNIT / sec,
		.written = (double)(units_written(s) - units_written(b)) * UNIT / sec,
	};
}

/* Part of what was read ahead that was used; negative: not known. */
static double accuracy(const ZnsPb__MemoryStatus *s)
{
	uint64_t known = s->prefetch_used + s->prefetch_unused;

	return s->predict && known ? (double)s->prefetch_used / (double)known : -1;
}

/* The busiest first. */
static int by_work(const void *a, const void *b)
{
	const struct row *x = a, *y = b;
	double p = x->r.faults + x->r.evictions, q = y->r.faults + y->r.evictions;

	return p != q ? (p < q ? 1 : -1) : strcmp(x->s->name, y->s->name);
}

static struct row *rows_of(const struct look *now, const struct look *before)
{
	struct row *row = calloc(now->nr + 1, sizeof(*row));

	for (size_t i = 0; row && i < now->nr; i++)
		row[i] = (struct row){ now->a[i]->status,
				       rates_of(now->a[i]->status, before, now->ns) };
	if (row)
		qsort(row, now->nr, sizeof(*row), by_work);
	return row;
}

/* avg10 of "some" and "full"; false: the kernel does not tell. */
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

static void show_json(const struct row *row, size_t nr, uint64_t ns)
{
	struct json_object *list = json_object_new_array(), *p = NULL;
	double some, full;

	for (size_t i = 0; i < nr; i++)
		json_object_array_add(list, row_json(&row[i]));
	if (pressure(&some, &full))
		p = ctl_obj(J("some_avg10", some), J("full_avg10", full));
	ctl_print_json(ctl_obj(J("interval_s", (double)ns / 1e9), J("memory_pressure", p),
			       J("contexts", list)));
}

static void show_row(const struct row *w)
{
	char name[CTL_NAME], state[64], a[32], b[32], c[32], used[16] = "-";
	const struct rates *r = &w->r;

	if (accuracy(w->s) >= 0)
		snprintf(used, sizeof(used), "%.0f %%", 100 * accuracy(w->s));
	printf("%-20s  %-15s %9s %9s %9s", ctl_name(w->s->name, name, sizeof(name)),
	       memory_state_text(w->s, state, sizeof(state)),
	       zns_format_size(w->s->resident, a, sizeof(a)),
	       zns_format_size(w->s->dram, b, sizeof(b)),
	       zns_format_size(w->s->evicted, c, sizeof(c)));
	if (r->known)
		printf(" %8.0f %8.0f %7.1f %7.1f", r->faults, r->evictions, r->read / 1048576,
		       r->written / 1048576);
	else
		printf(" %8s %8s %7s %7s", "-", "-", "-", "-");
	printf(" %6s\n", used);
}

/* Lines that fit; 0: any number. */
static size_t rows_here(bool live)
{
	struct winsize w;

	if (!live || ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) || w.ws_row <= HEADING_ROWS + 1)
		return 0;
	return w.ws_row - HEADING_ROWS - 1;
}

static void show(const struct row *row, size_t nr, bool live)
{
	double some, full;
	size_t fit = rows_here(live), n = fit && nr > fit ? fit - 1 : nr;

	if (live)
		printf(CLEAR);
	printf("%zu memory context%s", nr, nr == 1 ? "" : "s");
	if (pressure(&some, &full))
		printf("; memory pressure of the last 10 s: some %.1f %%, full %.1f %%", some,
		       full);
	printf("\n\n%-20s  %-15s %9s %9s %9s %8s %8s %7s %7s %6s\n", "CONTEXT", "STATE", "DRAM",
	       "BUDGET", "ON ZONES", "FAULTS/s", "EVICT/s", "R MiB/s", "W MiB/s", "AHEAD");
	for (size_t i = 0; i < n; i++)
		show_row(&row[i]);
	if (n < nr)
		printf("and %zu more\n", nr - n);
}

static void nap(uint64_t s)
{
	struct timespec t = { .tv_sec = (time_t)s };

	while (nanosleep(&t, &t))
		;
}

/* Until it is ended, or nobody reads it any more. */
static int watch(uint64_t interval_s, bool once, bool json, struct zns_err *err)
{
	struct look before, now;
	bool live = !once && isatty(STDOUT_FILENO);
	int ret = look_take(&before, err);

	while (!ret) {
		struct row *row;

		nap(interval_s);
		ret = look_take(&now, err);
		if (ret)
			break;
		row = rows_of(&now, &before);
		if (!row) {
			look_free(&now);
			ret = zns_fail_sys(err, -ENOMEM, "a look at memory contexts");
			break;
		}
		if (json)
			show_json(row, now.nr, now.ns - before.ns);
		else
			show(row, now.nr, live);
		free(row);
		look_free(&before);
		before = now;
		if (once || fflush(stdout))
			break;
		if (!live && !json)
			printf("\n");
	}
	look_free(&before);
	return ret;
}

int memory_cmd_top(const struct ctl_cmd *cmd, int argc, char **argv)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	uint64_t interval_s = 2;
	bool once = false;
	const struct ctl_opt opts[] = { CTL_FLAG("once", &once),
					CTL_DURATION("interval", &interval_s, 1), CTL_OPTS_END };

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (args.argc)
		return ctl_usage(cmd, "it takes no argument, and shows all contexts");
	return watch(interval_s, once || args.json, args.json, &err) ? ctl_fail(cmd, &err) : CTL_OK;
}
