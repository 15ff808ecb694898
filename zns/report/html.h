/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_HTML_H
#define ZNS_CTL_HTML_H
/*
 * Text from outside in HTML and SVG, and functions for all pictures. A picture is WIDE units wide,
 * and drawn as wide as the page.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define WIDE 960

/* Escapes text for HTML and for values in double quotes; characters that cannot be printed become
 * \xNN. */
void html_text(FILE *f, const char *s);
/* Prints at most @max characters, and "…" if there are more. */
void html_short(FILE *f, const char *s, unsigned max);
/* A table cell. Text is aligned left, sizes and numbers right. */
void html_cell(FILE *f, const char *s);
void html_size_cell(FILE *f, uint64_t bytes);
void html_number_cell(FILE *f, uint64_t n);
/* <table> with its caption and headings, separated by '|'; a heading of numbers begins with ':'. */
void html_table(FILE *f, const char *caption, const char *headings);
void html_table_end(FILE *f);

/* <svg> with its title and description. @id: must be unique to this picture. */
void svg_begin(FILE *f, const char *id, double height, const char *title, const char *desc);
void svg_end(FILE *f);
/* Prints a name, shortened so that it takes hardly more than @width. */
void svg_short(FILE *f, const char *s, double width);
void svg_rect(FILE *f, const char *class, double x, double y, double w, double h);
/*
 * Returns a step of 1, 2 or 5 times a power of ten, such that there are at most @n steps up to
 * @max.
 */
double svg_step(double max, unsigned n);

/* Draws axes with lines and labels: @from to @to (ns) at the bottom, 0 to @top at the left. */
struct svg_plot {
	double x, y, w, h; /* the plot area */
	int64_t from, to;
	double top;
};
void svg_axes(FILE *f, const struct svg_plot *p, const char *unit);
double svg_x(const struct svg_plot *p, int64_t ns);
double svg_y(const struct svg_plot *p, double v);

#endif
