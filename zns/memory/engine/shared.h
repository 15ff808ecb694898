/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_SHARED_H
#define MEM_SHARED_H
/*
 * What a successor gets: a memfd of the context, and a memfd with the table of each process. A
 * pager may be killed between any two writes to them, and its successor can still continue.
 */
#include <linux/userfaultfd.h>

#include "unit.h"
#include "zns/util.h"

/*
 * number of slots for processes: each has a table that takes 192 GiB of our 128 TiB of address
 * space
 */
#define PROCS_MAX 512U
#define LEAVERS_MAX 64U /* number of slots for children that must leave at once (leave.c) */
#define PLACES_MAX (PROCS_MAX - LEAVERS_MAX) /* most regular processes of a context */
#define BATCH 16U /* most units that are evicted together */

struct range {
	uint64_t start, end;
};

/*
 * The last moves, stored behind the table. For each move the kernel sends a second event, which
 * says that the old addresses were unmapped. Other memory may have been moved there before that
 * event is read.
 */
#define MOVES_KEPT 32U
struct moves {
	_Atomic uint32_t nr; /* number of moves so far; the array contains the last ones */
	struct move {
		uint64_t from, to, len, told_ns;
		_Atomic uint32_t owed; /* 1: that second event was not read yet */
	} move[MOVES_KEPT];
};

struct shared_proc {
	_Atomic uint32_t used; /* 1: a process uses this slot */
	int32_t pid; /* 0: a child whose PID is unknown so far */
	/* PID of a process of ours that has a thread of it stopped at this moment; 0: none */
	_Atomic int32_t tracer;
	/*
	 * 1: a child with unknown PID that is killed when the PID is found, because nobody knows
	 * where its units are (birth.c, events.c)
	 */
	_Atomic uint32_t doomed;
	_Atomic uint32_t leaves; /* 1: a child for which the context has no regular slot */
	_Atomic uint64_t birth; /* number of the fork that made it; 0: it was attached */
	_Atomic uint64_t serial; /* a new number for each process that uses this slot */
};

/* The state of a context. AWAKE and REST are also the states that can be requested (hiber.c). */
enum hiber_state {
	HIBER_AWAKE, /* it runs under its budget */
	HIBER_DOWN, /* all its memory is being moved to zones */
	HIBER_REST, /* hibernated: nothing is evicted, and memory that is touched comes back */
	HIBER_UP, /* units that its last activation touched are being read back */
};

#define RECORD_MAX 32768U /* most units of a record */

struct shared_hiber {
	_Atomic uint32_t state, wanted;
	_Atomic uint32_t again; /* requested during hibernation: evict again what has come back */
	/* ms without activity after which it hibernates by itself; 0: never */
	_Atomic uint64_t idle_ms;
	/* CLOCK_REALTIME: start of the state, and the last activity */
	_Atomic int64_t since_ns, active_ns;
	_Atomic uint32_t wakes, nr;
	/*
	 * number of samples that were not read ahead, and of those among them that were requested
	 */
	_Atomic uint64_t left_out, missed;
	_Atomic uint64_t unit[RECORD_MAX]; /* see record.c */
};

#define MESSAGES 16U

/*
 * Messages that the reader has read and not handled yet. The kernel writes them directly into this
 * memfd before it lets the process continue, so they survive if the pager is killed.
 */
struct inbox {
	_Atomic uint32_t slot; /* slot of the process */
	/*
	 * The progress of unit_forget() with a message. at: the address of the unit and, in the low
	 * 16 bits, 1 + the index of the message. had_at, had: the unit's value of `pages` before.
	 */
	_Atomic uint64_t at, had_at;
	_Atomic uint32_t had;
	uint32_t tag; /* 1 + the index of the message that is being handled */
	/*
	 * for hold.c: number of forks read before these messages; and the messages whose children
	 * are in the socket of birth.c
	 */
	_Atomic uint64_t forks;
	_Atomic uint32_t born; /* bit N: the child of message N */
	struct uffd_msg msg[MESSAGES]; /* event 0: handled, or no message */
};

/* What a successor has to know of the context. */
struct shared {
	uint32_t version, procs_max;
	_Atomic uint32_t rate_mibps; /* limit for writes in MiB/s; 0: none */
	char name[ZNS_NAME_MAX + 1];
	_Atomic uint64_t dram, evicted_units, clean_units, moved_units, read_units, zero_faults,
		write_faults, clean_writes, cancelled, lost_units, takeovers, spare_units,
		ahead_units, ahead_used, ahead_unused, left;
	_Atomic uint32_t no_predict;
	_Atomic uint64_t auto_total, auto_min; /* 0: the budget is fixed */
	_Atomic uint64_t forks; /* number of forks read so far */
	_Atomic uint64_t serials; /* number of serial numbers assigned so far */
	_Atomic int32_t holder; /* hold.c: PID of the holder; 0: none */
	/* 1: the pager is dead, and its holder has put all userfaultfds into the socket */
	_Atomic uint32_t held;
	struct inbox inbox;
	struct shared_proc proc[PROCS_MAX];
	struct shared_hiber hiber;
};

#endif
