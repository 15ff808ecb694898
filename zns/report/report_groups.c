/* SPDX-License-Identifier: GPL-2.0-only */
/* report: occupancy and wear of each group */
#include "report.h"

#define BAR 14.0
#define STEP 20.0
#define LABEL 92.0
#define MIDDLE 560.0
#define RIGHT 60.0
#define BARS_MAX 128 /* most groups in the chart; the table shows all */

static void one(FILE *f, const struct ctl_group *g, uint32_t id, double y, double most,
		uint64_t most_resets)
{
	double scale = (MIDDLE - LABEL) / zns_max(most, 1.0), live = (double)g->live * scale,
	       written = (double)g->written * scale,
	       wear = (WIDE - MIDDLE - 40 - RIGHT) * (double)g->resets /
		      (double)zns_max(most_resets, UINT64_C(1));
	char a[32], b[32];

	fprintf(f, "<text class=\"axis\" x=\"0\" y=\"%.1f\">", y + BAR - 3);
	if (g->unknown)
		fputs("unknown</text>", f);
	else
		fprintf(f, "group %u</text>", id);
	fprintf(f, "<g><title>%s live of %s</title>", zns_format_size(g->live, a, sizeof(a)),
		zns_format_size(g->capacity, b, sizeof(b)));
	svg_rect(f, "track", LABEL, y, (double)g->capacity * scale, BAR);
	svg_rect(f, "waste", LABEL, y, written, BAR);
	svg_rect(f, "k0", LABEL, y, zns_min(live, written), BAR);
	fprintf(f, "</g><g><title>%llu resets</title>", (unsigned long long)g->resets);
	svg_rect(f, "k1", MIDDLE + 40, y, wear, BAR);
	fprintf(f, "</g><text class=\"over\" x=\"%.1f\" y=\"%.1f\">%llu</text>\n",
		MIDDLE + 46 + wear, y + BAR - 3, (unsigned long long)g->resets);
}

static void picture(FILE *f, const struct ctl_view *v)
{
	uint32_t n = zns_min(v->nr_groups, (uint32_t)BARS_MAX);
	/* at least 10, so that a single reset is not drawn as a long bar */
	uint64_t most = 0, resets = 10;

	for (uint32_t i = 0; i < n; i++) {
		most = zns_max(most, v->groups[i].capacity);
		resets = zns_max(resets, v->groups[i].resets);
	}
	svg_begin(
		f, "groups", n * STEP + 26, "Groups",
		"For each group of zones a bar of what is live and what is written of its capacity, and a bar of "
		"the resets of its zones.");
	fprintf(f,
		"<text class=\"axis\" x=\"%.1f\" y=\"12\">live and written</text>"
		"<text class=\"axis\" x=\"%.1f\" y=\"12\">resets</text>\n",
		LABEL, MIDDLE + 40);
	for (uint32_t i = 0; i < n; i++)
		one(f, &v->groups[i], i, 20 + i * STEP, (double)most, resets);
	svg_end(f);
	fputs("<ul class=\"legend\">", f);
	report_legend(f, "k0", "", "live");
	report_legend(f, "waste", "", "written, not live");
	report_legend(f, "track", "", "room");
	report_legend(f, "k1", "", "resets");
	fputs("</ul>\n", f);
}

void report_groups(FILE *f, const struct report *r)
{
	const struct ctl_view *v = &r->d.v;

	fputs("<section><h2>Groups and wear</h2>\n", f);
	picture(f, v);
	fputs("<p class=\"soft\">A group is a die as far as its map knows. Bytes written and resets are those that "
	      "brokers on this machine saw since ",
	      f);
	report_time(f, v->history->history->since_ns);
	fputs("; what happened before is not known here. A broker that was killed took up to ten seconds with it.</p>\n",
	      f);
	html_table(f, "Groups",
		   ":group|:channel|:zones|:empty|:capacity|:filled|:live|:written in all|:resets");
	for (uint32_t i = 0; i < v->nr_groups; i++) {
		const struct ctl_group *g = &v->groups[i];

		fprintf(f, "<tr><td class=\"n\">%u</td><td class=\"n\">", i);
		fprintf(f, g->channel < 0 ? "?</td>" : "%d</td>", g->channel);
		html_number_cell(f, g->zones);
		html_number_cell(f, g->empty);
		html_size_cell(f, g->capacity);
		html_size_cell(f, g->written);
		html_size_cell(f, g->live);
		html_size_cell(f, g->written_total);
		html_number_cell(f, g->resets);
		fputs("</tr>\n", f);
	}
	html_table_end(f);
	fputs("</section>\n", f);
}
