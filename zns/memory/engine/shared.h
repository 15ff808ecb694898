/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_SHARED_H
#define MEM_SHARED_H
/*
 * What a successor finds: a memfd of the context, and one with the table of each process. Written
 * so that a kill between any two stores leaves something that can be gone on with.
 */
#include <linux/userfaultfd.h>

#include "unit.h"
#include "zns/util.h"

#define PROCS_MAX 512U /* slots: the table of each takes 192 GiB of our 128 TiB of addresses */
#define LEAVERS_MAX 64U /* of these, for children that leave at once (leave.c) */
#define PLACES_MAX (PROCS_MAX - LEAVERS_MAX) /* processes of a context */
#define BATCH 16U /* units that are evicted together */

struct range {
	uint64_t start, end;
};

/* Moves that were told of last, behind the table. The kernel tells of each old place once more, as
 * unmapped, and other memory may be there by then. */
#define MOVES_KEPT 32U
struct moves {
	_Atomic uint32_t nr; /* so far; the last ones are kept */
	struct move {
		uint64_t from, to, len, told_ns;
		_Atomic uint32_t owed; /* 1: that was not told yet */
	} move[MOVES_KEPT];
};

struct shared_proc {
	_Atomic uint32_t used; /* 1: this slot has a process */
	int32_t pid; /* 0: a child that we have not recognised yet */
	_Atomic int32_t tracer; /* our process that holds a thread of it right now, or 0 */
	_Atomic uint32_t doomed; /* 1: a child without a PID, to be ended when it is found: nobody
				  * knows where its units are (birth.c, events.c) */
	_Atomic uint32_t leaves; /* 1: a child for which there is no place */
	_Atomic uint64_t birth; /* number of its fork; 0: it was attached */
	_Atomic uint64_t serial; /* of this process: a slot has one after the other */
};

/* How far a context is, and what is wanted of it: AWAKE or REST (hiber.c). */
enum hiber_state {
	HIBER_AWAKE, /* under its budget */
	HIBER_DOWN, /* all of it is going out */
	HIBER_REST, /* hibernated: nothing is evicted, what is touched comes back */
	HIBER_UP, /* what was touched last time is coming back */
};

#define RECORD_MAX 32768U /* units */

struct shared_hiber {
	_Atomic uint32_t state, wanted;
	_Atomic uint32_t again; /* wanted while it rests: what came back shall go out */
	_Atomic uint64_t idle_ms; /* it hibernates by itself after so long; 0: never */
	_Atomic int64_t since_ns, active_ns; /* CLOCK_REALTIME: of the state; last activity */
	_Atomic uint32_t wakes, nr;
	_Atomic uint64_t left_out, missed; /* a sample that was not read; of these, asked for */
	_Atomic uint64_t unit[RECORD_MAX]; /* record.c */
};

#define MESSAGES 16U

/*
 * What the reader has read and not done yet, so that a kill does not lose it: the kernel writes
 * messages to here, and lets the process go on before we see them.
 */
struct inbox {
	_Atomic uint32_t slot; /* of the process */
	/* How far forget_range() is: the address of its unit and, in the low 16 bits, 1 + the
	 * message's number; and what that unit had before it was changed. */
	_Atomic uint64_t at, had_at;
	_Atomic uint32_t had;
	uint32_t tag; /* 1 + the number of the message that is being done */
	/* for hold.c: forks that had been read before these, and whose children birth.c has put */
	_Atomic uint64_t forks;
	_Atomic uint32_t born; /* bit N: that of message N */
	struct uffd_msg msg[MESSAGES]; /* event 0: done, or none */
};

/* The context, for a successor. */
struct shared {
	uint32_t version, procs_max;
	_Atomic uint32_t rate_mibps; /* of writes; 0: no limit */
	char name[ZNS_NAME_MAX + 1];
	_Atomic uint64_t dram, evicted_units, clean_units, moved_units, read_units, zero_faults,
		write_faults, clean_writes, cancelled, lost_units, takeovers, spare_units,
		ahead_units, ahead_used, ahead_unused, left;
	_Atomic uint32_t no_predict;
	_Atomic uint64_t auto_total, auto_min; /* 0: the budget is fixed */
	_Atomic uint64_t forks; /* that were read so far */
	_Atomic uint64_t serials; /* that were given so far */
	_Atomic int32_t holder; /* hold.c: PID; 0: none */
	_Atomic uint32_t held; /* 1: its pager is dead, and all is put away */
	struct inbox inbox;
	struct shared_proc proc[PROCS_MAX];
	struct shared_hiber hiber;
};

#endif
