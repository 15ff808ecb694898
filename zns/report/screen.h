/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_SCREEN_H
#define ZNS_CTL_SCREEN_H
/*
 * For commands that show a state repeatedly: on a terminal a new state replaces the one before,
 * elsewhere it is appended.
 */
#include <json.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "zns/err.h"

struct ctl_screen {
	uint64_t interval_s;
	bool once, json; /* once: show one state and end; json: print JSON */
};

struct ctl_watched {
	size_t size; /* bytes of the state */
	int (*take)(void *look, void *arg, struct zns_err *err);
	void (*drop)(void *look);
	/*
	 * Prints a state, of which lines and columns that exceed the terminal are cut off. @before:
	 * the state before, or NULL. Text from outside must have been escaped.
	 */
	void (*text)(FILE *f, const void *now, const void *before);
	struct json_object *(*json)(const void *now, const void *before);
};

/* Shows states until a signal comes, or the reader of the output closes it. */
int ctl_watch(const struct ctl_screen *s, const struct ctl_watched *w, void *arg,
	      struct zns_err *err);

#endif
