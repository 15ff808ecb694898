/* SPDX-License-Identifier: GPL-2.0-only */
/* report: rates over time, as far as they were recorded */
#include <stddef.h>
#include "report.h"

#define PLOT_H 190.0
#define SPAN_MIN INT64_C(60000000000)

static const struct {
	const char *class, *text;
	size_t at;
} series[] = {
	{ "k0", "dumps, written", offsetof(ZnsPb__LoadCounts, dump_bytes) },
	{ "k2", "restores, read", offsetof(ZnsPb__LoadCounts, restore_bytes) },
	{ "k5", "compactions, moved", offsetof(ZnsPb__LoadCounts, compact_bytes) },
	{ "k3", "memory contexts, written", offsetof(ZnsPb__LoadCounts, memory_written) },
	{ "k4", "memory contexts, read", offsetof(ZnsPb__LoadCounts, memory_read) },
};

static double rate(const ZnsPb__LoadSample *s, size_t k)
{
	uint64_t n = *(const uint64_t *)((const char *)s->counts + series[k].at);

	return (double)n / (double)MIB(1) / ((double)zns_max(s->ms, UINT64_C(1)) / 1e3);
}

static double sum(const ZnsPb__LoadSample *s)
{
	double all = 0;

	for (size_t k = 0; k < ZNS_ARRAY_SIZE(series); k++)
		all += rate(s, k);
	return all;
}

static int64_t began(const ZnsPb__LoadSample *s)
{
	return s->end_ns - (int64_t)zns_min(s->ms, UINT64_C(1000000000)) * 1000000;
}

static void frame(struct svg_plot *p, int64_t from, int64_t to, double top)
{
	double step = svg_step(top > 0 ? top : 1, 4);

	if (to - from < SPAN_MIN)
		to = from + SPAN_MIN;
	*p = (struct svg_plot){
		.x = 52, .y = 28, .w = WIDE - 86, .h = PLOT_H, .from = from, .to = to
	};
	do
		p->top += step;
	while (p->top < top);
}

/* Draws a column for each sample, at least wide enough to be visible. */
static void column(FILE *f, const struct svg_plot *p, const ZnsPb__LoadSample *s)
{
	double x = svg_x(p, began(s)), w = zns_max(svg_x(p, s->end_ns) - x - 0.6, 1.5), at = 0;
	char when[32];

	fprintf(f, "<g><title>%s: ", zns_format_time(s->end_ns, when, sizeof(when)));
	for (size_t k = 0; k < ZNS_ARRAY_SIZE(series); k++)
		if (rate(s, k) > 0)
			fprintf(f, "%s %.1f MiB/s; ", series[k].text, rate(s, k));
	fprintf(f, "%llu dumps, %llu restores ended</title>", (unsigned long long)s->counts->dumps,
		(unsigned long long)s->counts->restores);
	for (size_t k = 0; k < ZNS_ARRAY_SIZE(series); k++) {
		double v = rate(s, k);

		if (v > 0)
			svg_rect(f, series[k].class, x, svg_y(p, at + v), w,
				 svg_y(p, at) - svg_y(p, at + v));
		at += v;
	}
	if (s->counts->dumps_failed || s->counts->restores_unfinished)
		fprintf(f, "<path class=\"bad\" d=\"M%.1f %.1fl5 -9h-10z\"/>", x + w / 2,
			zns_max(svg_y(p, at) - 2, 10.0));
	fputs("</g>\n", f);
}

static void samples_table(FILE *f, const ZnsPb__History *h)
{
	fputs("<details id=\"sample-table\"><summary>All samples as a table</summary>\n", f);
	html_table(
		f, "Samples. Rates are in MiB/s.",
		"until|:seconds|:dumps|:restores|:compactions|:memory written|:memory read|:dumps ended|:failed|:restores ended|:unfinished");
	for (size_t i = 0; i < h->n_samples; i++) {
		const ZnsPb__LoadSample *s = h->samples[i];

		fputs("<tr><td>", f);
		report_time(f, s->end_ns);
		fprintf(f, "</td><td class=\"n\">%.1f</td>", (double)s->ms / 1e3);
		for (size_t k = 0; k < ZNS_ARRAY_SIZE(series); k++)
			fprintf(f, "<td class=\"n\">%.1f</td>", rate(s, k));
		html_number_cell(f, s->counts->dumps);
		html_number_cell(f, s->counts->dumps_failed);
		html_number_cell(f, s->counts->restores);
		html_number_cell(f, s->counts->restores_unfinished);
		fputs("</tr>\n", f);
	}
	html_table_end(f);
	fputs("</details>\n", f);
}

static void samples(FILE *f, const ZnsPb__History *h)
{
	struct svg_plot p;
	double top = 0;

	if (!h->n_samples) {
		fputs("<p class=\"soft\">Nothing moved since then that a broker has kept yet.</p>\n",
		      f);
		return;
	}
	for (size_t i = 0; i < h->n_samples; i++)
		top = zns_max(top, sum(h->samples[i]));
	frame(&p, began(h->samples[0]), h->samples[h->n_samples - 1]->end_ns, top);
	svg_begin(
		f, "rates", PLOT_H + 54, "Bytes moved over time",
		"A column for each sample: the mean rate of dumps, restores, compactions and memory contexts, one "
		"above the other. A triangle stands where a dump or restore failed.");
	svg_axes(f, &p, "MiB/s");
	for (size_t i = 0; i < h->n_samples; i++)
		column(f, &p, h->samples[i]);
	svg_end(f);
	fputs("<ul class=\"legend\">", f);
	for (size_t k = 0; k < ZNS_ARRAY_SIZE(series); k++)
		report_legend(f, series[k].class, "", series[k].text);
	report_legend(f, "bad", "", "with a dump that failed, or a restore that did not finish");
	fputs("</ul>\n", f);
	samples_table(f, h);
}

#define RATE_MAX 1e9
#define TIME_MAX (INT64_MAX / 2)

/*
 * Has the record a rate that can be drawn? Rates in records may be any number, and too large ones
 * are left out.
 */
static bool rated(const ZnsPb__Checkpoint *c)
{
	return c->has_qos_achieved_mibps && c->qos_achieved_mibps < RATE_MAX &&
	       c->created_ns < TIME_MAX;
}

/* Draws the rate of each dump whose checkpoint is still on the device, from its record. */
static void dumps(FILE *f, const struct report *r)
{
	const ZnsPb__Response *ls = r->d.v.ls;
	struct svg_plot p;
	int64_t from = INT64_MAX, to = 0;
	double top = 0;
	size_t n = 0;

	for (size_t i = 0; i < ls->n_checkpoints; i++) {
		const ZnsPb__Checkpoint *c = ls->checkpoints[i];

		if (!rated(c))
			continue;
		n++;
		from = zns_min(from, c->created_ns);
		to = zns_max(to, c->created_ns);
		top = zns_max(top, zns_max(c->qos_achieved_mibps, (double)c->qos_requested_mibps));
	}
	if (!n) {
		fputs("<p class=\"soft\">No checkpoint here has a bandwidth: they were too short to rate.</p>\n",
		      f);
		return;
	}
	/* leave a margin, so that no dot is on an axis */
	frame(&p, from - zns_max((to - from) / 40, SPAN_MIN / 4),
	      to + zns_max((to - from) / 40, SPAN_MIN / 4), top);
	svg_begin(
		f, "dumps", PLOT_H + 54, "Bandwidth of each dump",
		"A dot for each checkpoint that is still on the device: when it was committed, and what bandwidth it got. "
		"A short line stands at what it asked for.");
	svg_axes(f, &p, "MiB/s");
	for (size_t i = 0; i < ls->n_checkpoints; i++) {
		const ZnsPb__Checkpoint *c = ls->checkpoints[i];
		double x = svg_x(&p, c->created_ns);

		if (!rated(c))
			continue;
		fputs("<g><title>", f);
		html_short(f, c->container, 60);
		fprintf(f, ": %.0f MiB/s, asked for %u</title>", c->qos_achieved_mibps,
			c->qos_requested_mibps);
		if (c->qos_requested_mibps)
			fprintf(f,
				"<line class=\"drop\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>"
				"<line class=\"asked\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>",
				x, x, svg_y(&p, c->qos_requested_mibps),
				svg_y(&p, c->qos_achieved_mibps), x - 5, x + 5,
				svg_y(&p, c->qos_requested_mibps),
				svg_y(&p, c->qos_requested_mibps));
		fprintf(f, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/></g>\n",
			report_colour(report_place(r, c->container)), x,
			svg_y(&p, c->qos_achieved_mibps));
	}
	svg_end(f);
	fputs("<p class=\"soft\">A dot: what it got, in its container's colour as above. A line: what it asked for. Dumps that were too short to rate are left out. "
	      "The table of checkpoints has the numbers.</p>\n",
	      f);
}

void report_rates(FILE *f, const struct report *r)
{
	const ZnsPb__History *h = r->d.v.history->history;

	fputs("<section><h2>Rates over time</h2>\n<p class=\"soft\">Brokers on this machine have kept samples since ",
	      f);
	report_time(f, h->since_ns);
	fprintf(f,
		" (its boot, or the device's first use after it): the last 360, of ten seconds or more, in which something moved. "
		"Where there is no column nothing moved, or no broker ran. Shorter peaks are averaged away.</p>\n");
	samples(f, h);
	fputs("<h2>Bandwidth of dumps</h2>\n<p class=\"soft\">From the records on the device; a checkpoint that was removed took "
	      "its figures with it.</p>\n",
	      f);
	dumps(f, r);
	fputs("</section>\n", f);
}
