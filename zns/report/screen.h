/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_SCREEN_H
#define ZNS_CTL_SCREEN_H
/* For commands that look repeatedly: on a terminal a look replaces the previous one, elsewhere it
 * is appended. */
#include <json.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "zns/err.h"

struct ctl_screen {
	uint64_t interval_s;
	bool once, json; /* once: print one look; json: as JSON */
};

struct ctl_watched {
	size_t size; /* size of one look */
	int (*take)(void *look, void *arg, struct zns_err *err);
	void (*drop)(void *look);
	/*
	 * Prints the lines of one look, cut to the terminal's size. Text from outside must have
	 * been cleaned.
	 */
	void (*text)(FILE *f, const void *now, const void *before);
	struct json_object *(*json)(const void *now, const void *before);
};

/* Shows looks until a signal ends it, or the reader of the output has closed it. */
int ctl_watch(const struct ctl_screen *s, const struct ctl_watched *w, void *arg,
	      struct zns_err *err);

#endif
