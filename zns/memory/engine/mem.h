/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_MEM_H
#define MEM_MEM_H
/*
 * The inside of a memory context.
 *
 * Locks. `ev` of a process is taken for writing by the one thread that reads its events, from
 * before it reads until the tables say what was read. Everybody else takes it for reading around
 * "look at the unit, call the kernel, note it in the unit". The kernel refuses such calls with
 * EAGAIN while an event has not been read; then the lock is let go before the next try. So a call
 * that succeeds was right for the tables as they are. Nothing that may wait for an event
 * (process_vm_readv, a stop, the store) is called with it. `lock` of the context guards the list
 * of processes alone.
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

#define SERVERS 4U /* threads that read events and answer faults */
#define AGAIN_NS 2000000000ULL /* between two tries to stop a process that does not stop */

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
	uint64_t start, end; /* the part of the unit that is in the area */
	uint64_t base;
	uint32_t mask; /* pages in it that are present */
	bool out; /* given up */
	uint64_t kept; /* its word, if it is CLEAN: no write */
	uint64_t page[UNIT_PAGES]; /* hashes of what was copied */
	uint32_t left; /* pages that did not go */
};

/* Units that are on their places, and their pages going. */
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
	struct unit *u; /* of the whole address space; then the strays */
	struct unit_check *checks; /* of each of these */
	_Atomic uint64_t *marks; /* a bit for each of these: unit_set_marked() */
	_Atomic uint32_t nr_strays; /* slots that may be in use */
	pthread_rwlock_t ev;
	_Atomic int refs;
	_Atomic bool gone; /* its memory is not there any more */
	struct proc *next_dead, *next_waiting;
	_Atomic bool evicts;
	uint64_t fork_nr; /* as shared_proc.birth */
	bool leaves; /* as shared_proc.leaves */
	bool uncounted; /* a child that leaves, whose units the store has not counted yet */
	struct places known; /* known.c; under `ev` */
	struct places
		guarded; /* guards.c: areas with guard pages, as of the last look; the evictor's */
	uint64_t guards_ns, guards_at; /* of the last look; what comes back next */
	_Atomic uint32_t guards_coming; /* units that are queued for it */
	struct moves *moves; /* the last ones; under `ev` */
	bool has_pending_moves; /* at least one of them may still be owed its second event;
				 * under `ev` */
	bool changes; /* the process changed its memory when order_is_missing() was asked last;
		       * under `ev` */
	struct range own; /* what a stopped thread needed of its memory, the last time */
	struct going *rest; /* an eviction that the process does not finish */
	uint64_t again_ns; /* when a stop is tried again; 0: it is not put off */
	const char *pins; /* pins.c: of the last look, which holds for so long */
	uint64_t pins_until_ns;
	char why[160]; /* it does not */
	uint64_t resident, evicted; /* bytes, as seen last */
	uint64_t hand; /* address that eviction looks at next */
	uint64_t cpu_ticks; /* as seen last; 0: not yet */
	uint32_t born; /* which of the context's, from 1 */
	struct predict predict;
};

struct fault {
	struct proc *p;
	uint64_t addr;
	enum fault_kind {
		FAULT_MISSING,
		FAULT_FIRST_WRITE, /* missing, and it is going to be written */
		FAULT_WRITE,
		FAULT_LOAD,
		FAULT_STRAY,
		/* nobody waits for these: they go behind all others */
		FETCH, /* a unit of a chain or a stream (ahead.c) */
		FETCH_COPY, /* a copy of the chain's last unit, which stays on its zone */
		FETCH_STREAM, /* a copy of the stream's last unit, which stays on its zone */
		FETCH_GUARDED, /* a unit of an area with guard pages, beyond the budget if need be */
		FETCH_RECORD, /* some units of the record; the address means nothing (active.c) */
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
	unsigned int fetching; /* workers that nobody waits for */
	unsigned int idle; /* threads that wait for something to do */
	bool led; /* one of them reads events */
	bool end;
};

#define AHEAD_DEPTH 10U /* tenths */
/* How many units a fault fetches, and whether that proves right. */
struct ahead_depth {
	unsigned int tenths, max_tenths; /* of a unit */
	unsigned int right, wrong; /* tenths that a right guess adds, and a wrong one takes */
	unsigned int tries;
};
/* What is fetched ahead: the lock is that of all chains, too. */
struct ahead {
	pthread_mutex_t lock;
	struct ahead_depth chain, stream;
	struct guesses guesses;
};

struct spare;
struct share;

#define LATENCIES 1024U

/* Whether the record is right (record.c). */
#define RECORD_GATES 2U
struct record_gate {
	uint32_t left, missed; /* left out, and asked for, since it was measured last */
	uint32_t right; /* per cent */
};

/* What hibernation and activations need beside struct shared_hiber. */
struct hiber {
	pthread_mutex_t lock; /* of `roused` */
	pthread_cond_t more;
	bool roused, made;
	pthread_mutex_t record;
	uint32_t *find; /* a hash table over the record */
	uint32_t turns; /* activations that ended; with `gate`, under the lock `record` */
	struct record_gate gate[RECORD_GATES];
	_Atomic bool active; /* active.c: its units are coming back, or are back */
	_Atomic uint64_t touch_ns; /* the last touch */
	_Atomic uint32_t burst; /* how many came in a row */
	_Atomic uint32_t next, until; /* which of the record is read next, and before which it ends
				       */
	_Atomic uint32_t reading; /* threads that do */
	_Atomic uint64_t activations; /* that began without a hibernation */
	uint64_t looked_ns, read_units; /* of the last look at activity */
	_Atomic uint32_t window_ms, touched; /* since then, while it rests */
	_Atomic uint32_t rest_ms; /* now_ms() when it began to rest */
};

struct zns_mem {
	struct shared *sh;
	int sh_fd;
	pid_t pid; /* ours */
	struct zns_mem_store store;
	pthread_mutex_t lock;
	struct proc *proc[PROCS_MAX];
	_Atomic uint32_t births; /* processes that came so far */
	int birth[2]; /* birth.c: in, out */
	int self; /* hold.c: our own pidfd */
	pid_t holder;
	int relieved; /* hold.c: a pidfd of the dead pager's; -1: none */
	_Atomic int keeper; /* unkept.c: a pidfd of who has copies of our descriptors; -1: not told
			     */
	void *hold_stack;
	struct proc *handed[PROCS_MAX]; /* whose descriptors are on their way to the keeper */
	unsigned int nr_handed;
	uint64_t forks_done; /* the last one whose child is in the list; under the lock */
	struct proc *dead; /* without references; the reader frees them */
	struct proc *waiting; /* leave.c: children without a slot, the oldest first; under the lock
			       */
	pthread_cond_t leavers; /* there may be more */
	pthread_t leaver;
	_Atomic bool leading;
	_Atomic bool crowded;
	struct queue queue;
	struct ahead ahead;
	struct spare *spare;
	struct share *_Atomic share; /* NULL: the budget is fixed */
	_Atomic uint64_t stall_ns; /* that threads waited for zones */
	_Atomic int64_t room; /* bytes that may be fetched until the evictor looks again */
	int epoll, wake, changes; /* wake: eventfd for the reader */
	pthread_t server[SERVERS], evictor;
	unsigned int nr_servers;
	bool evicting;
	_Atomic bool end, no_evict;
	_Atomic bool keep_unreadable; /* a detach: its error is told, and nothing is given up */
	_Atomic bool sealed; /* a checkpoint is being made: no eviction */
	_Atomic bool evict_idle; /* the evictor holds nothing */
	_Atomic uint32_t latency_ns[LATENCIES], latencies;
	_Atomic uint64_t stop_ns; /* longest stop of a thread */
	_Atomic uint64_t stops, stopped_ns; /* of all threads of a process */
	_Atomic uint64_t below, below_ns; /* bytes below the cgroup's limit, and when that was */
	/* of the last look at all areas, bytes */
	uint64_t locked, shared, file, special;
	char warning[256], missing[256];
	pthread_mutex_t text; /* for these two and `why` */
	bool moves; /* pages go by UFFDIO_MOVE */
	uint8_t *bufs; /* BATCH units, of the evictor */
	uint32_t age_ms; /* what was used since then is not evicted */
	struct heat heat;
	uint64_t heat_ns, resident; /* of the last look */
	bool heat_short; /* it did not give enough */
	long tick_ms;
	_Atomic bool messages, slow; /* since the last look; the evictor's next one is far */
	uint64_t pause_until_ns;
	uint64_t dry_until_ns, dry_dram; /* nothing can be evicted, with this budget */
	uint64_t clean_after_ns; /* nothing is cleaned before */
	struct hiber hiber;
};

/* --- table.c: units --- */
struct unit *unit_at(struct proc *p, uint64_t addr);
/* The first unit at or above the one at @addr whose page of the table exists, or @end. To look at
 * others makes their pages. */
uint64_t table_next(const struct proc *p, uint64_t addr, uint64_t end);
uint64_t table_step(const struct proc *p, uint64_t addr, uint64_t end); /* the next one */
struct unit *stray_at(struct proc *p, uint64_t addr); /* NULL: none has that page */
struct unit *stray_nr(struct proc *p, uint32_t i);
bool stray_near(struct proc *p, uint64_t start, uint64_t end);
struct unit *stray_new(struct proc *p, uint64_t addr); /* NULL: no room */
/* Where it is, by a word of it that was read before. */
struct zns_pages_ref unit_ref(struct proc *p, const struct unit *u, uint64_t word);
void unit_note(struct proc *p, struct unit *u, const struct zns_pages_ref *ref); /* but the place */
bool unit_move(struct unit *u, enum unit_state from, enum unit_state to); /* without a place */
/* From CLEAN, and its place is given up. Its pages stay protected, which costs a message. */
bool unit_unkeep(struct proc *p, struct unit *u, enum unit_state to);
/*
 * A unit on its zone is marked if each page that is to come from there (u->pages) had a marker of
 * write protection in the page table when it went out. The kernel keeps a marker until the page
 * comes back or is removed, and beyond MADV_FREE. It reports all removals but those by guard pages.
 */
void unit_set_marked(const struct proc *p, const struct unit *u, bool marked);
bool unit_is_marked(const struct proc *p, const struct unit *u);
void unit_stamp(struct unit *u);
/* It is in memory, and was used or read back within the last @ms. */
bool unit_came_lately(const struct unit *u, uint32_t ms);
uint32_t now_ms(void);
/* Pages of the unit beginning at @base that lie in the range, as bits. */
uint32_t pages_of(uint64_t base, uint64_t start, uint64_t end);
/* The next run of pages in @pages, which is taken out of them; false: there is none. */
bool next_run(uint32_t *pages, uint64_t base, struct range *r);
int table_make(int *fd);
int table_map(struct proc *p);
void table_unmap(struct proc *p);
/* Calls @each for all units that may be in use, strays too. */
int table_each(struct proc *p,
	       int (*each)(struct proc *p, struct unit *u, uint64_t base, void *arg), void *arg);

/* --- uffd.c: one call each; 0 or -errno. -EAGAIN: an event waits to be read --- */
int mem_uffd_begin(int uffd);
int mem_uffd_register(int uffd, uint64_t start, uint64_t end);
int mem_uffd_unregister(int uffd, uint64_t start, uint64_t end);
int mem_uffd_protect(int uffd, uint64_t start, uint64_t end, bool on);
/* *@done, here and below: bytes; with an error, too */
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
/* Does the process map, move, remove or fork right now? Until its thread has run on after we read
 * of it. */
bool mem_uffd_changes(int uffd);

/* --- attach.c --- */
/* It makes itself a userfaultfd, in a stop, which is ours. */
int proc_equip(struct proc *p, struct zns_err *err);

/* --- proc.c --- */
struct proc *proc_new(struct zns_mem *m, pid_t pid, struct zns_err *err); /* in no list */
int proc_open(struct proc *p, struct zns_err *err); /* pidfd, maps, pagemap */
int proc_add(struct zns_mem *m, struct proc *p); /* -ENOSPC: there is no place */
bool proc_place(struct zns_mem *m); /* is there one? */
struct proc *proc_get(struct proc *p);
void proc_put(struct proc *p);
/* What is handed over has arrived, or is not wanted any more. */
void procs_arrived(struct zns_mem *m);
/* Processes with a reference each; *@nr of them. */
void procs(struct zns_mem *m, struct proc *list[PROCS_MAX], unsigned int *nr);
void proc_forget(struct proc *p); /* its units are dropped, and it leaves the list */
/* Forgets those whose memory has ended. @but: the caller has its lock. */
void procs_sweep(struct zns_mem *m, const struct proc *but);
/* Frees the dead; before each one @forget is called. */
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
/* Waits for what the caller is to do; *@f for ANSWER. */
enum task queue_next(struct queue *q, struct fault *f);
void queue_answered(struct queue *q, const struct fault *f); /* it is answered */
/* For who reads events. True: another thread does it from now on, and the caller may answer. */
bool reader_hand_on(struct queue *q);

/* --- serve.c --- */
/* Until there are @nr. One alone reads events and answers nothing. */
int servers_start(struct zns_mem *m, unsigned int nr);
void servers_end(struct zns_mem *m);

/* --- fault.c --- */
/* @buf: UNIT bytes. True: a unit was read for who waited for it, or a copy of it was there. */
bool fault_answer(struct fault *f, uint8_t *buf);
/* Calls @once under the lock until it returns anything but -EAGAIN. */
int fault_repeat(struct proc *p, int (*once)(struct proc *p, void *arg), void *arg);
/* For who owns a unit in BUSY: lift its protection, and make it RES. */
void unit_release(struct proc *p, struct unit *u, uint64_t base);
/* Read back a unit or stray that is on a zone, into CLEAN (@keep) if that can be; first of all the
 * page that @f waits for, if not NULL. 0: it is in memory, or was somebody else's. */
int unit_load(struct proc *p, struct unit *u, uint64_t base, uint8_t *buf, bool keep,
	      struct fault *f);

/* --- ahead.c --- */
void ahead_begin(struct ahead *a);
void ahead_fault(struct proc *p, uint64_t addr);
bool ahead_room(struct zns_mem *m); /* the budget has room for one more, and that is used */
void ahead_fetch(struct proc *p, uint64_t base, uint8_t *buf, enum fault_kind kind);

/* --- stream.c: what is used in the order of its addresses --- */
#define STREAM_MAX 32U /* units that are fetched at a fault */
/* How many units right below @block, STREAM_MAX at most, came into memory a moment ago. */
unsigned int stream_before(struct proc *p, uint32_t block);
/* Those right above it that are on zones; @max at most, which is at most STREAM_MAX. Returns how
 * many. */
unsigned int stream_next(struct proc *p, uint32_t block, unsigned int max,
			 uint32_t next[STREAM_MAX]);

/* --- spare.c: copies of units that are on zones --- */
#define SPARE_MAX 2048U /* of each kind */
enum spare_kind { SPARE_OUT, SPARE_AHEAD, SPARE_KINDS };
int spare_open(struct zns_mem *m);
void spare_close(struct zns_mem *m);
uint64_t spare_bytes(struct zns_mem *m);
void spare_put(struct proc *p, const struct unit *u, struct zns_pages_ref ref, const void *buf,
	       enum spare_kind kind);
/* The copy goes to @buf, and is no longer kept. */
bool spare_take(struct proc *p, const struct unit *u, struct zns_pages_ref ref, void *buf);
bool spare_has(struct proc *p, const struct unit *u, struct zns_pages_ref ref,
	       enum spare_kind kind);
/* --- ceiling.c --- */
#define CEILING_NONE (1ULL << 60)
/* Bytes left below the limits of its cgroup and of those above it, less a margin. */
uint64_t ceiling_room(pid_t pid);
void ceiling_wait(struct proc *p); /* before memory is charged to it */

/* --- prune.c --- */
/* Before it is evicted for the first time. @as: its files in /proc. */
void fork_prune(struct proc *child, const struct proc *as);

/* --- events.c --- */
/* With the lock for writing: these pages are not what the place has. */
void unit_forget(struct proc *p, struct unit *u, uint32_t mask);
/* Reads events until the context ends (false), or @f is to be answered by the caller. */
bool reader_lead(struct zns_mem *m, struct fault *f);
/* Of a successor, before it reads: what the dead one had read of a process's removals and moves.
 * Nothing is counted in the store yet. */
void inbox_replay(struct zns_mem *m);

/* The child is in the list, and has all that its parent had. */
void child_serve(struct proc *child);

/* --- leave.c: children for which there is no place --- */
int leave_start(struct zns_mem *m);
void leave_end(struct zns_mem *m);
void leave_free(struct zns_mem *m);
/* It is served, all that it has on zones is read back, and then it is none of ours any more. */
void leave_begin(struct proc *child);
void leave_wait(struct zns_mem *m, struct proc *child); /* it has no slot yet */
/* The next forks may find no slot: nobody but children that leave is listened to. */
bool leave_crowded(const struct zns_mem *m);
bool leave_waiting(struct zns_mem *m); /* somebody has no slot */

/* --- areas.c --- */
int mem_places_read(struct proc *p, struct places *l);
/* The area that has @addr now; an older kernel leaves *@a as it was. -ESTALE, -ENOENT: it is none
 * that may be evicted. */
int place_now(const struct proc *p, uint64_t addr, struct place *a);
/* The same, on any kernel: an older one has all areas listed, in @all if they are not there yet. */
int place_read(const struct proc *p, uint64_t addr, struct areas *all, struct place *a);
void mem_places_free(struct places *l);
/* Some of its memory has a userfaultfd, whoever's. */
bool mem_places_watched(const struct proc *p);
/* Why its memory must not be dropped now: NULL, or "pinned memory" and the like. */
const char *mem_places_pinned(struct proc *p, const struct places *l);

/* --- guards.c --- */
/* Areas with guard pages leave the list, and stay in memory. */
void guards_leave(struct proc *p, struct places *l);
void guards_bring(struct proc *p); /* some of what is out of these areas, once a turn */
void guards_fetch(struct proc *p, uint64_t base, uint8_t *buf); /* FETCH_GUARDED */

/* --- pins.c --- */
/* A descriptor by which the kernel may have pinned pages of it: "vfio" and the like, or NULL. */
const char *pins_of(struct proc *p);

/* --- same.c --- */
/* The PID has the memory that was extended. */
bool same_memory(const struct proc *p);

/* --- present.c --- */
/* Bits of a page's entry in /proc/PID/pagemap. */
#define PRESENT (1ULL << 63)
#define SWAPPED (1ULL << 62) /* or a marker of the kernel's, such as that of a guard page */
#define GUARD (1ULL << 58) /* Linux 6.15 */
#define PROTECTED (1ULL << 57)
#define EXCLUSIVE (1ULL << 56) /* no other process has it; never set of a swapped one */
#define MARKER (SWAPPED | PROTECTED) /* or a page in swap that was protected */
/* The entries of @nr pages, the first of which is at @addr. */
int present_entries(int pagemap, uint64_t addr, uint64_t nr, uint64_t *entry);
/* Pages that are there, in ascending order, as scan_range() tells them. */
int present_scan(const struct proc *p, uint64_t start, uint64_t end, scan_found found, void *arg);
/* How the page table has the pages of a unit on its zone, as bits. */
struct unit_pages {
	uint32_t other; /* swapped, or guard pages: what was on the zone is not theirs */
	uint32_t removed; /* guard pages took their place, and are gone */
};
/*
 * Under the lock of events. -EAGAIN: an event is unread, so nobody can say what was removed. If the
 * page table cannot be read, no page is in either.
 */
int present_look(const struct proc *p, int pagemap, const struct unit *u, uint64_t base,
		 struct unit_pages *is);
bool present_is_guard(const struct proc *p, uint64_t addr);
/* Does each of these pages of the unit at @base have a marker of write protection? */
bool present_is_marked(const struct proc *p, uint64_t base, uint32_t pages);
/* A page in swap that is protected looks like a hole with a marker, and counts as one. */
bool present_is_hole(const struct proc *p, uint64_t addr);

/* --- stop.c: pages go by calls of a thread of the process, while all of them stand still --- */
struct zns_guest;
/* The calls. No byte of @own may go: the thread needs it. An error before *@begun means that
 * nothing was done. */
typedef int (*stop_body)(void *arg, struct zns_guest *guest, const struct range *own, bool *begun);
/* Calls @body in the stop, in a thread of its own; @arg must last as long. NULL: it cannot. */
struct stop *stop_begin(struct proc *p, stop_body body, void *arg);
/* -EINPROGRESS: after @limit_ms it has not ended, ask again. Else @s is freed; -errno before
 * @body had begun: *@begun is false, and *@err says why. */
int stop_end(struct stop *s, unsigned int limit_ms, bool *begun, struct zns_err *err);
/* For who is called in a stop: its pager is dead, and may have died with a lock. */
bool stop_orphaned(const struct proc *p);
bool stop_unread(const struct proc *p); /* nor will anybody else read its events */
/* Until a dead pager's stop has ended. */
void stop_await_end(struct proc *p, uint64_t since_ns);

/* --- dropping.c: before units go --- */
/* The area is registered, before units of it go. -EAGAIN: not now; else as mem_uffd_register(). */
int dropping_from(struct proc *p, struct place area);
/* The unit at @base stays: who stops would need it. */
bool dropping_never(const struct proc *p, uint64_t base);

/* --- known.c: what is registered; with `ev` for writing --- */
void known_add(struct proc *p, struct place area);
bool known_exactly(const struct proc *p, struct place area);
bool known_within(const struct proc *p, uint64_t start, uint64_t end); /* any of it? */
/* What was known there may be elsewhere by now, and other memory there. */
void known_gone(struct proc *p, uint64_t start, uint64_t end);
void known_moved(struct proc *p, uint64_t from, uint64_t to, uint64_t len);
void known_inherit(struct proc *child, const struct proc *p); /* the child is new */

/* --- order.c: which event came first; for the reader, with `ev` --- */
void order_look(struct proc *p); /* before events are read */
/* How many of @p's last moves a new child has not seen; before these are undone in its table. */
uint32_t order_fork(const struct proc *child, const struct proc *p);
const struct move *order_move(const struct proc *p, uint32_t n); /* 1: the last one */
void order_moved(struct proc *p, uint64_t from, uint64_t to, uint64_t len);
/* [start, end) was unmapped: @gone is called for what is not other memory by now, in order. */
void order_unmapped(struct proc *p, uint64_t start, uint64_t end,
		    void (*gone)(struct proc *p, uint64_t start, uint64_t end, void *arg),
		    void *arg);
/* Of @msg, where done ones have no event: the next one; @nr: none is left. */
unsigned int order_next(const struct proc *p, const struct uffd_msg *msg, unsigned int nr);
/* Nobody can say which of two memories is where. */
bool order_is_unsure(const struct proc *p, const struct uffd_msg *msg, unsigned int nr);
/* Was there an event before one of these that is not among them? To be asked after each receive:
 * the other two go by what it found. */
bool order_is_missing(struct proc *p, const struct uffd_msg *msg, unsigned int nr);
/* Until there may be more to read; false: there is not. */
bool order_wait(const struct proc *p, uint64_t since_ns);

/* --- evict.c --- */
/* *@nr_out: how many went out. -errno: the store's, or the kernel's; -ESRCH: the process's, others
 * may go on. */
int evict(struct proc *p, struct victim *v, unsigned int nr, const struct place *area,
	  unsigned int *nr_out, struct zns_err *err);
/* What the process had no time to drop. -EINPROGRESS: it has none now. */
#define REST_MS 2000 /* enough, if it goes on just now */
int evict_rest(struct proc *p, unsigned int limit_ms);
/* Of all: what has not gone yet is neither here nor there. -EBUSY: it does not go. */
int evict_rests(struct zns_mem *m, struct zns_err *err);
void evict_forget(struct proc *p); /* the same, when it has ended */

/* --- clean.c --- */
bool clean_some(struct zns_mem *m);

/* --- budget.c --- */
void *evictor_run(void *m);
/* There was a message: look soon. Cheap where the evictor does anyway. */
void evictor_rouse(struct zns_mem *m);
/* The ages of all that is resident and may go, into m->heat. */
void look_at_ages(struct zns_mem *m, struct proc *const *list, unsigned int nr);

/* --- share.c --- */
void share_turn(struct zns_mem *m);
void share_close(struct zns_mem *m);

/* --- rules.h: what tests take out --- */
#include "rules.h"

#endif
