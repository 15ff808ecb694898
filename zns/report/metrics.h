/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_METRICS_H
#define ZNS_CTL_METRICS_H
/*
 * Shared by the files of `znsctl metrics`. Names follow Prometheus: they end in the base unit
 * (seconds, bytes), and those of counters in _total.
 */
#include "../memory/ctl/memory.h"
#include "view.h"

/* A container of a device and its last checkpoint. */
struct metrics_container {
	const ZnsPb__Checkpoint *c;
	const ZnsPb__RestoreStat *restore; /* its last restore, or NULL */
	size_t nr;
	uint64_t bytes;
};

struct metrics_device {
	struct ctl_view v;
	struct metrics_container *containers;
	size_t nr_containers;
};

/* All figures that `znsctl metrics` prints. */
struct metrics {
	struct metrics_device *dev;
	size_t nr;
	ZnsPb__MemoryAnswer **context;
	size_t nr_contexts;
};

/*
 * metrics_text.c: prints Prometheus' text format. Values of labels are text from outside:
 * characters that cannot be printed, and backslashes, are escaped as by ctl_text(). Long values are
 * cut and get a checksum, so that they stay different.
 */
void metrics_head(FILE *f, const char *name, const char *type, const char *help);
/* Prints a line. The variable arguments are pairs of a label and its value, terminated by NULL. */
void metrics_line(FILE *f, const char *name, double value, ...) __attribute__((sentinel));

/* metrics_device.c */
int metrics_containers(struct metrics_device *d); /* finds the device's containers */
void metrics_devices(FILE *f, const struct metrics *m);

/* metrics_container.c */
void metrics_all_containers(FILE *f, const struct metrics *m);
/* metrics_memory.c */
void metrics_contexts(FILE *f, const struct metrics *m);
/* metrics_json.c: the same figures as JSON, with the names that other commands use. */
struct json_object *metrics_device_json(const struct metrics_device *d);
struct json_object *metrics_json(const struct metrics *m);

/* The commands of znsctl-report. */
extern const struct ctl_cmd report_cmd_top, report_cmd_metrics, report_cmd_report;

#endif
