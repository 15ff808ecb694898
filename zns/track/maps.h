/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef TRACK_MAPS_H
#define TRACK_MAPS_H
/* A process's areas, from /proc/PID/maps. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "zns/err.h"

struct area {
	uint64_t start, end;
	bool may; /* private memory of a kind that can be tracked */
	bool file; /* a mapped file: a page belongs to the process only once it was written */
	bool exec, vdso;
	bool writable, shared, stack;
	bool none; /* mapped without any access */
	uint32_t major, minor; /* device numbers of the file system */
	bool registered; /* a userfaultfd covered it before it was registered anew */
};

struct areas {
	struct area *a;
	size_t nr, max;
	const char *async; /* not NULL: what writes to it beside all threads */
};

/* @fd: /proc/PID/maps. None if the process is gone or has executed a program since it was opened.
 */
int areas_read(int fd, struct areas *l, struct zns_err *err);
void areas_free(struct areas *l);

#endif
