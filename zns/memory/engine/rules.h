/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_RULES_H
#define MEM_RULES_H
/*
 * Test builds can take out a rule, or be killed where a unit enters a state:
 * test/controls/mem/rules.c. The product has rules_none.c.
 */
#include <stdbool.h>

enum mem_rule {
	RULE_OWN_REMOVAL = 1, /* our own removal's event comes before the unit is ZONE */
	RULE_READER_FREE = 2, /* nothing that waits for an event is called under the reader's lock
			       */
	RULE_HASH = 8, /* what cannot be read is never zeroes */
	RULE_CLEAN = 9, /* what keeps its place is protected from the instant in which it is back */
	RULE_MOVE = 14, /* cleaning changes a place only if nobody else changed the unit */
	RULE_KEEP = 10, /* what comes back keeps its place; without it only more is written */
	RULE_HEIRS = 11, /* memory whose first process has ended may have others */
	RULE_OWN_AREAS = 12, /* a child has nothing of areas that were not copied */
	RULE_BIRTH = 15, /* a child's descriptors are safe before it is looked at */
	RULE_SLOT = 17, /* descriptors go to the process that they were made for */
	RULE_OWNER = 18, /* what another userfaultfd has is not evicted */
	RULE_ONCE = 19, /* a child that has a userfaultfd gets no second one */
	RULE_LEAVE = 20, /* a child without a place leaves when all of it is back, not before */
	RULE_HOLD = 21, /* what was read and not put away is held by another process */
	RULE_GOING = 22, /* what the program removes is not copied before it is gone */
	RULE_ORDER = 29, /* memory that arrives does not leave with what was there */
	RULE_OWED = 30, /* nor does it go when the place of what was there is said to be unmapped */
	RULE_FORK = 31, /* what moved after a fork is at its old place in the child */
	RULE_SAME = 33, /* what is not what was copied stays */
	RULE_SWAPPED = 36, /* what is in swap is moved, too */
	RULE_MARKED = 37, /* what guard pages removed is zeroes afterwards */
	RULE_THERE = 35, /* what is known as registered was there then */
	RULE_CEILING = 13, /* at its cgroup's limit a process waits for the evictor */
};

/* What a kernel may not have, or forbid. */
enum mem_refused {
	REFUSED_SCAN = 2,
	REFUSED_PLACES = 3, /* all but a few of a context */
	REFUSED_QUERY = 4, /* to be asked for one area (Linux 6.11) */
	REFUSED_MOVE = 6, /* UFFDIO_MOVE (Linux 6.8) */
	REFUSED_BACK = 7, /* to take back a page that was moved and is to stay */
	REFUSED_SAME = 8, /* that nobody writes between copy and move: the first page of a whole
			   * unit differs */
};
#define FEW_PLACES 4U
#define FEW_LEAVERS 3U

/* for mem_reached() */
#define REACHED_STOP 20 /* all threads stand still */
#define REACHED_SCRATCH 33 /* the same, and there is room for what goes */
#define REACHED_TAKEN 34 /* pages are there */
#define REACHED_COMPARED 35 /* those that differ are back */
#define REACHED_FORK 21 /* a fork was read */
#define REACHED_READ 28 /* the same, and nobody else has its child's userfaultfd */
#define REACHED_TABLE 26 /* its child has a table */
#define REACHED_BORN 22 /* and a slot */
#define REACHED_LEAVES 27 /* all of a child that leaves is back */
#define REACHED_EVENT 23 /* a removal or a move was read */
#define REACHED_FORGOT 24 /* and is in the table for one unit */
#define REACHED_SMALL 25 /* a removal of less than a unit was read */
#define REACHED_DROPPED 31 /* units were dropped, and the evictor sees it */
#define REACHED_AREA 30 /* an area was looked at, and is registered next */
#define REACHED_LENT 32 /* the process has /dev/userfaultfd for a moment */
#define REACHED_READY 29 /* the kernel has something to tell of a process */
#define REACHED_COPIED 60 /* cleaning has written copies */
#define REACHED_MOVED 61 /* and has moved a unit */

bool mem_without(enum mem_rule rule);
bool mem_refused(enum mem_refused what);
void mem_reached(int state);

#endif
