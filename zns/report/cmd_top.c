/* SPDX-License-Identifier: GPL-2.0-only */
/* top: what dumps, restores and memory contexts do at present, and which groups they use. */
#include <string.h>
#include "metrics.h"
#include "screen.h"

#define ASKED (VIEW_STATUS | VIEW_ZONES | VIEW_PROFILE | VIEW_HISTORY)

struct look {
	struct ctl_view *v;
	size_t nr;
	struct memory_look memory;
	uint64_t ns;
};

static int take(void *look, void *arg, struct zns_err *err)
{
	cleanup_free struct zns_registered *regs = NULL;
	struct look *l = look;
	size_t nr;
	int ret = ctl_view_devices(arg, &regs, &nr, err);

	*l = (struct look){ 0 };
	if (!ret)
		ret = memory_look_take(&l->memory, err);
	if (ret)
		return ret;
	l->v = calloc(nr + 1, sizeof(*l->v));
	if (!l->v) {
		memory_look_free(&l->memory);
		return zns_fail(err, -ENOMEM, "no memory for a look at all devices");
	}
	for (; l->nr < nr; l->nr++) {
		ctl_view_open(&regs[l->nr], &l->v[l->nr]);
		ctl_view_ask(&l->v[l->nr], ASKED);
		ctl_view_hang_up(&l->v[l->nr]);
	}
	l->ns = zns_mono_ns();
	return 0;
}

static void drop(void *look)
{
	struct look *l = look;

	while (l->nr)
		ctl_view_close(&l->v[--l->nr]);
	free(l->v);
	memory_look_free(&l->memory);
	*l = (struct look){ 0 };
}

/* The state of the same device at the other time; NULL: it was not there. */
static const struct ctl_view *same(const struct look *l, const struct ctl_view *v)
{
	for (size_t i = 0; i < l->nr; i++)
		if (!strcmp(l->v[i].id, v->id) && ctl_view_up(&l->v[i]) &&
		    l->v[i].nr_groups == v->nr_groups)
			return &l->v[i];
	return NULL;
}

/* Bytes per second that were written to a group; negative: unknown. */
static double rate(const struct ctl_view *now, const struct ctl_view *before, uint32_t g,
		   double sec)
{
	const struct ctl_group *n = &now->groups[g], *b = before ? &before->groups[g] : NULL;

	if (!b || sec <= 0 || n->written_total < b->written_total)
		return -1;
	return (double)(n->written_total - b->written_total) / sec;
}

static double sum_of_rates(const struct ctl_view *now, const struct ctl_view *before, double sec)
{
	double sum = 0;

	for (uint32_t g = 0; g < now->nr_groups; g++)
		sum += zns_max(rate(now, before, g, sec), 0.0);
	return sum;
}

static double seconds(const struct look *now, const struct look *before)
{
	return (double)(now->ns - before->ns) / 1e9;
}

static void mibps(char *buf, size_t len, bool known, double bytes)
{
	if (known)
		snprintf(buf, len, "%.0f", bytes / (double)MIB(1));
	else
		snprintf(buf, len, "-");
}

static void lease_row(FILE *f, const ZnsPb__LeaseLine *l, bool groups)
{
	char name[CTL_NAME], done[32] = "-", all[32] = "-", now[32], asked[16], limit[16];

	if (l->memory)
		zns_format_size(l->memory->live, done, sizeof(done));
	else if (l->has_bytes)
		zns_format_size(l->bytes, done, sizeof(done));
	if (!l->memory && l->total > l->bytes)
		zns_format_size(l->total, all, sizeof(all));
	mibps(now, sizeof(now), l->has_mibps, l->mibps * (double)MIB(1));
	mibps(asked, sizeof(asked), l->qos_mibps > 0, l->qos_mibps * (double)MIB(1));
	mibps(limit, sizeof(limit), l->rate_mibps > 0, l->rate_mibps * (double)MIB(1));
	fprintf(f, "%-8s %7u  %9s %9s %6s %6s %6s  %-20s ", l->kind, l->pid, done, all, now, asked,
		limit, ctl_name(l->container, name, sizeof(name)));
	for (size_t i = 0; groups && i < l->n_groups; i++)
		fprintf(f, " %u", l->groups[i]);
	fprintf(f, "\n");
}

struct group_row {
	uint32_t id, users;
	double rate;
};

static int by_rate(const void *a, const void *b)
{
	const struct group_row *x = a, *y = b;

	if (x->rate != y->rate)
		return x->rate < y->rate ? 1 : -1;
	if (x->users != y->users)
		return x->users < y->users ? 1 : -1;
	return x->id < y->id ? -1 : x->id > y->id;
}

static void group_row(FILE *f, const struct ctl_view *v, const struct group_row *r)
{
	const struct ctl_group *g = &v->groups[r->id];
	char channel[16] = "?", now[32];

	if (g->channel >= 0)
		snprintf(channel, sizeof(channel), "%d", g->channel);
	mibps(now, sizeof(now), r->rate >= 0, r->rate);
	fprintf(f, "%5u %7s %6s %4.0f %% %5u %5u %5u %7u %7u\n", r->id, channel, now,
		g->capacity ? 100.0 * (double)g->written / (double)g->capacity : 0.0, g->empty,
		g->leases[0], g->leases[1], g->leases[2], g->leases[3]);
}

/* Prints the groups that are in use, the busiest first. */
static void group_rows(FILE *f, const struct ctl_view *v, const struct ctl_view *before, double sec)
{
	cleanup_free struct group_row *row = calloc(v->nr_groups + 1, sizeof(*row));
	uint32_t n = 0;

	for (uint32_t g = 0; row && g < v->nr_groups; g++) {
		const uint32_t *k = v->groups[g].leases;
		struct group_row r = { g, k[0] + k[1] + k[2] + k[3], rate(v, before, g, sec) };

		if (r.users || r.rate > 0)
			row[n++] = r;
	}
	if (!n)
		return;
	qsort(row, n, sizeof(*row), by_rate);
	fprintf(f, "\n%5s %7s %6s %6s %5s %5s %5s %7s %7s\n", "GROUP", "CHANNEL", "W MiB/s",
		"FILLED", "EMPTY", "DUMPS", "READS", "COMPACT", "MEMORY");
	for (uint32_t i = 0; i < n; i++)
		group_row(f, v, &row[i]);
	if (n < v->nr_groups)
		fprintf(f, "%u other groups are idle\n", v->nr_groups - n);
}

static void device(FILE *f, const struct ctl_view *v, const struct ctl_view *before, double sec)
{
	const ZnsPb__Status *s;
	const ZnsPb__LoadCounts *c;
	char a[32], now[32], asked[32], all[32];
	bool disk;

	fprintf(f, "%s", ctl_text(v->reg.path));
	if (!ctl_view_up(v)) {
		fprintf(f, ": not there: %s\n", ctl_text(v->away.msg));
		return;
	}
	s = v->status->status;
	c = v->history->history->all;
	disk = zns_spec_on_disk(v->reg.path);
	if (disk)
		fprintf(f, "  %s used, %s reclaimable, ",
			zns_format_size(s->bytes_live, now, sizeof(now)),
			zns_format_size(s->bytes_wasted, all, sizeof(all)));
	else
		fprintf(f, "  %u groups, ", v->nr_groups);
	fprintf(f, "%s free, %u checkpoints, %u dumps wait\n",
		zns_format_size(s->bytes_free, a, sizeof(a)), s->nr_checkpoints, s->nr_waiting);
	mibps(now, sizeof(now), before != NULL, sum_of_rates(v, before, sec));
	mibps(all, sizeof(all), true, ctl_view_bandwidth(v));
	snprintf(asked, sizeof(asked), "%.0f MiB/s", ctl_view_asked(v) / (double)MIB(1));
	fprintf(f, "written %s MiB/s of %s, asked for %s\n", now, all, asked);
	fprintf(f,
		"since the boot %llu dumps, %llu failed, %llu refused; %llu restores, %llu unfinished\n",
		(unsigned long long)c->dumps, (unsigned long long)c->dumps_failed,
		(unsigned long long)c->dumps_refused, (unsigned long long)c->restores,
		(unsigned long long)c->restores_unfinished);
	if (s->n_leases)
		fprintf(f, "\n%-8s %7s  %9s %9s %6s %6s %6s  %-20s  %s\n", "WORK", "PID", "DONE",
			"OF", "MiB/s", "ASKED", "LIMIT", "CONTAINER", disk ? "" : "GROUPS");
	for (size_t i = 0; i < s->n_leases; i++)
		lease_row(f, s->leases[i], !disk);
	if (!disk)
		group_rows(f, v, before, sec);
}

static void text(FILE *f, const void *now, const void *before)
{
	const struct look *n = now, *b = before;

	fprintf(f, "%zu device%s, %zu memory context%s", n->nr, n->nr == 1 ? "" : "s", n->memory.nr,
		n->memory.nr == 1 ? "" : "s");
	memory_pressure_text(f);
	fprintf(f, "\n");
	for (size_t i = 0; i < n->nr; i++) {
		fprintf(f, "\n");
		device(f, &n->v[i], same(b, &n->v[i]), seconds(n, b));
	}
	if (!n->memory.nr)
		return;
	fprintf(f, "\n");
	memory_top_text(f, &n->memory, &b->memory);
}

static struct json_object *groups_json(const struct ctl_view *v, const struct ctl_view *before,
				       double sec)
{
	struct json_object *list = json_object_new_array();

	for (uint32_t g = 0; g < v->nr_groups; g++) {
		struct json_object *o = ctl_view_group_json(v, g);
		double r = rate(v, before, g, sec);

		json_object_object_add(o, "written_bytes_per_s",
				       r < 0 ? NULL : json_object_new_double(r));
		json_object_array_add(list, o);
	}
	return list;
}

static struct json_object *device_json(const struct ctl_view *v, const struct ctl_view *before,
				       double sec)
{
	const ZnsPb__Status *s = ctl_view_up(v) ? v->status->status : NULL;
	struct json_object *o = ctl_obj(J("device", (const char *)v->id),
					J("path", (const char *)v->reg.path), JB("up", s),
					J("error", s ? NULL : (const char *)v->away.msg));

	ctl_json_add(o, &zns_pb__status__descriptor, s,
		     "checkpoints=nr_checkpoints waiting=nr_waiting! bytes_free");
	json_object_object_add(o, "available_bytes_per_s",
			       s ? json_object_new_double(ctl_view_bandwidth(v)) : NULL);
	json_object_object_add(o, "asked_bytes_per_s",
			       s ? json_object_new_double(ctl_view_asked(v)) : NULL);
	json_object_object_add(o, "leases", s ? ctl_json_leases(s) : json_object_new_array());
	json_object_object_add(o, "counters",
			       s ? ctl_json(v->history->history->all, CTL_COUNTERS) : NULL);
	json_object_object_add(o, "groups", groups_json(v, before, sec));
	return o;
}

static struct json_object *json(const void *now, const void *before)
{
	const struct look *n = now, *b = before;
	struct json_object *list = json_object_new_array();

	for (size_t i = 0; i < n->nr; i++)
		json_object_array_add(list,
				      device_json(&n->v[i], same(b, &n->v[i]), seconds(n, b)));
	return ctl_obj(J("interval_s", seconds(n, b)), J("memory_pressure", memory_pressure_json()),
		       J("devices", list), J("contexts", memory_top_json(&n->memory, &b->memory)));
}

static int cmd_top(const struct ctl_cmd *cmd, int argc, char **argv)
{
	static const struct ctl_watched what = { sizeof(struct look), take, drop, text, json };
	struct ctl_screen screen = { .interval_s = 2 };
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	const struct ctl_opt opts[] = { CTL_FLAG("once", &screen.once),
					CTL_DURATION("interval", &screen.interval_s, 1), CTL_DEV,
					CTL_OPTS_END };

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (ctl_only_dev(cmd, &args))
		return CTL_USAGE;
	screen.json = args.json;
	return ctl_watch(&screen, &what, (void *)args.dev, &err) ? ctl_fail(cmd, &err) : CTL_OK;
}

const struct ctl_cmd report_cmd_top = {
	"top",
	"[DEV] [--interval TIME] [--once]",
	"what dumps, restores and memory contexts do just now, and where",
	"  --interval TIME looks so often (default 2 s)\n"
	"  --once          looks twice and ends, as with --json\n" CTL_DEV_HELP,
	cmd_top,
};
