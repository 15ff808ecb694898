/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_HTML_H
#define ZNS_CTL_HTML_H
/* Text from outside in HTML and SVG, and what pictures have in common. Pictures are WIDE units
 * wide, and as wide as the page. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define WIDE 960

/* Escapes text for HTML and for values in double quotes; characters that cannot be printed become
 * \xNN. */
void html_text(FILE *f, const char *s);
/* Prints at most @max characters, and "…" if there are more. */
void html_short(FILE *f, const char *s, unsigned max);
/* A table cell: text is aligned left; a size or number, right. */
void html_cell(FILE *f, const char *s);
void html_size_cell(FILE *f, uint64_t bytes);
void html_number_cell(FILE *f, uint64_t n);
/* <table> with its caption and headings, separated by '|'; ':' before a heading of numbers. */
void html_table(FILE *f, const char *caption, const char *headings);
void html_table_end(FILE *f);

/* <svg> with its title and description. @id: unique to this picture. */
void svg_begin(FILE *f, const char *id, double height, const char *title, const char *desc);
void svg_end(FILE *f);
/* A name, shortened so that it hardly takes more than @width of a picture. */
void svg_short(FILE *f, const char *s, double width);
void svg_rect(FILE *f, const char *class, double x, double y, double w, double h);
/* A step of 1, 2 or 5 times a power of ten, so that @max takes at most @n steps. */
double svg_step(double max, unsigned n);

/* Axes: @from to @to (ns) below, 0 to @top to the left, with lines and labels. */
struct svg_plot {
	double x, y, w, h; /* the plot area */
	int64_t from, to;
	double top;
};
void svg_axes(FILE *f, const struct svg_plot *p, const char *unit);
double svg_x(const struct svg_plot *p, int64_t ns);
double svg_y(const struct svg_plot *p, double v);

#endif
