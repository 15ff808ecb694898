/* SPDX-License-Identifier: GPL-2.0-only */
/* report: functions for all sections, the head of the page, and what runs at present */
#include <string.h>
#include "report.h"

int report_place(const struct report *r, const char *container)
{
	for (size_t i = 0; i < r->d.nr_containers; i++)
		if (!strcmp(r->d.containers[i].c->container, container))
			return (int)i;
	return -1;
}

const char *report_colour(int place)
{
	static const char *const names[REPORT_COLOURS] = { "k0", "k1", "k2", "k3",
							   "k4", "k5", "k6", "k7" };

	return place >= 0 && place < REPORT_COLOURS ? names[place] : "kx";
}

void report_time(FILE *f, int64_t ns)
{
	char when[32];

	zns_format_time(ns, when, sizeof(when));
	fprintf(f, "<time datetime=\"%s\">%s</time>", when, when);
}

void report_legend(FILE *f, const char *colour, const char *mark, const char *text)
{
	bool line = !strcmp(colour, "busy") || !strcmp(colour, "failing");

	fprintf(f, "<li><svg viewBox=\"0 0 15 15\" aria-hidden=\"true\">");
	svg_rect(f, line ? "cell" : colour, 1, 1, 13, 13);
	if (line)
		svg_rect(f, colour, 2, 2, 11, 11);
	if (*mark)
		fprintf(f,
			"<text class=\"mark\" text-anchor=\"middle\" x=\"7.5\" y=\"11\">%s</text>",
			mark);
	fputs("</svg>", f);
	html_text(f, text);
	fputs("</li>", f);
}

static void card(FILE *f, const char *what, const char *value)
{
	fprintf(f, "<div><dt>%s</dt><dd>%s<small>", what, value);
}

static void card_end(FILE *f)
{
	fputs("</small></dd></div>\n", f);
}

static void cards(FILE *f, const struct report *r)
{
	const ZnsPb__Status *s = report_status(r);
	const ZnsPb__LoadCounts *c = r->d.v.history->history->all;
	uint64_t all = s->bytes_live + s->bytes_wasted + s->bytes_free;
	bool disk = zns_spec_on_disk(s->path);
	char a[64], b[32];
	uint32_t failed = s->suspect_zones + ctl_zones_in(s, ZNS_ZONE_READ_ONLY) +
			  ctl_zones_in(s, ZNS_ZONE_OFFLINE);

	fputs("<dl class=\"cards\">\n", f);
	snprintf(a, sizeof(a), "%.0f %%",
		 all ? 100.0 * (double)(s->bytes_live + s->bytes_wasted) / (double)all : 0.0);
	card(f, "Space in use", a);
	fprintf(f, "%s live", zns_format_size(s->bytes_live, b, sizeof(b)));
	fprintf(f, ", %s %s", zns_format_size(s->bytes_wasted, b, sizeof(b)),
		disk ? "reclaimable" : "wasted");
	fprintf(f, ", %s free", zns_format_size(s->bytes_free, b, sizeof(b)));
	card_end(f);
	snprintf(a, sizeof(a), "%zu", r->d.v.ls->n_checkpoints);
	card(f, "Checkpoints", a);
	fprintf(f, "of %zu containers", r->d.nr_containers);
	card_end(f);
	if (disk) {
		card(f, "Size", zns_format_size(all, b, sizeof(b)));
		fprintf(f, "on an ordinary disk");
	} else {
		snprintf(a, sizeof(a), "%u", s->nr_zones);
		card(f, "Zones", a);
		fprintf(f, "%u empty, %u open, %u closed, %u full", ctl_zones_in(s, ZNS_ZONE_EMPTY),
			ctl_zones_in(s, ZNS_ZONE_IMP_OPEN), ctl_zones_in(s, ZNS_ZONE_CLOSED),
			ctl_zones_in(s, ZNS_ZONE_FULL));
	}
	if (failed)
		fprintf(f, ", <span class=\"warn\">%u failing</span>", failed);
	card_end(f);
	snprintf(a, sizeof(a), "%.0f MiB/s", ctl_view_bandwidth(&r->d.v) / (double)MIB(1));
	card(f, "Bandwidth to promise", a);
	if (disk)
		fprintf(f, "that its disk writes; ");
	else
		fprintf(f, "of %u groups; ", r->d.v.nr_groups);
	fprintf(f, "dumps that run asked for %.0f MiB/s", ctl_view_asked(&r->d.v) / (double)MIB(1));
	card_end(f);
	snprintf(a, sizeof(a), "%llu", (unsigned long long)c->dumps);
	card(f, "Dumps since the boot", a);
	fprintf(f, "%llu failed, %llu refused; %llu restores, %llu unfinished",
		(unsigned long long)c->dumps_failed, (unsigned long long)c->dumps_refused,
		(unsigned long long)c->restores, (unsigned long long)c->restores_unfinished);
	card_end(f);
	fputs("</dl>\n", f);
}

void report_head(FILE *f, const struct report *r)
{
	const ZnsPb__Status *s = report_status(r);
	char a[32];

	fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
	      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
	      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
	      "<meta name=\"color-scheme\" content=\"light dark\">\n<title>",
	      f);
	html_text(f, s->path);
	fprintf(f,
		" – checkpoint store</title>\n<style>\n%s</style></head>\n<body><main>\n<header><h1>",
		report_style);
	html_text(f, s->path);
	fprintf(f, "</h1>\n<p class=\"soft\">%s, ", r->d.v.id);
	if (!zns_spec_on_disk(s->path))
		fprintf(f, "%u zones of %s, ", s->nr_zones,
			zns_format_size(s->zone_capacity, a, sizeof(a)));
	fputs("as of ", f);
	report_time(f, r->now_ns);
	fputs("</p>\n", f);
	cards(f, r);
	fputs("</header>\n", f);
}

void report_work(FILE *f, const struct report *r)
{
	const ZnsPb__Status *s = report_status(r);
	bool disk = zns_spec_on_disk(s->path);

	fputs("<section><h2>At work</h2>\n", f);
	if (s->nr_waiting)
		fprintf(f, "<p>%u dumps wait for admission.</p>\n", s->nr_waiting);
	if (!s->n_leases)
		fputs("<p class=\"soft\">No dump, restore, compaction or memory context ran when this was made.</p>\n",
		      f);
	else
		html_table(f, "Bandwidth is in MiB/s.",
			   disk ? "work|:PID|container|:bytes|:now|:asked" :
				  "work|:PID|container|:bytes|:now|:asked|groups");
	for (size_t i = 0; i < s->n_leases; i++) {
		const ZnsPb__LeaseLine *l = s->leases[i];

		fprintf(f, "<tr><td>%s</td>", l->kind);
		html_number_cell(f, l->pid);
		html_cell(f, l->container);
		html_size_cell(f, l->memory ? l->memory->live : l->bytes);
		fprintf(f, "<td class=\"n\">%.0f</td>", l->mibps);
		html_number_cell(f, l->qos_mibps);
		if (!disk)
			fputs("<td>", f);
		for (size_t k = 0; k < l->n_groups && !disk; k++)
			fprintf(f, "%s%u", k ? " " : "", l->groups[k]);
		fputs(disk ? "</tr>\n" : "</td></tr>\n", f);
	}
	if (s->n_leases)
		html_table_end(f);
	fputs("</section>\n", f);
}
