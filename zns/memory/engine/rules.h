/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_RULES_H
#define MEM_RULES_H
/*
 * Test builds can switch off a rule, or be killed when a unit enters a state:
 * test/controls/mem/rules.c. The installed program links rules_none.c, which never switches off a
 * rule.
 */
#include <stdbool.h>

enum mem_rule {
	/* the event of a removal by the pager is applied before the unit becomes ZONE */
	RULE_OWN_REMOVAL = 1,
	/* no function that waits for an event is called with the reader's lock held */
	RULE_READER_FREE = 2,
	RULE_HASH = 8, /* memory that cannot be read never appears as zeroes */
	/*
	 * a unit that keeps its place is protected at the same instant at which its pages come back
	 */
	RULE_CLEAN = 9,
	RULE_MOVE = 14, /* cleaning changes a place only if the unit did not change meanwhile */
	/* a unit that comes back keeps its place; without this rule there are only more writes */
	RULE_KEEP = 10,
	RULE_HEIRS = 11, /* other processes may use memory whose first process has ended */
	RULE_OWN_AREAS = 12, /* a child gets no units of areas that the kernel did not copy */
	/*
	 * a child's descriptors are stored in the socket before anything else is done with the
	 * child
	 */
	RULE_BIRTH = 15,
	/* a successor assigns descriptors only to the process that they belong to */
	RULE_SLOT = 17,
	RULE_OWNER = 18, /* memory that is registered with another userfaultfd is not evicted */
	RULE_ONCE = 19, /* a child that has a userfaultfd gets no second one */
	/* a child without a regular slot leaves only when all its memory is back */
	RULE_LEAVE = 20,
	RULE_HOLD = 21, /* another process holds descriptors that were read but not stored yet */
	/* pages that the program is removing are not copied before they are gone */
	RULE_GOING = 22,
	/*
	 * units of memory that was moved to an address are not removed by a late event of the
	 * memory that was there before
	 */
	RULE_ORDER = 29,
	/*
	 * units of memory that was moved to an address are not removed by the late event that the
	 * old addresses of a move were unmapped
	 */
	RULE_OWED = 30,
	/* memory that was moved after a fork is at its old addresses in the child */
	RULE_FORK = 31,
	RULE_SAME = 33, /* pages that differ from what was copied stay in memory */
	RULE_SWAPPED = 36, /* swapped pages are moved as well */
	RULE_MARKED = 37, /* pages removed by guard pages read as zeroes afterwards */
	/* an area counts as registered only if it existed when it was registered */
	RULE_THERE = 35,
	RULE_CEILING = 13, /* a process whose cgroup is at its limit waits for the evictor */
};

/* Features that a kernel may lack or forbid. Tests can make each appear to be missing. */
enum mem_refused {
	REFUSED_SCAN = 2,
	REFUSED_PLACES = 3, /* all slots of a context except a few */
	REFUSED_QUERY = 4, /* the query for a single area (Linux 6.11) */
	REFUSED_MOVE = 6, /* UFFDIO_MOVE (Linux 6.8) */
	REFUSED_BACK = 7, /* putting back a page that was moved but has to stay */
	/*
	 * the assumption that nobody writes between copy and move: the first page of a whole unit
	 * counts as different
	 */
	REFUSED_SAME = 8,
};
#define FEW_PLACES 4U
#define FEW_LEAVERS 3U

/* for mem_reached(): points at which tests can kill or stop the pager */
#define REACHED_STOP 20 /* all threads are stopped */
#define REACHED_SCRATCH 33 /* all threads are stopped, and the scratch area exists */
#define REACHED_TAKEN 34 /* pages are in the scratch area */
#define REACHED_COMPARED 35 /* pages that differ were put back */
#define REACHED_FORK 21 /* the event of a fork was read */
#define REACHED_READ 28 /* a fork was read, and only this process has the child's userfaultfd */
#define REACHED_TABLE 26 /* the child has a table */
#define REACHED_BORN 22 /* the child has a slot */
#define REACHED_LEAVES 27 /* all memory of a child that leaves is back */
#define REACHED_EVENT 23 /* the event of a removal or a move was read */
#define REACHED_FORGOT 24 /* a removal or move was applied to one unit of the table */
#define REACHED_SMALL 25 /* a removal of less than a unit was read */
#define REACHED_DROPPED 31 /* units were dropped, and the evictor has noticed it */
#define REACHED_AREA 30 /* an area was checked, and will be registered next */
/* the stopped process was lent a descriptor of /dev/userfaultfd, and has not closed it yet */
#define REACHED_LENT 32
#define REACHED_READY 29 /* the kernel has a message about a process */
#define REACHED_COPIED 60 /* cleaning has written copies */
#define REACHED_MOVED 61 /* cleaning has changed the place of a unit */

bool mem_without(enum mem_rule rule);
bool mem_refused(enum mem_refused what);
void mem_reached(int state);

#endif
