/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_GOING_H
#define MEM_GOING_H
/* Removes units from a process while all its threads are stopped. */
#include "mem.h"
#include "zns/inject.h"

struct going {
	struct proc *p;
	struct batch b;
	struct stop *stop; /* the stop in which this runs */
	/* bits of victims that a write or a removal has taken away at the last moment */
	uint32_t lost;
	uint32_t own; /* those of `lost` that stay because the stopped thread needs them */
	uint32_t poisoned; /* number of pages that could not be put back */
	uint8_t buf[UNIT]; /* buffer, since nothing can be allocated during the stop */
};

/* --- going.c --- */
/* Notes the bytes that were copied of @v. During the stop, pages that differ from @unit stay. */
void going_note(struct victim *v, const uint8_t *unit);
/* A stop_body. @arg: struct going. */
int going_go(void *arg, struct zns_guest *guest, const struct range *own, bool *begun);

/*
 * --- move.c: a scratch area of the process to which pages are moved while its threads are stopped
 * ---
 */
struct scratch {
	struct proc *p;
	struct zns_guest *guest;
	/* addresses in the process: a page for arguments, and a range of BATCH units */
	uint64_t arg, at;
	long fd; /* number of the process's own userfaultfd */
	bool exec; /* the scratch area is executable, like the areas from which pages come */
};
bool move_can(void); /* Linux 6.8: does the kernel have UFFDIO_MOVE? */
/* After an error nothing is left behind in the process. */
int move_begin(struct scratch *s, struct proc *p, struct zns_guest *guest);
/*
 * Moves all pages of the range to @to in the scratch area. -errno: only the pages before the first
 * refused one were moved. -EBUSY: somebody holds that page, or another process shares it.
 */
int move_pages(struct scratch *s, const struct range *r, uint64_t to);
/* Removes the scratch area and its pages. */
void move_end(struct scratch *s);
/*
 * Makes one system call in the process. Waits while the process is frozen, since the call must be
 * completed.
 */
long move_call(struct zns_guest *guest, long nr, const uint64_t arg[6]);

#endif
