/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_RULES_H
#define MEM_RULES_H
/*
 * Test builds can switch off a rule, or be killed where a unit enters a state:
 * test/controls/mem/rules.c. The product links rules_none.c, which keeps all rules.
 */
#include <stdbool.h>

enum mem_rule {
	RULE_OWN_REMOVAL = 1, /* the event of our own removal comes before the unit is ZONE */
	RULE_READER_FREE = 2, /* nothing that waits for an event is called under the reader's lock
			       */
	RULE_HASH = 8, /* memory that cannot be read never appears as zeroes */
	/* a unit that keeps its place is protected from the instant in which it is back */
	RULE_CLEAN = 9,
	RULE_MOVE = 14, /* cleaning changes a place only if the unit did not change meanwhile */
	/* a unit that comes back keeps its place; without this rule only more is written */
	RULE_KEEP = 10,
	RULE_HEIRS = 11, /* other processes may have memory whose first process has ended */
	RULE_OWN_AREAS = 12, /* a child gets no units of areas that the kernel did not copy */
	/* a child's descriptors are stored safely before anything else is done with it */
	RULE_BIRTH = 15,
	RULE_SLOT = 17, /* a successor gives descriptors to the process that they were made for */
	RULE_OWNER = 18, /* memory watched by another userfaultfd is not evicted */
	RULE_ONCE = 19, /* a child that has a userfaultfd gets no second one */
	RULE_LEAVE = 20, /* a child without a place leaves only when all its memory is back */
	RULE_HOLD = 21, /* another process holds descriptors that were read and not stored yet */
	RULE_GOING = 22, /* what the program is removing is not copied before it is gone */
	/* memory that arrives at a place does not leave with the memory that was there before */
	RULE_ORDER = 29,
	RULE_OWED = 30, /* nor when the event comes that the earlier memory's place was unmapped */
	RULE_FORK = 31, /* memory moved after a fork is at its old place in the child */
	RULE_SAME = 33, /* pages that differ from what was copied stay */
	RULE_SWAPPED = 36, /* swapped pages are moved, too */
	RULE_MARKED = 37, /* pages removed by guard pages read as zeroes afterwards */
	/* an area counts as registered only if it existed when it was registered */
	RULE_THERE = 35,
	RULE_CEILING = 13, /* at its cgroup's limit a process waits for the evictor */
};

/* What a kernel may lack or forbid, so that tests can refuse it. */
enum mem_refused {
	REFUSED_SCAN = 2,
	REFUSED_PLACES = 3, /* all slots of a context but a few */
	REFUSED_QUERY = 4, /* to ask for a single area (Linux 6.11) */
	REFUSED_MOVE = 6, /* UFFDIO_MOVE (Linux 6.8) */
	REFUSED_BACK = 7, /* to take back a page that was moved and is to stay */
	REFUSED_SAME = 8, /* that nobody writes between copy and move: the first page of a whole
			   * unit differs */
};
#define FEW_PLACES 4U
#define FEW_LEAVERS 3U

/* for mem_reached(): where tests interfere */
#define REACHED_STOP 20 /* all threads stand still */
#define REACHED_SCRATCH 33 /* all threads stand still, and the scratch is there */
#define REACHED_TAKEN 34 /* pages are in the scratch */
#define REACHED_COMPARED 35 /* pages that differ are back */
#define REACHED_FORK 21 /* a fork was read */
#define REACHED_READ 28 /* a fork was read, and we alone have the child's userfaultfd */
#define REACHED_TABLE 26 /* the child has a table */
#define REACHED_BORN 22 /* the child has a slot */
#define REACHED_LEAVES 27 /* all memory of a child that leaves is back */
#define REACHED_EVENT 23 /* a removal or a move was read */
#define REACHED_FORGOT 24 /* a removal or move is in the table for one unit */
#define REACHED_SMALL 25 /* a removal of less than a unit was read */
#define REACHED_DROPPED 31 /* units were dropped, and the evictor has seen it */
#define REACHED_AREA 30 /* an area was looked at, and will be registered next */
#define REACHED_LENT 32 /* the process has /dev/userfaultfd for a moment */
#define REACHED_READY 29 /* the kernel has a message about a process */
#define REACHED_COPIED 60 /* cleaning has written copies */
#define REACHED_MOVED 61 /* cleaning has given a unit its new place */

bool mem_without(enum mem_rule rule);
bool mem_refused(enum mem_refused what);
void mem_reached(int state);

#endif
