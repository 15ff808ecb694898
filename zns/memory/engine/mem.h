/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_MEM_H
#define MEM_MEM_H
/*
 * The internal interface of a memory context.
 *
 * Terms. A unit is 64 KiB of a process's memory; its place is where its bytes are on a zone. A
 * stray is a unit that mremap() has moved to an address that is no multiple of 64 KiB. A marker is
 * what the kernel keeps in the page table of a missing page that is write-protected.
 *
 * Locks. A process's `ev` orders its events against all calls that concern its memory. The thread
 * that reads events takes it for writing, from before the read until the tables contain what was
 * read. Every other thread takes it for reading around "check the unit, call the kernel, note the
 * result in the unit". The kernel refuses such a call with EAGAIN while an event has not been read;
 * then the thread releases the lock before it tries again. So if a call succeeds, the tables were
 * right. No function that may wait for an event (process_vm_readv, a stop, the store) is called
 * while `ev` is held. The context's `lock` protects only the list of processes.
 */
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include "../../track/maps.h"
#include "../../track/scan.h"
#include "../policy/heat.h"
#include "../policy/guess.h"
#include "../policy/predict.h"
#include "shared.h"
#include "zns/mem.h"
#include "zns/util.h"

#define SERVERS 4U /* threads that read events in turn and answer faults */
#define AGAIN_NS 2000000000ULL /* ns until the next try to stop a process that did not stop */

struct place { /* an area that may be evicted */
	uint64_t start, end;
};
struct places {
	struct place *a;
	size_t nr, max;
	uint64_t locked, shared, file, special;
	const char *async;
};

struct victim {
	struct unit *u;
	uint64_t start, end; /* the part of the unit that is inside of the area */
	uint64_t base;
	uint32_t mask; /* pages of that part that are present */
	bool out; /* the eviction of this unit was given up */
	/* for a CLEAN unit: its word. Its place already has these pages, so nothing is written */
	uint64_t kept;
	uint64_t page[UNIT_PAGES]; /* hashes of the pages that were copied */
	uint32_t left; /* pages that stayed in the process */
};

/* Units whose bytes were written to their places, and whose pages are now being removed. */
struct batch {
	struct victim v[BATCH];
	struct zns_pages_ref ref[BATCH];
	unsigned int nr;
};

struct proc {
	struct zns_mem *m;
	struct shared_proc *sh;
	pid_t pid;
	int pidfd, uffd, maps, pagemap, mem, table; /* mem: descriptor of /proc/PID/mem */
	struct unit *u; /* units of the whole address space, followed by the strays */
	struct unit_check *checks; /* hashes of each of these units */
	_Atomic uint64_t *marks; /* a bit for each of these units, see unit_set_marked() */
	_Atomic uint32_t nr_strays; /* number of slots for strays that may be in use */
	pthread_rwlock_t ev;
	_Atomic int refs;
	_Atomic bool gone; /* its memory does not exist any more */
	struct proc *next_dead, *next_waiting;
	_Atomic bool evicts;
	uint64_t fork_nr; /* copy of shared_proc.birth */
	bool leaves; /* copy of shared_proc.leaves */
	bool uncounted; /* a leaving child whose units were not counted in the store yet */
	struct places known; /* known.c: registered areas; protected by `ev` */
	struct places
		/*
		 * guards.c: areas that had guard pages at the last check; used by the evictor only
		 */
		guarded;
	/* guards_ns: when `guarded` was read; guards_at: address from which the next units are
	 * fetched */
	uint64_t guards_ns, guards_at;
	_Atomic uint32_t guards_coming; /* units that are queued for fetching */
	struct moves *moves; /* the last moves; protected by `ev` */
	/* At least one entry of moves waits for the event that its old place was unmapped;
	 * protected by `ev`. */
	bool has_pending_moves;
	/* What order_is_missing() or order_wait() found last: is the process changing its memory?
	 * Protected by `ev`. */
	bool changes;
	struct range own; /* memory that the borrowed thread needed in the last stop */
	struct going *rest; /* an eviction whose stop has not ended yet; NULL: none */
	uint64_t again_ns; /* when the next stop may be tried; 0: at once */
	/* pins.c: what may have pinned its pages; NULL: nothing; valid until pins_until_ns */
	const char *pins;
	uint64_t pins_until_ns;
	char why[160]; /* why it is not evicted; empty: it is */
	uint64_t resident, evicted; /* bytes, as of the last check */
	uint64_t hand; /* address at which the next eviction begins */
	uint64_t cpu_ticks; /* CPU time at the last check; 0: there was none */
	uint32_t born; /* number of the process in the context, from 1 */
	struct predict predict;
};

struct fault {
	struct proc *p;
	uint64_t addr;
	enum fault_kind {
		FAULT_MISSING,
		FAULT_FIRST_WRITE, /* a page is missing, and the thread is about to write to it */
		FAULT_WRITE,
		FAULT_LOAD,
		FAULT_STRAY,
		/* No thread waits for the following kinds, so they are handled after all others. */
		FETCH, /* reads a predicted unit into memory (policy/ahead.c) */
		FETCH_COPY, /* keeps a copy of the predictor's last unit, which stays on its zone */
		FETCH_STREAM, /* keeps a copy of the stream's last unit, which stays on its zone */
		/* reads a unit of an area with guard pages into memory, even beyond the budget */
		FETCH_GUARDED,
		/* reads some units of the record; addr is not used (policy/active.c) */
		FETCH_RECORD,
	} kind;
	uint64_t since_ns;
};

struct circle {
	struct fault *f;
	size_t head, nr, max;
};

struct queue {
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct circle faults, ahead;
	/* number of workers that handle requests for which no thread waits */
	unsigned int fetching;
	unsigned int idle; /* number of threads that wait for work */
	bool led; /* a thread reads events at present */
	bool end;
};

#define AHEAD_DEPTH 10U /* initial number of units fetched ahead, in tenths */
/* How many units each fault fetches ahead. The number grows while the predictions are right. */
struct ahead_depth {
	unsigned int tenths, max_tenths; /* in tenths of a unit */
	/* tenths that a right prediction adds, and a wrong one subtracts */
	unsigned int right, wrong;
	unsigned int tries;
};
/*
 * State of reading ahead (policy/ahead.c). @lock also protects the predictor (struct predict) of
 * each process. `chain` is the depth of that predictor, `stream` that of streams.
 */
struct ahead {
	pthread_mutex_t lock;
	struct ahead_depth chain, stream;
	struct guesses guesses;
};

struct spare;
struct share;

#define LATENCIES 1024U

/* How reliable the record is (record.c). */
#define RECORD_GATES 2U
struct record_gate {
	/*
	 * since the last result: number of units left out as samples, and of those among them that
	 * were requested
	 */
	uint32_t left, missed;
	uint32_t right; /* percentage of the samples that were requested */
};

/*
 * State of hibernation and activations that a successor does not need (struct shared_hiber has the
 * rest).
 */
struct hiber {
	pthread_mutex_t lock; /* protects `roused` */
	pthread_cond_t more;
	bool roused, made;
	pthread_mutex_t record;
	uint32_t *find; /* hash table of the record's units */
	/* number of activations that have ended; like `gate` protected by `record` */
	uint32_t turns;
	struct record_gate gate[RECORD_GATES];
	/* active.c: an activation is in progress, or has read back its units */
	_Atomic bool active;
	_Atomic uint64_t touch_ns; /* when a unit was last touched */
	_Atomic uint32_t burst; /* units touched in a row without a pause */
	/* part of the record that is being read ahead: index of the next entry, and the end */
	_Atomic uint32_t next, until;
	_Atomic uint32_t reading; /* number of threads that read the record ahead */
	_Atomic uint64_t activations; /* number of activations that began without a hibernation */
	/* at the last check of activity: its time, and the number of units read until then */
	uint64_t looked_ns, read_units;
	/* during hibernation: start of the present window in ms, and units touched in it */
	_Atomic uint32_t window_ms, touched;
	_Atomic uint32_t rest_ms; /* now_ms() when the hibernation began */
};

struct zns_mem {
	struct shared *sh;
	int sh_fd;
	pid_t pid; /* PID of the pager */
	struct zns_mem_store store;
	pthread_mutex_t lock;
	struct proc *proc[PROCS_MAX];
	_Atomic uint32_t births; /* number of processes that have joined so far */
	int birth[2]; /* birth.c: the two ends of the socket: for writing, and for reading */
	int self; /* hold.c: pidfd of the pager itself */
	pid_t holder;
	int relieved; /* hold.c: pidfd of the dead pager's holder; -1: none */
	/* unkept.c: pidfd of the keeper, which has copies of our descriptors; -1: unknown */
	_Atomic int keeper;
	void *hold_stack;
	/* processes whose descriptors are being sent to the keeper */
	struct proc *handed[PROCS_MAX];
	unsigned int nr_handed;
	/* number of the last fork whose child is in the list; protected by `lock` */
	uint64_t forks_done;
	struct proc *dead; /* processes without references, which the reader of events will free */
	/* leave.c: children that wait for a slot, the oldest first; protected by `lock` */
	struct proc *waiting;
	pthread_cond_t leavers; /* signalled when the thread `leaver` may have more to do */
	pthread_t leaver;
	_Atomic bool leading;
	_Atomic bool crowded;
	struct queue queue;
	struct ahead ahead;
	struct spare *spare;
	struct share *_Atomic share; /* NULL: the budget is fixed */
	_Atomic uint64_t stall_ns; /* ns for which threads have waited for zones */
	_Atomic int64_t room; /* bytes that may still be fetched before the evictor's next check */
	int epoll, wake, changes; /* wake: an eventfd that wakes the reader */
	pthread_t server[SERVERS], evictor;
	unsigned int nr_servers;
	bool evicting;
	_Atomic bool end, no_evict;
	/*
	 * set by a detach: a unit that cannot be read is an error, and its pages are not given up
	 */
	_Atomic bool keep_unreadable;
	_Atomic bool sealed; /* a checkpoint is being made: nothing is evicted */
	_Atomic bool evict_idle; /* the evictor holds no lock and no unit */
	_Atomic uint32_t latency_ns[LATENCIES], latencies;
	_Atomic uint64_t stop_ns; /* the longest time for which a thread was stopped */
	_Atomic uint64_t stops, stopped_ns; /* sums over all threads of the processes */
	/* bytes left below the cgroup's limit, and the time when that was read */
	_Atomic uint64_t below, below_ns;
	/* bytes, as of the last check of all areas */
	uint64_t locked, shared, file, special;
	char warning[256], missing[256];
	pthread_mutex_t text; /* protects warning, missing, and `why` of each process */
	bool moves; /* UFFDIO_MOVE is used to remove pages from a process */
	uint8_t *bufs; /* buffer for BATCH units; used by the evictor only */
	uint32_t age_ms; /* units used within the last age_ms are not evicted */
	struct heat heat;
	/* time of the last check of ages, and the resident bytes at that time */
	uint64_t heat_ns, resident;
	bool heat_short; /* the last check did not find enough units that are old */
	long tick_ms;
	/*
	 * messages: some have arrived since the evictor's last check; slow: its next check is far
	 * off
	 */
	_Atomic bool messages, slow;
	uint64_t pause_until_ns;
	/* until then nothing can be evicted, as long as the budget is dry_dram */
	uint64_t dry_until_ns, dry_dram;
	uint64_t clean_after_ns; /* no zone is cleaned before this time */
	struct hiber hiber;
};

/* --- table.c: units --- */
struct unit *unit_at(struct proc *p, uint64_t addr);
/*
 * Returns the first unit at or above @addr whose page of the table exists, or @end. Accessing other
 * units would allocate their pages.
 */
uint64_t table_next(const struct proc *p, uint64_t addr, uint64_t end);
/* Like table_next(), but begins behind the unit at @addr. */
uint64_t table_step(const struct proc *p, uint64_t addr, uint64_t end);
struct unit *stray_at(struct proc *p, uint64_t addr); /* NULL: no stray contains the page */
struct unit *stray_nr(struct proc *p, uint32_t i);
bool stray_near(struct proc *p, uint64_t start, uint64_t end);
struct unit *stray_new(struct proc *p, uint64_t addr); /* NULL: no slot is free */
/* Returns the unit's place and its hashes. @word: a value of u->word that the caller has read. */
struct zns_pages_ref unit_ref(struct proc *p, const struct unit *u, uint64_t word);
/* Stores all of @ref except the place. */
void unit_note(struct proc *p, struct unit *u, const struct zns_pages_ref *ref);
/* Changes between states that have no place. */
bool unit_move(struct unit *u, enum unit_state from, enum unit_state to);
/*
 * Changes from CLEAN to @to, and gives up the place. The pages stay protected, so the next write
 * causes one more fault.
 */
bool unit_unkeep(struct proc *p, struct unit *u, enum unit_state to);
/*
 * Notes that each page (u->pages) of a unit that is being evicted has a write protection marker in
 * the page table. The kernel keeps a marker until the page comes back or is removed, even through
 * MADV_FREE. It reports all removals except those by guard pages: a missing marker reveals these.
 */
void unit_set_marked(const struct proc *p, const struct unit *u, bool marked);
bool unit_is_marked(const struct proc *p, const struct unit *u);
void unit_stamp(struct unit *u);
/* Is the unit in memory, and was it used or read back within the last @ms? */
bool unit_came_lately(const struct unit *u, uint32_t ms);
uint32_t now_ms(void);
/* Returns the pages of the unit at @base that are in the range, as bits. */
uint32_t pages_of(uint64_t base, uint64_t start, uint64_t end);
/* Takes the next run of pages out of @pages. False: there are no more. */
bool next_run(uint32_t *pages, uint64_t base, struct range *r);
int table_make(int *fd);
int table_map(struct proc *p);
void table_unmap(struct proc *p);
/* Calls @each for all units that may be in use, including strays. */
int table_each(struct proc *p,
	       int (*each)(struct proc *p, struct unit *u, uint64_t base, void *arg), void *arg);

/*
 * --- uffd.c: each makes one ioctl and returns 0 or -errno. -EAGAIN: an event must be read first
 * ---
 */
int mem_uffd_begin(int uffd);
int mem_uffd_register(int uffd, uint64_t start, uint64_t end);
int mem_uffd_unregister(int uffd, uint64_t start, uint64_t end);
int mem_uffd_protect(int uffd, uint64_t start, uint64_t end, bool on);
/* @done, also below: number of bytes that were done, set also after an error */
int mem_uffd_copy(int uffd, uint64_t to, const void *from, uint64_t len, bool protect,
		  uint64_t *done);
/*
 * Is the whole range (at most MEM_HAS_MAX bytes) in one registered area? 0: yes; -ENOENT: no.
 * Changes nothing.
 */
#define MEM_HAS_MAX MIB(4)
int mem_uffd_has(int uffd, uint64_t start, uint64_t end);
int mem_uffd_zero(int uffd, uint64_t start, uint64_t end, uint64_t *done);
int mem_uffd_poison(int uffd, uint64_t start, uint64_t end);
void mem_uffd_wake(int uffd, uint64_t start, uint64_t end);
void mem_uffd_wake_all(int uffd);
bool mem_uffd_dead(int uffd); /* is the memory gone? */
/*
 * Is the process in a system call that maps, moves or removes memory, or forks? True until we have
 * read the event of the call and its thread continues.
 */
bool mem_uffd_changes(int uffd);

/* --- attach.c --- */
/*
 * Makes the process create a userfaultfd for its memory during a stop of its threads; we get a
 * copy.
 */
int proc_equip(struct proc *p, struct zns_err *err);

/* --- proc.c --- */
/* The new process is in no list yet. */
struct proc *proc_new(struct zns_mem *m, pid_t pid, struct zns_err *err);
/* opens pidfd, maps and pagemap of the process */
int proc_open(struct proc *p, struct zns_err *err);
int proc_add(struct zns_mem *m, struct proc *p); /* -ENOSPC: no slot is free */
bool proc_place(struct zns_mem *m); /* is a slot free? */
struct proc *proc_get(struct proc *p);
void proc_put(struct proc *p);
/* Call when the keeper has the descriptors that were handed over, or the hand-over was given up. */
void procs_arrived(struct zns_mem *m);
/* Fills @list with all processes of the context, and takes a reference to each. */
void procs(struct zns_mem *m, struct proc *list[PROCS_MAX], unsigned int *nr);
void proc_forget(struct proc *p); /* drops the process's units and removes it from the list */
/* Removes processes whose memory is gone. @but: the process whose lock the caller holds. */
void procs_sweep(struct zns_mem *m, const struct proc *but);
/* Frees dead processes, after calling @forget for each. */
void procs_bury(struct zns_mem *m, void (*forget)(struct proc *p));
bool proc_ended(const struct proc *p);
uint64_t proc_resident(const struct proc *p); /* bytes */
void proc_why(struct proc *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void changed(struct zns_mem *m);
void mem_warn(struct zns_mem *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void reader_watch(struct zns_mem *m, struct proc *p);
void reader_unwatch(struct zns_mem *m, struct proc *p);

/* --- queue.c: any thread may call these --- */
void fault_push(struct queue *q, struct proc *p, uint64_t addr, enum fault_kind kind);
enum task { ENDED, READ_EVENTS, ANSWER };
/* Waits for the next task of the calling thread. *@f is set if it is ANSWER. */
enum task queue_next(struct queue *q, struct fault *f);
void queue_answered(struct queue *q, const struct fault *f); /* call this when @f was answered */
/*
 * For the thread that reads events. True: another thread reads them from now on, and the caller may
 * answer a fault.
 */
bool reader_hand_on(struct queue *q);

/* --- serve.c --- */
/* Starts threads until there are @nr. One of them at a time reads events and answers no faults. */
int servers_start(struct zns_mem *m, unsigned int nr);
void servers_end(struct zns_mem *m);

/* --- fault.c --- */
/*
 * Answers a fault. @buf: UNIT bytes. True: a thread waited for this unit, and it was read or copied
 * back.
 */
bool fault_answer(struct fault *f, uint8_t *buf);
/* Calls @once with the lock held until it returns something other than -EAGAIN. */
int fault_repeat(struct proc *p, int (*once)(struct proc *p, void *arg), void *arg);
/* For the thread that has set a unit to BUSY: ends the protection and sets the unit to RES. */
void unit_release(struct proc *p, struct unit *u, uint64_t base);
/*
 * Reads back a unit or stray that is on a zone. @keep: into the state CLEAN if possible. @f: a
 * fault whose page is read first; may be NULL. 0: the unit is in memory, or another thread handles
 * it.
 */
int unit_load(struct proc *p, struct unit *u, uint64_t base, uint8_t *buf, bool keep,
	      struct fault *f);

/* --- ahead.c --- */
void ahead_begin(struct ahead *a);
void ahead_fault(struct proc *p, uint64_t addr);
/* is there room in the budget for one more unit? If so, the room is taken */
bool ahead_room(struct zns_mem *m);
void ahead_fetch(struct proc *p, uint64_t base, uint8_t *buf, enum fault_kind kind);

/* --- stream.c: memory that is used in address order --- */
#define STREAM_MAX 32U /* most units that a fault fetches */
/*
 * Returns how many units right below @block (at most STREAM_MAX) have come into memory a moment
 * ago.
 */
unsigned int stream_before(struct proc *p, uint32_t block);
/*
 * Puts those units right above @block that are on zones into @next, at most @max (not above
 * STREAM_MAX). Returns their number.
 */
unsigned int stream_next(struct proc *p, uint32_t block, unsigned int max,
			 uint32_t next[STREAM_MAX]);

/* --- spare.c: copies in DRAM of units that are on zones --- */
#define SPARE_MAX 2048U /* most copies of each kind */
enum spare_kind { SPARE_OUT, SPARE_AHEAD, SPARE_KINDS };
int spare_open(struct zns_mem *m);
void spare_close(struct zns_mem *m);
uint64_t spare_bytes(struct zns_mem *m);
void spare_put(struct proc *p, const struct unit *u, struct zns_pages_ref ref, const void *buf,
	       enum spare_kind kind);
/* Moves the copy of the unit to @buf. False: there is no copy. */
bool spare_take(struct proc *p, const struct unit *u, struct zns_pages_ref ref, void *buf);
bool spare_has(struct proc *p, const struct unit *u, struct zns_pages_ref ref,
	       enum spare_kind kind);
/* --- ceiling.c --- */
#define CEILING_NONE (1ULL << 60)
/* Bytes left below the limits of the process's cgroup and its parents, minus a margin. */
uint64_t ceiling_room(pid_t pid);
void ceiling_wait(struct proc *p); /* call this before memory is charged to the process */

/* --- prune.c --- */
/*
 * Removes units that the child does not have from its table, before its first eviction. @as: a
 * process whose files in /proc are used.
 */
void fork_prune(struct proc *child, const struct proc *as);

/* --- events.c --- */
/*
 * Call with `ev` held for writing: the pages in @mask at the unit's place are not valid any more.
 */
void unit_forget(struct proc *p, struct unit *u, uint32_t mask);
/*
 * Reads events until the context ends (returns false), or until the caller has to answer @f
 * (returns true).
 */
bool reader_lead(struct zns_mem *m, struct fault *f);
/*
 * For a successor, before it reads events: applies the removals and moves that the dead pager had
 * read. Call this before units are counted in the store.
 */
void inbox_replay(struct zns_mem *m);

/* Starts to serve a child that is in the list and whose table is complete. */
void child_serve(struct proc *child);

/* --- leave.c: children for which the context has no regular slot --- */
int leave_start(struct zns_mem *m);
void leave_end(struct zns_mem *m);
void leave_free(struct zns_mem *m);
/*
 * Serves the child until all its memory on zones was read back. Then the child leaves the context.
 */
void leave_begin(struct proc *child);
void leave_wait(struct zns_mem *m, struct proc *child); /* the child has no slot at all yet */
/* Might the next forks find no slot? Then only events of children that leave are read at first. */
bool leave_crowded(const struct zns_mem *m);
bool leave_waiting(struct zns_mem *m); /* does a child wait for a slot? */

/* --- areas.c --- */
int mem_places_read(struct proc *p, struct places *l);
/*
 * Reads the area that contains @addr now. An older kernel cannot tell, and *@a stays unchanged.
 * -ESTALE, -ENOENT: no area that may be evicted contains @addr.
 */
int place_now(const struct proc *p, uint64_t addr, struct place *a);
/*
 * Like place_now(), but works on any kernel: an older one reads all areas into @all, unless @all
 * has them already.
 */
int place_read(const struct proc *p, uint64_t addr, struct areas *all, struct place *a);
void mem_places_free(struct places *l);
/* Is a part of its memory registered with any userfaultfd, ours or another one? */
bool mem_places_watched(const struct proc *p);
/* Why its memory must not be dropped now, such as "pinned memory"; NULL: it may be. */
const char *mem_places_pinned(struct proc *p, const struct places *l);

/* --- guards.c --- */
/* Removes areas with guard pages from the list, so that they stay in memory. */
void guards_leave(struct proc *p, struct places *l);
void guards_bring(struct proc *p); /* reads some units of these areas back; called once a turn */
void guards_fetch(struct proc *p, uint64_t base, uint8_t *buf); /* handles FETCH_GUARDED */

/* --- pins.c --- */
/*
 * The kind of a descriptor by which the kernel may have pinned the process's pages, such as "vfio";
 * NULL: none.
 */
const char *pins_of(struct proc *p);

/* --- same.c --- */
/* Does the PID still have the memory that was attached? */
bool same_memory(const struct proc *p);

/* --- present.c --- */
/* Bits of an entry of /proc/PID/pagemap. */
#define PRESENT (1ULL << 63)
/* also set for the kernel's markers, for example that of a guard page */
#define SWAPPED (1ULL << 62)
#define GUARD (1ULL << 58) /* since Linux 6.15 */
#define PROTECTED (1ULL << 57)
#define EXCLUSIVE (1ULL << 56) /* no other process has the page; never set for a swapped page */
#define MARKER (SWAPPED | PROTECTED) /* a write protection marker, or a protected page in swap */
/* Reads the entries of @nr pages from @addr on. */
int present_entries(int pagemap, uint64_t addr, uint64_t nr, uint64_t *entry);
/* Calls @found for the present pages in ascending order, like scan_range(). */
int present_scan(const struct proc *p, uint64_t start, uint64_t end, scan_found found, void *arg);
/* What the page table contains for the pages of a unit that is on its zone, as bits. */
struct unit_pages {
	/* swapped pages or guard pages: the program has replaced the bytes that are on the zone */
	uint32_t other;
	uint32_t removed; /* pages that were removed by guard pages, which are gone again */
};
/*
 * Call with `ev` held. -EAGAIN: an event is unread, so it is unknown what was removed. If the page
 * table cannot be read, both sets are empty.
 */
int present_look(const struct proc *p, int pagemap, const struct unit *u, uint64_t base,
		 struct unit_pages *is);
bool present_is_guard(const struct proc *p, uint64_t addr);
/* Has each of these pages of the unit at @base a write protection marker? */
bool present_is_marked(const struct proc *p, uint64_t base, uint32_t pages);
/*
 * Is the page a hole? A protected page in swap looks like a hole with a marker, and counts as one.
 */
bool present_is_hole(const struct proc *p, uint64_t addr);

/* --- stop.c: stops all threads of a process while one of them makes system calls for us --- */
struct zns_guest;
/*
 * Makes the system calls that remove pages. @own: memory that the calling thread needs, which must
 * stay. If it fails and *@begun is false, nothing was changed.
 */
typedef int (*stop_body)(void *arg, struct zns_guest *guest, const struct range *own, bool *begun);
/*
 * Stops the process and calls @body in a thread of ours. @arg must stay valid until stop_end().
 * NULL: the process cannot be stopped.
 */
struct stop *stop_begin(struct proc *p, stop_body body, void *arg);
/*
 * Waits for the end of a stop. -EINPROGRESS: it has not ended within @limit_ms, so call again; in
 * all other cases @s is freed. If *@begun is false, it failed before @body, and *@err has the
 * reason.
 */
int stop_end(struct stop *s, unsigned int limit_ms, bool *begun, struct zns_err *err);
/* For a stop_body: has the pager died? A dead pager may hold a lock for ever. */
bool stop_orphaned(const struct proc *p);
/* the pager has died, and no other process will read its events */
bool stop_unread(const struct proc *p);
/* Waits until the stop that a dead pager began has ended. */
void stop_await_end(struct proc *p, uint64_t since_ns);

/* --- dropping.c: registers areas before their units are dropped --- */
/* Registers @area. -EAGAIN: impossible at this moment; other errors as of mem_uffd_register(). */
int dropping_from(struct proc *p, struct place area);
/* Must the unit at @base stay in memory, because the stopped thread needs it? */
bool dropping_never(const struct proc *p, uint64_t base);

/* --- known.c: which areas are registered; call these with `ev` held for writing --- */
void known_add(struct proc *p, struct place area);
bool known_exactly(const struct proc *p, struct place area);
/* is any of the range in a registered area? */
bool known_within(const struct proc *p, uint64_t start, uint64_t end);
/*
 * Removes areas in the range from the list: they may have moved, and there may be other memory now.
 */
void known_gone(struct proc *p, uint64_t start, uint64_t end);
void known_moved(struct proc *p, uint64_t from, uint64_t to, uint64_t len);
void known_inherit(struct proc *child, const struct proc *p); /* @child must be new */

/* --- order.c: the order in which events happened; for the reader of events, with `ev` held --- */
void order_look(struct proc *p); /* call this before events are read */
/*
 * Returns how many of @p's last moves happened after the fork of @child. The caller undoes them in
 * the child's table.
 */
uint32_t order_fork(const struct proc *child, const struct proc *p);
/* @n: counted from the end, 1 is the last move */
const struct move *order_move(const struct proc *p, uint32_t n);
void order_moved(struct proc *p, uint64_t from, uint64_t to, uint64_t len);
/*
 * Call when [start, end) was unmapped. Calls @gone, in ascending order, for those parts to which no
 * other memory was moved since.
 */
void order_unmapped(struct proc *p, uint64_t start, uint64_t end,
		    void (*gone)(struct proc *p, uint64_t start, uint64_t end, void *arg),
		    void *arg);
/*
 * Returns the index in @msg of the message that must be handled next. Handled messages have event
 * 0. @nr: all are handled.
 */
unsigned int order_next(const struct proc *p, const struct uffd_msg *msg, unsigned int nr);
/* Is it impossible to find out from the messages which of two memories is at an address? */
bool order_is_unsure(const struct proc *p, const struct uffd_msg *msg, unsigned int nr);
/*
 * Did an event that was not read yet happen before one of these? Call this after each read:
 * order_next() and order_is_unsure() use its result, or that of order_wait().
 */
bool order_is_missing(struct proc *p, const struct uffd_msg *msg, unsigned int nr);
/* Waits until there may be more events to read. False: there are none. */
bool order_wait(struct proc *p, uint64_t since_ns);

/* --- evict.c --- */
/*
 * Evicts units of one process. *@nr_out: how many were removed from it. -ESRCH: the process has
 * ended; other errors are of the store or the kernel.
 */
int evict(struct proc *p, struct victim *v, unsigned int nr, const struct place *area,
	  unsigned int *nr_out, struct zns_err *err);
/* Continues an eviction whose stop has not ended. -EINPROGRESS: it still has not. */
#define REST_MS 2000 /* ms; enough for a process that is not frozen */
int evict_rest(struct proc *p, unsigned int limit_ms);
/*
 * Like evict_rest(), for all processes: units that are being removed are neither in memory nor on a
 * zone. -EBUSY: a process does not continue.
 */
int evict_rests(struct zns_mem *m, struct zns_err *err);
void evict_forget(struct proc *p); /* frees such an eviction of a process that has ended */

/* --- clean.c --- */
bool clean_some(struct zns_mem *m);

/* --- budget.c --- */
void *evictor_run(void *m);
/*
 * Call when a message has arrived: makes the evictor check soon. Costs little while the evictor is
 * awake.
 */
void evictor_rouse(struct zns_mem *m);
/* Counts all resident memory that may be evicted by age, into m->heat. */
void look_at_ages(struct zns_mem *m, struct proc *const *list, unsigned int nr);

/* --- share.c --- */
void share_turn(struct zns_mem *m);
void share_close(struct zns_mem *m);

/* --- rules.h: rules that tests can switch off --- */
#include "rules.h"

#endif
