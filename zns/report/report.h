/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_REPORT_H
#define ZNS_CTL_REPORT_H
/*
 * Shared by the files of `znsctl report`: the state of one device at one moment, and the sections
 * of the page.
 */
#include "html.h"
#include "metrics.h"

/* each of the largest containers has a colour (.k0 to .k7), the others share .kx */
#define REPORT_COLOURS 8

struct report {
	struct metrics_device d; /* with its containers sorted by size, the largest first */
	int64_t now_ns;
};

static inline const ZnsPb__Status *report_status(const struct report *r)
{
	return r->d.v.status->status;
}

/* The report's word for a zone. An ordinary disk has units instead. */
static inline const char *report_unit(const struct report *r)
{
	return zns_spec_on_disk(report_status(r)->path) ? "unit" : "zone";
}

extern const char report_style[];
/* Index of that container among the sorted ones; -1: it is not among them. */
int report_place(const struct report *r, const char *container);
/* Class of the colour: "k3" or "kx". */
const char *report_colour(int place);
void report_time(FILE *f, int64_t ns); /* prints <time> */
void report_legend(FILE *f, const char *colour, const char *mark, const char *text);

/* prints all up to the end of the first section */
void report_head(FILE *f, const struct report *r);
void report_zones(FILE *f, const struct report *r);
void report_space(FILE *f, const struct report *r);
void report_groups(FILE *f, const struct report *r);
void report_rates(FILE *f, const struct report *r);
void report_work(FILE *f, const struct report *r);

#endif
