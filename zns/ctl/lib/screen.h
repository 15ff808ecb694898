/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_SCREEN_H
#define ZNS_CTL_SCREEN_H
/*
 * Shared by commands that look repeatedly: on a terminal a look replaces the one before, elsewhere
 * it follows it.
 */
#include <json.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "zns/err.h"

struct ctl_screen {
	uint64_t interval_s;
	bool once, json; /* JSON is told once */
};

struct ctl_watched {
	size_t size; /* of a look */
	int (*take)(void *look, void *arg, struct zns_err *err);
	void (*drop)(void *look);
	/*
	 * Prints the lines of one look, cut to the terminal's size. Text from outside must have
	 * been cleaned.
	 */
	void (*text)(FILE *f, const void *now, const void *before);
	struct json_object *(*json)(const void *now, const void *before);
};

/* Shows looks until a signal ends it, or nobody reads the output any more. */
int ctl_watch(const struct ctl_screen *s, const struct ctl_watched *w, void *arg,
	      struct zns_err *err);

#endif
