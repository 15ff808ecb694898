/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_GOING_H
#define MEM_GOING_H
/* Lets units leave a process, while all its threads stand still. */
#include "mem.h"
#include "zns/inject.h"

struct going {
	struct proc *p;
	struct batch b;
	struct stop *stop; /* the stop in which this happens */
	uint32_t lost; /* victims (bits) that a write or removal took away in the last moment */
	uint32_t own; /* those victims of `lost` that stay by our own decision */
	uint32_t poisoned; /* pages that could not be put back */
	uint8_t buf[UNIT]; /* nothing can be allocated during the stop */
};

/* --- going.c --- */
/* Remembers what was copied of @v. In the stop, pages that differ from @unit stay. */
void going_note(struct victim *v, const uint8_t *unit);
/* A stop_body; @arg: struct going. */
int going_go(void *arg, struct zns_guest *guest, const struct range *own, bool *begun);

/* --- move.c: memory of the process to which pages are moved, while its threads stand still --- */
struct scratch {
	struct proc *p;
	struct zns_guest *guest;
	uint64_t arg, at; /* addresses in the process: a page for arguments, and BATCH units */
	long fd; /* the process's descriptor of its own userfaultfd */
	bool exec; /* executable, like the areas that pages come from */
};
bool move_can(void); /* Linux 6.8 */
/* After an error nothing is left in the process. */
int move_begin(struct scratch *s, struct proc *p, struct zns_guest *guest);
/* Moves all pages of the range to @to in the scratch. -errno: those before the first refused
 * page were moved. -EBUSY: somebody holds that page, or another process has it too. */
int move_pages(struct scratch *s, const struct range *r, uint64_t to);
/* Removes the scratch and what is in it. */
void move_end(struct scratch *s);
/* Makes one system call in the process. Waits while the process is frozen, since the call must
 * not be left half-way. */
long move_call(struct zns_guest *guest, long nr, const uint64_t arg[6]);

#endif
