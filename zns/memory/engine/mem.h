/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_MEM_H
#define MEM_MEM_H
/*
 * The inside of a memory context.
 *
 * Locks. A process's `ev` orders its events against all calls about its memory. The thread that
 * reads the events takes it for writing, from before it reads until the tables say what was read.
 * Every other thread takes it for reading around "look at the unit, call the kernel, note the
 * result in the unit". The kernel refuses such calls with EAGAIN while an event has not been read;
 * then the thread lets the lock go before it tries again. So when a call succeeds, the tables were
 * right. Nothing that may wait for an event (process_vm_readv, a stop, the store) is called under
 * `ev`. The context's `lock` guards only the list of processes.
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

#define SERVERS 4U /* threads that take turns at reading events and answer faults */
#define AGAIN_NS 2000000000ULL /* time before the next try to stop a process that would not stop */

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
	uint64_t start, end; /* the part of the unit that lies in the area */
	uint64_t base;
	uint32_t mask; /* pages of that part that are present */
	bool out; /* the eviction of this unit was given up */
	/* the unit's word if it is CLEAN, whose place already has these pages: nothing is
	 * written */
	uint64_t kept;
	uint64_t page[UNIT_PAGES]; /* hashes of the pages that were copied */
	uint32_t left; /* pages that stayed in the process */
};

/* Units that were copied to their places, and whose pages now leave the process. */
struct batch {
	struct victim v[BATCH];
	struct zns_pages_ref ref[BATCH];
	unsigned int nr;
};

struct proc {
	struct zns_mem *m;
	struct shared_proc *sh;
	pid_t pid;
	int pidfd, uffd, maps, pagemap, mem, table; /* mem: /proc/PID/mem */
	struct unit *u; /* units of the whole address space; behind them the strays */
	struct unit_check *checks; /* checks of each of these units */
	_Atomic uint64_t *marks; /* a bit for each of these units: unit_set_marked() */
	_Atomic uint32_t nr_strays; /* slots of strays that may be in use */
	pthread_rwlock_t ev;
	_Atomic int refs;
	_Atomic bool gone; /* its memory does not exist any more */
	struct proc *next_dead, *next_waiting;
	_Atomic bool evicts;
	uint64_t fork_nr; /* shared_proc.birth */
	bool leaves; /* shared_proc.leaves */
	bool uncounted; /* a leaving child whose units the store has not counted yet */
	struct places known; /* known.c; under `ev` */
	struct places
		guarded; /* guards.c: areas with guard pages, as of the last look; the evictor's */
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
	struct range own; /* memory that the thread needed in the last stop */
	struct going *rest; /* an eviction whose stop has not ended yet */
	uint64_t again_ns; /* when the next stop may be tried; 0: now */
	/* pins.c: what may have pinned its pages, NULL: nothing; valid until pins_until_ns */
	const char *pins;
	uint64_t pins_until_ns;
	char why[160]; /* why it is not evicted */
	uint64_t resident, evicted; /* bytes at the last look */
	uint64_t hand; /* address that eviction looks at next */
	uint64_t cpu_ticks; /* CPU time at the last look; 0: there was none */
	uint32_t born; /* its number in the context, from 1 */
	struct predict predict;
};

struct fault {
	struct proc *p;
	uint64_t addr;
	enum fault_kind {
		FAULT_MISSING,
		FAULT_FIRST_WRITE, /* a missing page, and the thread is going to write to it */
		FAULT_WRITE,
		FAULT_LOAD,
		FAULT_STRAY,
		/* No thread waits for these: they are handled after all others. */
		FETCH, /* reads a unit of a chain or a stream into memory (ahead.c) */
		FETCH_COPY, /* keeps a copy of the chain's last unit, which stays on its zone */
		FETCH_STREAM, /* keeps a copy of the stream's last unit, which stays on its zone */
		/* reads a unit of an area with guard pages into memory, even beyond the budget */
		FETCH_GUARDED,
		FETCH_RECORD, /* reads some units of the record; addr means nothing (active.c) */
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
	unsigned int fetching; /* workers that fetch, for which no thread waits */
	unsigned int idle; /* threads that wait for work */
	bool led; /* a thread reads events */
	bool end;
};

#define AHEAD_DEPTH 10U /* tenths */
/* How many units each fault fetches ahead: more while the guesses prove right. */
struct ahead_depth {
	unsigned int tenths, max_tenths; /* in tenths of a unit */
	unsigned int right, wrong; /* tenths that a right guess adds, and a wrong one subtracts */
	unsigned int tries;
};
/* What is fetched ahead. The lock also guards the chains of all processes. */
struct ahead {
	pthread_mutex_t lock;
	struct ahead_depth chain, stream;
	struct guesses guesses;
};

struct spare;
struct share;

#define LATENCIES 1024U

/* How far the record can be trusted (record.c). */
#define RECORD_GATES 2U
struct record_gate {
	/* since the last result: units left out on purpose, and those of them that were asked
	 * for */
	uint32_t left, missed;
	uint32_t right; /* per cent of the units left out that were asked for */
};

/* What hibernation and activations need that a successor does without (the rest: struct
 * shared_hiber). */
struct hiber {
	pthread_mutex_t lock; /* guards `roused` */
	pthread_cond_t more;
	bool roused, made;
	pthread_mutex_t record;
	uint32_t *find; /* a hash table of the record's units */
	uint32_t turns; /* activations that have ended; like `gate` guarded by `record` */
	struct record_gate gate[RECORD_GATES];
	/* active.c: an activation is under way or has brought its units back */
	_Atomic bool active;
	_Atomic uint64_t touch_ns; /* when a unit was last touched */
	_Atomic uint32_t burst; /* touches in a row without a pause */
	/* range of the record that is read ahead: the next entry, and the end */
	_Atomic uint32_t next, until;
	_Atomic uint32_t reading; /* threads that read the record ahead */
	_Atomic uint64_t activations; /* activations that began without a hibernation */
	/* at the last look at activity: its time, and units read until then */
	uint64_t looked_ns, read_units;
	/* while it rests: the length of this window, and touches in it */
	_Atomic uint32_t window_ms, touched;
	_Atomic uint32_t rest_ms; /* now_ms() when it began to rest */
};

struct zns_mem {
	struct shared *sh;
	int sh_fd;
	pid_t pid; /* of this process */
	struct zns_mem_store store;
	pthread_mutex_t lock;
	struct proc *proc[PROCS_MAX];
	_Atomic uint32_t births; /* processes that have joined so far */
	int birth[2]; /* birth.c: the two ends of the socket, to write and to read */
	int self; /* hold.c: our own pidfd */
	pid_t holder;
	int relieved; /* hold.c: a pidfd of the dead pager's holder; -1: there is none */
	/* unkept.c: a pidfd of the keeper, which has copies of our descriptors; -1: not known */
	_Atomic int keeper;
	void *hold_stack;
	/* processes whose descriptors are on their way to the keeper */
	struct proc *handed[PROCS_MAX];
	unsigned int nr_handed;
	/* number of the last fork whose child is in the list; guarded by `lock` */
	uint64_t forks_done;
	struct proc *dead; /* processes without references, which the reader frees */
	/* leave.c: children without a slot, the oldest first; guarded by `lock` */
	struct proc *waiting;
	pthread_cond_t leavers; /* signalled when there may be more to do for `leaver` */
	pthread_t leaver;
	_Atomic bool leading;
	_Atomic bool crowded;
	struct queue queue;
	struct ahead ahead;
	struct spare *spare;
	struct share *_Atomic share; /* NULL: the budget is fixed */
	_Atomic uint64_t stall_ns; /* time that threads have waited for zones */
	_Atomic int64_t room; /* bytes that may still be fetched before the evictor looks again */
	int epoll, wake, changes; /* wake: eventfd for the reader */
	pthread_t server[SERVERS], evictor;
	unsigned int nr_servers;
	bool evicting;
	_Atomic bool end, no_evict;
	/* set by a detach: a unit that cannot be read is an error, and is not given up */
	_Atomic bool keep_unreadable;
	_Atomic bool sealed; /* a checkpoint is being made: no eviction */
	_Atomic bool evict_idle; /* the evictor holds no lock and no unit */
	_Atomic uint32_t latency_ns[LATENCIES], latencies;
	_Atomic uint64_t stop_ns; /* longest stop of a thread */
	_Atomic uint64_t stops, stopped_ns; /* over all threads of the processes */
	/* bytes left below the cgroup's limit, and when that was read */
	_Atomic uint64_t below, below_ns;
	/* bytes at the last look at all areas */
	uint64_t locked, shared, file, special;
	char warning[256], missing[256];
	pthread_mutex_t text; /* guards warning, missing and the `why` of processes */
	bool moves; /* pages leave a process by UFFDIO_MOVE */
	uint8_t *bufs; /* BATCH units; the evictor's */
	uint32_t age_ms; /* units used within this time are not evicted */
	struct heat heat;
	uint64_t heat_ns, resident; /* time of the last look at ages, and what was resident then */
	bool heat_short; /* the last look did not find enough that is old */
	long tick_ms;
	/* messages: some came since the last look; slow: the evictor's next look is far off */
	_Atomic bool messages, slow;
	uint64_t pause_until_ns;
	/* until then nothing can be evicted under budget dry_dram */
	uint64_t dry_until_ns, dry_dram;
	uint64_t clean_after_ns; /* no zone is cleaned before that */
	struct hiber hiber;
};

/* --- table.c: units --- */
struct unit *unit_at(struct proc *p, uint64_t addr);
/* The first unit at or above @addr whose page of the table exists, or @end. Looking at other
 * units would create their pages. */
uint64_t table_next(const struct proc *p, uint64_t addr, uint64_t end);
/* the same for the unit behind @addr */
uint64_t table_step(const struct proc *p, uint64_t addr, uint64_t end);
struct unit *stray_at(struct proc *p, uint64_t addr); /* NULL: no stray has that page */
struct unit *stray_nr(struct proc *p, uint32_t i);
bool stray_near(struct proc *p, uint64_t start, uint64_t end);
struct unit *stray_new(struct proc *p, uint64_t addr); /* NULL: there is no room for another */
/* The unit's place and what it is checked with. @word: a value of u->word that the caller has
 * read. */
struct zns_pages_ref unit_ref(struct proc *p, const struct unit *u, uint64_t word);
/* notes everything of @ref except the place */
void unit_note(struct proc *p, struct unit *u, const struct zns_pages_ref *ref);
/* for states without a place */
bool unit_move(struct unit *u, enum unit_state from, enum unit_state to);
/* From CLEAN to @to: gives up the place. The pages stay protected, so the next write costs one
 * more fault. */
bool unit_unkeep(struct proc *p, struct unit *u, enum unit_state to);
/*
 * Marks a unit that goes to its zone with a marker of write protection in the page table for each
 * of its pages (u->pages). The kernel keeps a marker until the page comes back or is removed, and
 * even through MADV_FREE. It reports all removals except those by guard pages, so a missing marker
 * shows those.
 */
void unit_set_marked(const struct proc *p, const struct unit *u, bool marked);
bool unit_is_marked(const struct proc *p, const struct unit *u);
void unit_stamp(struct unit *u);
/* Is it in memory, and was it used or read back within the last @ms? */
bool unit_came_lately(const struct unit *u, uint32_t ms);
uint32_t now_ms(void);
/* The pages, as bits, of the unit at @base that lie in the range. */
uint32_t pages_of(uint64_t base, uint64_t start, uint64_t end);
/* Takes the next run of pages out of @pages. False: there is none. */
bool next_run(uint32_t *pages, uint64_t base, struct range *r);
int table_make(int *fd);
int table_map(struct proc *p);
void table_unmap(struct proc *p);
/* Calls @each for all units that may be in use, including strays. */
int table_each(struct proc *p,
	       int (*each)(struct proc *p, struct unit *u, uint64_t base, void *arg), void *arg);

/* --- uffd.c: one ioctl each; 0 or -errno. -EAGAIN: an event must be read first --- */
int mem_uffd_begin(int uffd);
int mem_uffd_register(int uffd, uint64_t start, uint64_t end);
int mem_uffd_unregister(int uffd, uint64_t start, uint64_t end);
int mem_uffd_protect(int uffd, uint64_t start, uint64_t end, bool on);
/* *@done, here and below: bytes that were done, also after an error */
int mem_uffd_copy(int uffd, uint64_t to, const void *from, uint64_t len, bool protect,
		  uint64_t *done);
/* Is all of it, at most MEM_HAS_MAX bytes, in one area that is registered? -ENOENT: it is not.
 * Nothing is changed. */
#define MEM_HAS_MAX MIB(4)
int mem_uffd_has(int uffd, uint64_t start, uint64_t end);
int mem_uffd_zero(int uffd, uint64_t start, uint64_t end, uint64_t *done);
int mem_uffd_poison(int uffd, uint64_t start, uint64_t end);
void mem_uffd_wake(int uffd, uint64_t start, uint64_t end);
void mem_uffd_wake_all(int uffd);
bool mem_uffd_dead(int uffd); /* its memory is gone */
/* Is the process in a call that maps, moves, removes or forks? True until its thread runs on
 * after we have read that call's event. */
bool mem_uffd_changes(int uffd);

/* --- attach.c --- */
/* The process creates a userfaultfd for itself, in a stop of its threads; we get a copy. */
int proc_equip(struct proc *p, struct zns_err *err);

/* --- proc.c --- */
/* belongs to no list yet */
struct proc *proc_new(struct zns_mem *m, pid_t pid, struct zns_err *err);
int proc_open(struct proc *p, struct zns_err *err); /* opens pidfd, maps and pagemap */
int proc_add(struct zns_mem *m, struct proc *p); /* -ENOSPC: the context has no slot left */
bool proc_place(struct zns_mem *m); /* does the context have a slot left? */
struct proc *proc_get(struct proc *p);
void proc_put(struct proc *p);
/* The keeper has the handed descriptors, or the hand-over was given up. */
void procs_arrived(struct zns_mem *m);
/* Fills @list with all processes of the context, and takes a reference of each. */
void procs(struct zns_mem *m, struct proc *list[PROCS_MAX], unsigned int *nr);
void proc_forget(struct proc *p); /* drops its units and takes it off the list */
/* Forgets processes whose memory has ended. @but: the one whose lock the caller has. */
void procs_sweep(struct zns_mem *m, const struct proc *but);
/* Frees dead processes, and calls @forget for each before. */
void procs_bury(struct zns_mem *m, void (*forget)(struct proc *p));
bool proc_ended(const struct proc *p);
uint64_t proc_resident(const struct proc *p); /* bytes */
void proc_why(struct proc *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void changed(struct zns_mem *m);
void mem_warn(struct zns_mem *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void reader_watch(struct zns_mem *m, struct proc *p);
void reader_unwatch(struct zns_mem *m, struct proc *p);

/* --- queue.c: any thread --- */
void fault_push(struct queue *q, struct proc *p, uint64_t addr, enum fault_kind kind);
enum task { ENDED, READ_EVENTS, ANSWER };
/* Waits for the caller's next task. *@f is set for ANSWER. */
enum task queue_next(struct queue *q, struct fault *f);
void queue_answered(struct queue *q, const struct fault *f); /* @f was answered */
/* For the thread that reads events. True: another thread reads from now on, and the caller may
 * answer a fault. */
bool reader_hand_on(struct queue *q);

/* --- serve.c --- */
/* Starts threads until there are @nr. One of them at a time reads events and answers nothing. */
int servers_start(struct zns_mem *m, unsigned int nr);
void servers_end(struct zns_mem *m);

/* --- fault.c --- */
/* @buf: UNIT bytes. True: a unit that a thread waited for was read, or a copy of it was there. */
bool fault_answer(struct fault *f, uint8_t *buf);
/* Calls @once under the lock until it returns anything but -EAGAIN. */
int fault_repeat(struct proc *p, int (*once)(struct proc *p, void *arg), void *arg);
/* For the owner of a BUSY unit: lifts the protection and makes the unit RES. */
void unit_release(struct proc *p, struct unit *u, uint64_t base);
/* Reads back a unit or stray that is on a zone; with @keep into CLEAN if possible. The page that
 * @f (may be NULL) waits for comes first. 0: the unit is in memory, or another thread has it. */
int unit_load(struct proc *p, struct unit *u, uint64_t base, uint8_t *buf, bool keep,
	      struct fault *f);

/* --- ahead.c --- */
void ahead_begin(struct ahead *a);
void ahead_fault(struct proc *p, uint64_t addr);
bool ahead_room(struct zns_mem *m); /* is there budget for one more unit? True: it is taken */
void ahead_fetch(struct proc *p, uint64_t base, uint8_t *buf, enum fault_kind kind);

/* --- stream.c: memory that is used in the order of its addresses --- */
#define STREAM_MAX 32U /* most units that a fault fetches */
/* How many units right below @block (STREAM_MAX at most) came into memory a moment ago? */
unsigned int stream_before(struct proc *p, uint32_t block);
/* Puts the units right above @block that are on zones into @next, @max at most (not above
 * STREAM_MAX). Returns how many. */
unsigned int stream_next(struct proc *p, uint32_t block, unsigned int max,
			 uint32_t next[STREAM_MAX]);

/* --- spare.c: copies of units that are on zones --- */
#define SPARE_MAX 2048U /* copies of each kind */
enum spare_kind { SPARE_OUT, SPARE_AHEAD, SPARE_KINDS };
int spare_open(struct zns_mem *m);
void spare_close(struct zns_mem *m);
uint64_t spare_bytes(struct zns_mem *m);
void spare_put(struct proc *p, const struct unit *u, struct zns_pages_ref ref, const void *buf,
	       enum spare_kind kind);
/* Copies the unit to @buf, and forgets the copy. False: there was none. */
bool spare_take(struct proc *p, const struct unit *u, struct zns_pages_ref ref, void *buf);
bool spare_has(struct proc *p, const struct unit *u, struct zns_pages_ref ref,
	       enum spare_kind kind);
/* --- ceiling.c --- */
#define CEILING_NONE (1ULL << 60)
/* Bytes left below the limits of the process's cgroup and of those above it, less a margin. */
uint64_t ceiling_room(pid_t pid);
void ceiling_wait(struct proc *p); /* call it before memory is charged to the process */

/* --- prune.c --- */
/* Takes units that the child does not have out of its table, before its first eviction. @as: a
 * process with its files in /proc. */
void fork_prune(struct proc *child, const struct proc *as);

/* --- events.c --- */
/* With `ev` for writing: the pages in @mask are no longer what the place has. */
void unit_forget(struct proc *p, struct unit *u, uint32_t mask);
/* Reads events until the context ends (false), or until the caller has to answer @f (true). */
bool reader_lead(struct zns_mem *m, struct fault *f);
/* For a successor, before it reads events: repeats what the dead pager had read of removals and
 * moves. Must come before the store counts units. */
void inbox_replay(struct zns_mem *m);

/* Starts to serve a child that is in the list and has all that its parent had. */
void child_serve(struct proc *child);

/* --- leave.c: children for which the context has no slot --- */
int leave_start(struct zns_mem *m);
void leave_end(struct zns_mem *m);
void leave_free(struct zns_mem *m);
/* Serves the child until all that it has on zones is back; then the child leaves the context. */
void leave_begin(struct proc *child);
void leave_wait(struct zns_mem *m, struct proc *child); /* the child has no slot yet */
/* May the next forks find no slot? Then events of children that leave are read first, and no
 * others. */
bool leave_crowded(const struct zns_mem *m);
bool leave_waiting(struct zns_mem *m); /* is a child waiting for a slot? */

/* --- areas.c --- */
int mem_places_read(struct proc *p, struct places *l);
/* The area that has @addr now. An older kernel cannot tell, and leaves *@a as it was. -ESTALE,
 * -ENOENT: there is no such area that may be evicted. */
int place_now(const struct proc *p, uint64_t addr, struct place *a);
/* The same on any kernel: an older one reads all areas into @all, if they are not there yet. */
int place_read(const struct proc *p, uint64_t addr, struct areas *all, struct place *a);
void mem_places_free(struct places *l);
/* Does any userfaultfd, ours or another, watch a part of its memory? */
bool mem_places_watched(const struct proc *p);
/* Why its memory must not be dropped now: NULL, or "pinned memory" and the like. */
const char *mem_places_pinned(struct proc *p, const struct places *l);

/* --- guards.c --- */
/* Takes areas with guard pages off the list, so that they stay in memory. */
void guards_leave(struct proc *p, struct places *l);
void guards_bring(struct proc *p); /* brings some units of these areas back; called once a turn */
void guards_fetch(struct proc *p, uint64_t base, uint8_t *buf); /* FETCH_GUARDED */

/* --- pins.c --- */
/* A descriptor by which the kernel may have pinned its pages: "vfio" and the like, or NULL. */
const char *pins_of(struct proc *p);

/* --- same.c --- */
/* Is the PID's memory still the memory that was attached? */
bool same_memory(const struct proc *p);

/* --- present.c --- */
/* Bits of a page's entry in /proc/PID/pagemap. */
#define PRESENT (1ULL << 63)
#define SWAPPED (1ULL << 62) /* also set for markers of the kernel, such as that of a guard page */
#define GUARD (1ULL << 58) /* Linux 6.15 */
#define PROTECTED (1ULL << 57)
#define EXCLUSIVE (1ULL << 56) /* no other process has the page; never set for a swapped page */
#define MARKER (SWAPPED | PROTECTED) /* a marker of write protection, or a protected page in swap */
/* The entries of @nr pages, the first of which is at @addr. */
int present_entries(int pagemap, uint64_t addr, uint64_t nr, uint64_t *entry);
/* Calls @found for the present pages in ascending order, as scan_range() does. */
int present_scan(const struct proc *p, uint64_t start, uint64_t end, scan_found found, void *arg);
/* What the page table says of the pages of a unit that is on its zone, as bits. */
struct unit_pages {
	/* swapped pages or guard pages: the program has replaced what is on the zone */
	uint32_t other;
	uint32_t removed; /* removed by guard pages that are gone again */
};
/*
 * To be called under `ev`. -EAGAIN: an event is unread, so it is not known what was removed. If the
 * page table cannot be read, both sets are empty.
 */
int present_look(const struct proc *p, int pagemap, const struct unit *u, uint64_t base,
		 struct unit_pages *is);
bool present_is_guard(const struct proc *p, uint64_t addr);
/* Does each of these pages of the unit at @base have a marker of write protection? */
bool present_is_marked(const struct proc *p, uint64_t base, uint32_t pages);
/* A page in swap that is protected looks like a hole with a marker, and counts as one. */
bool present_is_hole(const struct proc *p, uint64_t addr);

/* --- stop.c: all threads of a process stand still while one makes calls for us --- */
struct zns_guest;
/* Makes the calls that let pages go. @own: memory that the calling thread needs, which must
 * stay. If it fails with *@begun false, nothing was done. */
typedef int (*stop_body)(void *arg, struct zns_guest *guest, const struct range *own, bool *begun);
/* Stops the process and calls @body, in a thread of ours; @arg must stay valid until stop_end().
 * NULL: this process cannot be stopped. */
struct stop *stop_begin(struct proc *p, stop_body body, void *arg);
/* -EINPROGRESS: it has not ended after @limit_ms, ask again. Else @s is freed. An -errno with
 * *@begun false: it failed before @body, and *@err says why. */
int stop_end(struct stop *s, unsigned int limit_ms, bool *begun, struct zns_err *err);
/* For a stop_body: has its pager died? A dead pager may hold a lock for ever. */
bool stop_orphaned(const struct proc *p);
bool stop_unread(const struct proc *p); /* and will no other process read its events? */
/* Waits until a dead pager's stop of @p has ended. */
void stop_await_end(struct proc *p, uint64_t since_ns);

/* --- dropping.c: registers areas before units of them are dropped --- */
/* Registers @area. -EAGAIN: not possible now; other errors as of mem_uffd_register(). */
int dropping_from(struct proc *p, struct place area);
/* Must the unit at @base stay in memory, because a stopping thread needs it? */
bool dropping_never(const struct proc *p, uint64_t base);

/* --- known.c: which areas are registered; call with `ev` for writing --- */
void known_add(struct proc *p, struct place area);
bool known_exactly(const struct proc *p, struct place area);
bool known_within(const struct proc *p, uint64_t start, uint64_t end); /* any of it? */
/* Forgets areas in the range: they may have moved, and other memory may be there by now. */
void known_gone(struct proc *p, uint64_t start, uint64_t end);
void known_moved(struct proc *p, uint64_t from, uint64_t to, uint64_t len);
void known_inherit(struct proc *child, const struct proc *p); /* the child is new */

/* --- order.c: which event came first; for the reader, with `ev` --- */
void order_look(struct proc *p); /* call it before reading events */
/* How many of @p's last moves happened after the fork of @child. Undo them in the child's table. */
uint32_t order_fork(const struct proc *child, const struct proc *p);
const struct move *order_move(const struct proc *p, uint32_t n); /* @n 1: the last move */
void order_moved(struct proc *p, uint64_t from, uint64_t to, uint64_t len);
/* [start, end) was unmapped. Calls @gone, in ascending order, for the parts where no other
 * memory has arrived since. */
void order_unmapped(struct proc *p, uint64_t start, uint64_t end,
		    void (*gone)(struct proc *p, uint64_t start, uint64_t end, void *arg),
		    void *arg);
/* The number of the message in @msg that must be handled next; handled ones have event 0. @nr:
 * none is left. */
unsigned int order_next(const struct proc *p, const struct uffd_msg *msg, unsigned int nr);
/* Can the messages not tell which of two memories is where? */
bool order_is_unsure(const struct proc *p, const struct uffd_msg *msg, unsigned int nr);
/* Did an event happen before one of these that was not read yet? Call it after each read: the
 * two functions above use its result, or that of order_wait(). */
bool order_is_missing(struct proc *p, const struct uffd_msg *msg, unsigned int nr);
/* Waits until there may be more to read. False: there is nothing. */
bool order_wait(struct proc *p, uint64_t since_ns);

/* --- evict.c --- */
/* Evicts units of one process. *@nr_out: how many left it. -ESRCH: the process has ended; any
 * other -errno is of the store or the kernel. */
int evict(struct proc *p, struct victim *v, unsigned int nr, const struct place *area,
	  unsigned int *nr_out, struct zns_err *err);
/* Continues an eviction whose stop had not ended. -EINPROGRESS: it still has not. */
#define REST_MS 2000 /* long enough for a process that is running */
int evict_rest(struct proc *p, unsigned int limit_ms);
/* Of all: what has not gone yet is neither here nor there. -EBUSY: it does not go. */
int evict_rests(struct zns_mem *m, struct zns_err *err);
void evict_forget(struct proc *p); /* the same, when it has ended */

/* --- clean.c --- */
bool clean_some(struct zns_mem *m);

/* --- budget.c --- */
void *evictor_run(void *m);
/* A message has come: the evictor should look soon. Cheap while it is awake. */
void evictor_rouse(struct zns_mem *m);
/* Puts the ages of all that is resident and may be evicted into m->heat. */
void look_at_ages(struct zns_mem *m, struct proc *const *list, unsigned int nr);

/* --- share.c --- */
void share_turn(struct zns_mem *m);
void share_close(struct zns_mem *m);

/* --- rules.h: what tests can switch off --- */
#include "rules.h"

#endif
