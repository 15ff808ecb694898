/* SPDX-License-Identifier: GPL-2.0-only */
/* report: the space that containers and their checkpoints take */
#include <string.h>
#include "report.h"

#define BARS_MAX 20
#define BAR 18.0
#define STEP 26.0
#define LABEL 190.0
#define RIGHT 90.0

/* Draws a bar: the container's checkpoints, oldest first, with a gap between them. */
static void bar(FILE *f, const struct report *r, const struct metrics_container *m, int place,
		double y, double scale)
{
	const ZnsPb__Response *ls = r->d.v.ls;
	double x = LABEL;
	char size[32], id[ZNS_UUID_STR];

	fprintf(f, "<text text-anchor=\"end\" x=\"%.1f\" y=\"%.1f\">", LABEL - 8, y + BAR - 5);
	svg_short(f, m->c->container, LABEL - 8);
	fputs("</text>", f);
	for (size_t i = 0; i < ls->n_checkpoints; i++) {
		const ZnsPb__Checkpoint *c = ls->checkpoints[i];
		double w = (double)c->bytes * scale;

		if (strcmp(c->container, m->c->container))
			continue;
		fprintf(f, "<g><title>checkpoint %s: %s</title>",
			c->id.len == ZNS_UUID_LEN ? zns_uuid_format(c->id.data, id) : "?",
			zns_format_size(c->bytes, size, sizeof(size)));
		svg_rect(f, report_colour(place), x, y, zns_max(w - (m->nr > 1 && w > 3), 0.5),
			 BAR);
		fputs("</g>", f);
		x += w;
	}
	fprintf(f, "<text class=\"over\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", x + 6, y + BAR - 5,
		zns_format_size(m->bytes, size, sizeof(size)));
}

static void bars(FILE *f, const struct report *r)
{
	size_t n = zns_min(r->d.nr_containers, (size_t)BARS_MAX);
	uint64_t most = n ? r->d.containers[0].bytes : 0;
	double scale = (WIDE - LABEL - RIGHT) / (double)zns_max(most, UINT64_C(1));

	svg_begin(
		f, "containers", (double)n * STEP + 2, "Bytes by container",
		"A bar for each container, the largest first; each part of it is a checkpoint, oldest first.");
	for (size_t i = 0; i < n; i++)
		bar(f, r, &r->d.containers[i], (int)i, (double)i * STEP + 2, scale);
	svg_end(f);
	if (n < r->d.nr_containers)
		fprintf(f, "<p class=\"soft\">The table below has %zu more.</p>\n",
			r->d.nr_containers - n);
}

static void containers(FILE *f, const struct report *r)
{
	html_table(f, "Containers, the largest first",
		   "container|:checkpoints|:bytes|last checkpoint|image|engine's id");
	for (size_t i = 0; i < r->d.nr_containers; i++) {
		const struct metrics_container *m = &r->d.containers[i];
		const ZnsPb__Origin *o = m->c->origin;

		fputs("<tr>", f);
		html_cell(f, m->c->container);
		html_number_cell(f, m->nr);
		html_size_cell(f, m->bytes);
		fputs("<td>", f);
		report_time(f, m->c->created_ns);
		fputs("</td>", f);
		html_cell(f, o ? o->image : NULL);
		fputs("<td>", f);
		html_short(f, o && o->container_id ? o->container_id : "", 12);
		fputs("</td></tr>\n", f);
	}
	html_table_end(f);
}

static void mibps_cell(FILE *f, bool known, double v)
{
	if (known)
		fprintf(f, "<td class=\"n\">%.0f</td>", v);
	else
		fputs("<td class=\"n\">–</td>", f);
}

static void checkpoints(FILE *f, const struct report *r)
{
	const ZnsPb__Response *ls = r->d.v.ls;
	bool disk = zns_spec_on_disk(report_status(r)->path);
	char id[ZNS_UUID_STR];

	fputs("<details id=\"checkpoint-table\"><summary>All checkpoints as a table</summary>\n",
	      f);
	html_table(f, "Checkpoints in the order of their commits. Bandwidth is in MiB/s.",
		   disk ? "id|container|created|:bytes|:asked|:achieved|:frozen ms" :
			  "id|container|created|:bytes|:groups|:asked|:achieved|:frozen ms");
	for (size_t i = 0; i < ls->n_checkpoints; i++) {
		const ZnsPb__Checkpoint *c = ls->checkpoints[i];

		fprintf(f, "<tr><td class=\"id\">%s</td>",
			c->id.len == ZNS_UUID_LEN ? zns_uuid_format(c->id.data, id) : "?");
		html_cell(f, c->container);
		fputs("<td>", f);
		report_time(f, c->created_ns);
		fputs("</td>", f);
		html_size_cell(f, c->bytes);
		if (!disk)
			html_number_cell(f, c->n_groups);
		mibps_cell(f, c->qos_requested_mibps > 0, c->qos_requested_mibps);
		mibps_cell(f, c->has_qos_achieved_mibps, c->qos_achieved_mibps);
		mibps_cell(f, c->has_frozen_us, (double)c->frozen_us / 1e3);
		fputs("</tr>\n", f);
	}
	html_table_end(f);
	fputs("</details>\n", f);
}

void report_space(FILE *f, const struct report *r)
{
	fputs("<section><h2>Containers</h2>\n", f);
	if (r->d.nr_containers) {
		bars(f, r);
		containers(f, r);
		checkpoints(f, r);
	} else {
		fputs("<p class=\"soft\">There is no checkpoint on this device.</p>\n", f);
	}
	fputs("</section>\n", f);
}
