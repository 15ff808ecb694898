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
	/* private memory of a kind that can be tracked, or file and shared memory in a test */
	bool may;
	/* a private mapping of a file: it has a page of its own only where it was written */
	bool file;
	bool exec, vdso;
	bool writable, shared, stack;
	bool none; /* mapped with PROT_NONE */
	uint32_t major, minor; /* device numbers of the file system */
	/* the area had asynchronous write protection before the current round registered it */
	bool registered;
};

struct areas {
	struct area *a;
	size_t nr, max;
	/* which kernel interface writes to the area asynchronously, without a thread; NULL: none */
	const char *async;
};

/*
 * @fd: descriptor of /proc/PID/maps. The list is empty if the process has exited, or has executed
 * another program since the file was opened.
 */
int areas_read(int fd, struct areas *l, struct zns_err *err);
void areas_free(struct areas *l);

#endif
