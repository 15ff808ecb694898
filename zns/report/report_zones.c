/* SPDX-License-Identifier: GPL-2.0-only */
/* report: the map of zones by group, with owner and state, and the same data as a table */
#include <string.h>
#include "report.h"

/* if there are more zones, a cell stands for several, and the table is left out */
#define CELLS_MAX 4096
#define MARKS_MAX 1024 /* if there are more cells, they have no letters */
#define LABEL 92.0
#define GAP 22.0

struct cell {
	uint64_t capacity, written, live;
	uint32_t first, last, nr; /* zones */
	const ZnsPb__ZoneLine *shown; /* the zone whose owner determines the colour */
	bool failing, busy;
};

struct map {
	struct cell *cell;
	uint32_t per_cell, *count; /* per_cell: zones in a cell; count: cells of each group */
	uint32_t longest, columns;
	size_t nr;
	double side;
};

static bool failing(const ZnsPb__ZoneLine *z)
{
	return z->state == ZNS_ZONE_READ_ONLY || z->state == ZNS_ZONE_OFFLINE || z->suspect;
}

static bool busy(const ZnsPb__ZoneLine *z)
{
	return z->owner && !strncmp(z->owner, "(writing) ", 10);
}

static const char *name_of(const ZnsPb__ZoneLine *z)
{
	return busy(z) ? z->owner + 10 : z->owner;
}

static const char *class_of(const struct report *r, const ZnsPb__ZoneLine *z)
{
	if (!z || !z->owner)
		return "waste";
	if (!ctl_zone_data(z) || !strcmp(z->owner, "(normal I/O)"))
		return "meta";
	return report_colour(report_place(r, name_of(z)));
}

static char mark_of(const struct report *r, const ZnsPb__ZoneLine *z)
{
	int place = z && z->owner ? report_place(r, name_of(z)) : -1;

	if (!z || !z->owner)
		return 0;
	if (!ctl_zone_data(z))
		return '#';
	return place >= 0 && place < REPORT_COLOURS ? (char)('A' + place) : '+';
}

static void put(struct cell *c, const ZnsPb__ZoneLine *z)
{
	if (!c->nr++)
		c->first = z->index;
	c->last = z->index;
	c->capacity += z->capacity;
	c->written += zns_min(z->wp, z->capacity);
	c->live += zns_min(z->live, z->capacity);
	c->failing |= failing(z);
	c->busy |= busy(z);
	if (z->owner && (!c->shown || busy(z) || z->live > c->shown->live))
		c->shown = z;
}

/* Lays out the cells group by group, with zones in ascending order. */
static bool lay_out(const struct report *r, struct map *m)
{
	const ZnsPb__Response *a = r->d.v.zones;
	uint32_t groups = r->d.v.nr_groups;
	size_t at = 0;

	*m = (struct map){ .per_cell = (uint32_t)(a->n_zones / CELLS_MAX + 1) };
	m->cell = calloc(a->n_zones + 1, sizeof(*m->cell));
	m->count = calloc(groups + 1, sizeof(*m->count));
	if (!m->cell || !m->count)
		return false;
	for (uint32_t g = 0; g < groups; g++) {
		uint32_t n = 0;

		for (size_t i = 0; i < a->n_zones; i++)
			if (a->zones[i]->group == g)
				put(&m->cell[at + n++ / m->per_cell], a->zones[i]);
		m->count[g] = (n + m->per_cell - 1) / m->per_cell;
		m->longest = zns_max(m->longest, m->count[g]);
		at += m->count[g];
	}
	m->nr = at;
	m->side = (WIDE - LABEL) / zns_max(m->longest, 1u);
	m->side = zns_min(zns_max(m->side, 3.0), 24.0);
	m->columns = (uint32_t)((WIDE + GAP) / (LABEL + m->longest * m->side + GAP));
	m->columns = zns_max(zns_min(m->columns, groups), 1u);
	return true;
}

static void title(FILE *f, const struct report *r, const struct cell *c)
{
	const ZnsPb__ZoneLine *z = c->shown;
	char a[32], b[32];

	fputs("<title>", f);
	if (c->nr == 1)
		fprintf(f, "%s %u: ", report_unit(r), c->first);
	else
		fprintf(f, "%u %ss, %u to %u: ", c->nr, report_unit(r), c->first, c->last);
	fprintf(f, "%s written", zns_format_size(c->written, a, sizeof(a)));
	fprintf(f, ", %s live of %s", zns_format_size(c->live, a, sizeof(a)),
		zns_format_size(c->capacity, b, sizeof(b)));
	if (z) {
		fputs("; ", f);
		html_short(f, z->owner, 80);
	}
	fprintf(f, "%s</title>",
		c->failing ? "; a write failed, or it is read-only or offline" : "");
}

static void draw_cell(FILE *f, const struct report *r, const struct map *m, const struct cell *c,
		      double x, double y)
{
	double gap = m->side > 8 ? 3 :
		     m->side > 4 ? 1 :
				   0,
	       w = m->side - gap, all = (double)zns_max(c->capacity, UINT64_C(1)),
	       h = m->side > 8 ? w : 14;
	const char *class = class_of(r, c->shown);
	bool meta = c->shown && !ctl_zone_data(c->shown);
	double written = h * (double)c->written / all, live = h * (double)c->live / all;
	char faint[32], mark = mark_of(r, c->shown);

	/* a zone that has any data shows it */
	if (c->written)
		written = zns_max(written, 2.0);
	fputs("<g>", f);
	title(f, r, c);
	svg_rect(f, "cell", x, y, w, h);
	snprintf(faint, sizeof(faint), "%s%s", class, meta ? "" : " faint");
	if (c->written)
		svg_rect(f, faint, x, y + h - written, w, written);
	if (c->live && !meta)
		svg_rect(f, class, x, y + h - live, w, live);
	if (c->failing || c->busy)
		svg_rect(f, c->failing ? "failing" : "busy", x + 1, y + 1, w - 2, h - 2);
	if (mark && m->side >= 14 && m->nr <= MARKS_MAX && (meta || live >= 11))
		fprintf(f,
			"<text class=\"%s\" text-anchor=\"middle\" x=\"%.1f\" y=\"%.1f\">%c</text>",
			meta && written < 11 ? "over" : "mark", x + w / 2, y + h - 4, mark);
	fputs("</g>\n", f);
}

static void draw(FILE *f, const struct report *r, const struct map *m)
{
	const struct ctl_view *v = &r->d.v;
	bool disk = zns_spec_on_disk(report_status(r)->path);
	uint32_t rows = (v->nr_groups + m->columns - 1) / m->columns;
	double step = m->side > 8 ? m->side : 18, width = LABEL + m->longest * m->side + GAP;
	const struct cell *c = m->cell;

	svg_begin(
		f, "zones", rows * step + 4, disk ? "Map of the disk" : "Map of zones",
		disk ? "One cell for each part of the disk. A cell is filled from below as far as it is "
		       "written; what is live is solid, in the colour of its owner." :
		       "One row for each group of zones that share a die, one cell for each zone. A cell is filled "
		       "from below as far as its zone is written; what is live is solid, in the colour of its owner.");
	for (uint32_t g = 0; g < v->nr_groups; g++) {
		uint32_t column = g / rows, row = g % rows;
		double x = column * width, y = row * step + 2;

		fprintf(f, "<text class=\"axis\" x=\"%.1f\" y=\"%.1f\">", x,
			y + zns_min(step, 22.0) / 2 + 3);
		if (disk)
			fputs("disk", f);
		else if (v->groups[g].unknown)
			fputs("group unknown", f);
		else if (v->groups[g].channel >= 0)
			fprintf(f, "group %u, ch %d", g, v->groups[g].channel);
		else
			fprintf(f, "group %u", g);
		fputs("</text>\n", f);
		for (uint32_t k = 0; k < m->count[g]; k++)
			draw_cell(f, r, m, c++, x + LABEL + k * m->side, y);
	}
	svg_end(f);
}

static void legend(FILE *f, const struct report *r)
{
	char mark[2] = "A";

	fputs("<ul class=\"legend\">", f);
	for (size_t i = 0; i < r->d.nr_containers && i < REPORT_COLOURS; i++, (*mark)++)
		report_legend(f, report_colour((int)i), mark, r->d.containers[i].c->container);
	report_legend(f, "kx", "+",
		      "others: more containers, shared by small checkpoints, memory of programs");
	report_legend(f, "meta", "#", "metadata");
	report_legend(f, "waste", "", "written, not live");
	report_legend(f, "free", "", "empty");
	report_legend(f, "busy", "", "being written");
	report_legend(f, "failing", "", "a write failed, read-only or offline");
	fputs("</ul>\n", f);
}

static void table(FILE *f, const struct report *r)
{
	const ZnsPb__Response *a = r->d.v.zones;

	fputs("<details id=\"zone-table\"><summary>All zones as a table</summary>\n", f);
	html_table(f, "Zones", ":zone|:group|state|:written|:capacity|:live|owner");
	for (size_t i = 0; i < a->n_zones; i++) {
		const ZnsPb__ZoneLine *z = a->zones[i];

		fputs("<tr>", f);
		html_number_cell(f, z->index);
		html_number_cell(f, z->group);
		html_cell(f, zns_zone_state_name(z->state));
		html_size_cell(f, z->wp);
		html_size_cell(f, z->capacity);
		html_size_cell(f, z->live);
		html_cell(f, z->owner);
		fputs("</tr>\n", f);
	}
	html_table_end(f);
	fputs("</details>\n", f);
}

void report_zones(FILE *f, const struct report *r)
{
	bool disk = zns_spec_on_disk(report_status(r)->path);
	char size[16];
	struct map m;

	fprintf(f, "<section><h2>%s</h2>\n", disk ? "Space" : "Zones");
	if (lay_out(r, &m)) {
		if (disk && m.nr)
			fprintf(f, "<p class=\"soft\">One cell stands for %s.</p>\n",
				zns_format_size(m.cell->capacity, size, sizeof(size)));
		else if (m.per_cell > 1)
			fprintf(f, "<p class=\"soft\">One cell stands for %u zones.</p>\n",
				m.per_cell);
		draw(f, r, &m);
		legend(f, r);
		if (m.per_cell == 1 && !disk)
			table(f, r);
		else if (!disk)
			fprintf(f,
				"<p class=\"soft\">%zu zones are too many for a table here: <code>znsctl zones --json</code> has them.</p>\n",
				r->d.v.zones->n_zones);
	}
	free(m.cell);
	free(m.count);
	fputs("</section>\n", f);
}
