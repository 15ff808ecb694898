/* SPDX-License-Identifier: GPL-2.0-only */
/* HTML and SVG. */
#include <math.h>
#include <string.h>
#include <time.h>
#include "../ctl/lib/ctl.h"
#include "html.h"

/* Prints a character. Returns the number of bytes of it in @s. */
static size_t character(FILE *f, const char *s)
{
	size_t n = (size_t)zns_printable(s);

	if (!n)
		return fprintf(f, "\\x%02x", (unsigned char)*s), 1;
	if (*s == '&')
		fputs("&amp;", f);
	else if (*s == '<')
		fputs("&lt;", f);
	else if (*s == '>')
		fputs("&gt;", f);
	else if (*s == '"')
		fputs("&quot;", f);
	else if (*s == '\'')
		fputs("&#39;", f);
	else if (*s == '\\')
		fputs("\\\\", f);
	else
		fwrite(s, 1, n, f);
	return n;
}

void html_text(FILE *f, const char *s)
{
	while (*s)
		s += character(f, s);
}

void html_short(FILE *f, const char *s, unsigned max)
{
	for (unsigned n = 0; *s && n < max; n++)
		s += character(f, s);
	if (*s)
		fputs("…", f);
}

/*
 * Estimates the width of a text in a picture whose font has 12 units; rather too large for most
 * fonts.
 */
static double advance(const char *s)
{
	/* by number of bytes; 0 bytes: shown as \xNN */
	static const double of_bytes[] = { 30, 12, 9.5, 12.5, 16 };
	int n = zns_printable(s);

	if (n != 1)
		return of_bytes[n];
	if ((*s >= 'a' && *s <= 'z' && *s != 'm' && *s != 'w') || (*s >= '0' && *s <= '9') ||
	    strchr(" -_.:/", *s))
		return 7.8;
	return *s >= 'A' && *s <= 'Z' && *s != 'M' && *s != 'W' ? 9.5 : 12;
}

void svg_short(FILE *f, const char *s, double width)
{
	double need = 0, dots = 12;
	unsigned fit = 0, all = 0;

	for (const char *p = s; *p; p += zns_max(zns_printable(p), 1)) {
		need += advance(p);
		all++;
		if (need <= width - dots)
			fit = all;
	}
	html_short(f, s, need <= width ? all : fit);
}

void html_cell(FILE *f, const char *s)
{
	fputs("<td>", f);
	html_text(f, s ? s : "");
	fputs("</td>", f);
}

void html_size_cell(FILE *f, uint64_t bytes)
{
	char buf[32];

	fprintf(f, "<td class=\"n\"><data value=\"%llu\">%s</data></td>", (unsigned long long)bytes,
		zns_format_size(bytes, buf, sizeof(buf)));
}

void html_number_cell(FILE *f, uint64_t n)
{
	fprintf(f, "<td class=\"n\">%llu</td>", (unsigned long long)n);
}

void html_table(FILE *f, const char *caption, const char *headings)
{
	fprintf(f, "<div class=\"scroll\"><table><caption>%s</caption><thead><tr>", caption);
	while (*headings) {
		size_t n = strcspn(headings, "|");
		bool number = *headings == ':';

		fprintf(f, "<th scope=\"col\"%s>%.*s</th>", number ? " class=\"n\"" : "",
			(int)(n - number), headings + number);
		headings += n + (headings[n] == '|');
	}
	fputs("</tr></thead><tbody>\n", f);
}

void html_table_end(FILE *f)
{
	fputs("</tbody></table></div>\n", f);
}

void svg_begin(FILE *f, const char *id, double height, const char *title, const char *desc)
{
	fprintf(f,
		"<div class=\"scroll\"><svg viewBox=\"0 0 %d %.0f\" role=\"img\" aria-labelledby=\"%s-t %s-d\">\n"
		"<title id=\"%s-t\">%s</title><desc id=\"%s-d\">%s</desc>\n",
		WIDE, height, id, id, id, title, id, desc);
}

void svg_end(FILE *f)
{
	fputs("</svg></div>\n", f);
}

void svg_rect(FILE *f, const char *class, double x, double y, double w, double h)
{
	fprintf(f, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>",
		class, x, y, w, h);
}

double svg_step(double max, unsigned n)
{
	static const double nice[] = { 1, 2, 5, 10 };
	double rough = max / n, ten;

	if (!(rough > 0))
		return 1;
	ten = pow(10, floor(log10(rough)));
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(nice); i++)
		if (rough <= nice[i] * ten * 1.0001)
			return nice[i] * ten;
	return 10 * ten;
}

double svg_x(const struct svg_plot *p, int64_t ns)
{
	double all = (double)(p->to - p->from), at = (double)(ns - p->from);

	return p->x + p->w * zns_min(zns_max(all > 0 ? at / all : 0.0, 0.0), 1.0);
}

double svg_y(const struct svg_plot *p, double v)
{
	return p->y + p->h - p->h * zns_min(v / p->top, 1.0);
}

static int64_t time_step(int64_t span_s)
{
	static const int64_t steps[] = { 1,     2,     5,      10,     30,      60,      120,
					 300,   600,   1800,   3600,   7200,    10800,   21600,
					 43200, 86400, 172800, 604800, 2592000, 7776000, 31536000 };

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(steps); i++)
		if (span_s / steps[i] <= 8)
			return steps[i];
	return span_s;
}

static void time_axis(FILE *f, const struct svg_plot *p)
{
	int64_t from = p->from / 1000000000, to = p->to / 1000000000, step = time_step(to - from);

	for (int64_t t = (from / step + 1) * step; t <= to; t += step) {
		time_t when = (time_t)t;
		struct tm tm;
		char text[32] = "";

		if (gmtime_r(&when, &tm))
			strftime(text, sizeof(text),
				 step >= 86400      ? "%Y-%m-%d" :
				 to - from >= 86400 ? "%m-%d %H:%M" :
				 step >= 60         ? "%H:%M" :
						      "%H:%M:%S",
				 &tm);
		fprintf(f,
			"<line class=\"tick\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>"
			"<text class=\"axis\" text-anchor=\"middle\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
			svg_x(p, t * 1000000000), svg_x(p, t * 1000000000), p->y + p->h,
			p->y + p->h + 4, svg_x(p, t * 1000000000), p->y + p->h + 18, text);
	}
}

void svg_axes(FILE *f, const struct svg_plot *p, const char *unit)
{
	double step = svg_step(p->top, 4);

	for (unsigned n = 0; n * step <= p->top * 1.0001; n++) {
		double v = n * step;

		fprintf(f,
			"<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>"
			"<text class=\"axis\" text-anchor=\"end\" x=\"%.1f\" y=\"%.1f\">%g</text>\n",
			p->x, p->x + p->w, svg_y(p, v), svg_y(p, v), p->x - 6, svg_y(p, v) + 4, v);
	}
	fprintf(f, "<text class=\"axis\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", 0.0, p->y - 8, unit);
	time_axis(f, p);
}
