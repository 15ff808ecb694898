/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_SCREEN_H
#define ZNS_CTL_SCREEN_H
/* What commands that look again and again share: on a terminal each look takes the place of the one
 * before, elsewhere one follows the other. */
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
	/* Lines; text from outside is clean. They are cut to the terminal's size. */
	void (*text)(FILE *f, const void *now, const void *before);
	struct json_object *(*json)(const void *now, const void *before);
};

/* Until it is ended, or nobody reads it any more. */
int ctl_watch(const struct ctl_screen *s, const struct ctl_watched *w, void *arg,
	      struct zns_err *err);

#endif
