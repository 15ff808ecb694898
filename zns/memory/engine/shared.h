/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_SHARED_H
#define MEM_SHARED_H
/*
 * What a successor finds: a memfd of the context, and one with the table of each process. A pager
 * may be killed between any two stores to them, and its successor can still continue.
 */
#include <linux/userfaultfd.h>

#include "unit.h"
#include "zns/util.h"

/* slots for processes: each has a table that takes 192 GiB of our 128 TiB of address space */
#define PROCS_MAX 512U
#define LEAVERS_MAX 64U /* slots for children that must leave at once (leave.c) */
#define PLACES_MAX (PROCS_MAX - LEAVERS_MAX) /* processes of a context */
#define BATCH 16U /* most units that are evicted together */

struct range {
	uint64_t start, end;
};

/* The last moves, stored behind the table. For each move the kernel sends a second event, which
 * says that the old place was unmapped. By then other memory may be there. */
#define MOVES_KEPT 32U
struct moves {
	_Atomic uint32_t nr; /* moves so far; the array has the last ones */
	struct move {
		uint64_t from, to, len, told_ns;
		_Atomic uint32_t owed; /* 1: that second event has not been read yet */
	} move[MOVES_KEPT];
};

struct shared_proc {
	_Atomic uint32_t used; /* 1: this slot has a process */
	int32_t pid; /* 0: a child whose PID we have not found yet */
	/* a process of ours that holds one of its threads right now, or 0 */
	_Atomic int32_t tracer;
	_Atomic uint32_t doomed; /* 1: a child without a PID, to be ended when it is found: nobody
				  * knows where its units are (birth.c, events.c) */
	_Atomic uint32_t leaves; /* 1: a child for which the context has no place */
	_Atomic uint64_t birth; /* number of its fork; 0: it was attached, not forked */
	_Atomic uint64_t serial; /* a new number for each process that uses this slot */
};

/* The state of a context, and what it should become: AWAKE or REST (hiber.c). */
enum hiber_state {
	HIBER_AWAKE, /* runs under its budget */
	HIBER_DOWN, /* all its memory is on its way to zones */
	HIBER_REST, /* hibernated: nothing is evicted, and what is touched comes back */
	HIBER_UP, /* what its last activation touched is coming back */
};

#define RECORD_MAX 32768U /* units */

struct shared_hiber {
	_Atomic uint32_t state, wanted;
	_Atomic uint32_t again; /* wanted while it rests: what came back shall go out */
	_Atomic uint64_t idle_ms; /* it hibernates by itself after so long; 0: never */
	_Atomic int64_t since_ns, active_ns; /* CLOCK_REALTIME: of the state; last activity */
	_Atomic uint32_t wakes, nr;
	/* a sample that was not read ahead, and how many of the sample were asked for */
	_Atomic uint64_t left_out, missed;
	_Atomic uint64_t unit[RECORD_MAX]; /* record.c */
};

#define MESSAGES 16U

/*
 * Messages that the reader has read and not handled yet. The kernel writes them to this memfd
 * before it lets the process go on, so a killed pager does not lose them.
 */
struct inbox {
	_Atomic uint32_t slot; /* the process's slot */
	/* How far unit_forget() has come with a message: the address of the unit and, in the low
	 * 16 bits, 1 + the number of the message; and what that unit had before. */
	_Atomic uint64_t at, had_at;
	_Atomic uint32_t had;
	uint32_t tag; /* 1 + the number of the message that is being handled */
	/* for hold.c: forks read before these messages; and whose children birth.c has put into
	 * its socket */
	_Atomic uint64_t forks;
	_Atomic uint32_t born; /* bit N: the child of message N */
	struct uffd_msg msg[MESSAGES]; /* event 0: handled, or none */
};

/* What a successor has to know of the context. */
struct shared {
	uint32_t version, procs_max;
	_Atomic uint32_t rate_mibps; /* limit for writes; 0: none */
	char name[ZNS_NAME_MAX + 1];
	_Atomic uint64_t dram, evicted_units, clean_units, moved_units, read_units, zero_faults,
		write_faults, clean_writes, cancelled, lost_units, takeovers, spare_units,
		ahead_units, ahead_used, ahead_unused, left;
	_Atomic uint32_t no_predict;
	_Atomic uint64_t auto_total, auto_min; /* 0: the budget is fixed */
	_Atomic uint64_t forks; /* number of forks read so far */
	_Atomic uint64_t serials; /* serial numbers given so far */
	_Atomic int32_t holder; /* hold.c: PID of the holder; 0: none */
	/* 1: the pager is dead, and its holder has put everything into the socket */
	_Atomic uint32_t held;
	struct inbox inbox;
	struct shared_proc proc[PROCS_MAX];
	struct shared_hiber hiber;
};

#endif
