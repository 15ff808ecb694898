/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_MEM_H
#define ZNS_MEM_H
/*
 * A memory context: the private anonymous memory of a tree of unmodified processes, kept under a
 * budget of DRAM. Units of 64 KiB that were not used lately are moved to a store, and are read back
 * when they are touched. Documentation/inside/memory-inside.md has the rules. A process can have
 * one context. Functions return 0 or -errno and fill @err.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "zns/err.h"
#include "zns/pages.h"
#include "zns-memory.pb-c.h"

/* The store of a context. The installed program uses zns/pages.h; tests use another one. */
struct zns_mem_store {
	int (*put)(void *arg, const void *const units[], uint32_t n, struct zns_pages_ref *refs,
		   struct zns_err *err);
	int (*get)(void *arg, struct zns_pages_ref ref, void *buf, struct zns_err *err);
	/* reads one page of a unit alone; see zns_pages_get_piece() */
	int (*piece)(void *arg, const struct zns_pages_ref *ref, uint32_t nr, void *buf,
		     struct zns_err *err);
	int (*hold)(void *arg, struct zns_pages_ref ref);
	int (*drop)(void *arg, struct zns_pages_ref ref);
	/* NULL: use put and get instead; see zns_pages_put_as_is() */
	int (*put_as_is)(void *arg, const void *const units[], uint32_t n,
			 struct zns_pages_ref *refs, struct zns_err *err);
	int (*get_as_is)(void *arg, struct zns_pages_ref ref, void *buf, struct zns_err *err);
	/* NULL: units are never moved; see zns_pages_dead() */
	bool (*dead)(void *arg, uint64_t *first, uint64_t *last);
	void *arg;
};

struct zns_mem;

/* Makes a new context, without a process. */
int zns_mem_new(const char *name, uint64_t dram, const struct zns_mem_store *store,
		struct zns_mem **out, struct zns_err *err);
/*
 * Adds a running process to the context. Children that it forks from then on belong to the context
 * too.
 */
int zns_mem_attach(struct zns_mem *m, pid_t pid, struct zns_err *err);
/*
 * Adds a process that was restored and does not run yet. @uffd: the userfaultfd of its lazy
 * restore, with fork, remap, remove and unmap events enabled and its lazy areas registered. This
 * call takes over @uffd, also if it fails. @g: the units that the process lacks, with their places
 * in the store. The store has counted each of them once; if the call fails, these counts are
 * dropped.
 */
#define ZNS_MEM_ORIGIN (1ULL << 47) /* bit in a place: the unit is in a checkpoint (zns/origin.h) */
struct zns_mem_given {
	uint64_t addr; /* a multiple of 64 KiB */
	uint64_t place;
	uint32_t pages; /* bits: the pages of the unit that are read from there */
};
int zns_mem_adopt(struct zns_mem *m, pid_t pid, int uffd, const struct zns_mem_given *g, size_t nr,
		  struct zns_err *err);
/*
 * Reads back units that must be in memory, such as stacks. Call it after zns_mem_start(), and
 * before the adopted processes run.
 */
int zns_mem_settle(struct zns_mem *m, struct zns_err *err);
/* Starts the threads that answer faults and evict. */
int zns_mem_start(struct zns_mem *m, struct zns_err *err);

/* @pause true: nothing is evicted until this is called with false. */
void zns_mem_pause(struct zns_mem *m, bool pause);
void zns_mem_limit(struct zns_mem *m, uint64_t dram);
/*
 * Hibernation evicts all that can be evicted, and then stops evicting. No thread of ours stays in
 * any process. Units that are touched are read back. If many are touched, the context wakes, and
 * the units that its last activation has touched are read ahead. Both functions only request the
 * change; zns_mem_status() reports the progress.
 */
void zns_mem_hibernate(struct zns_mem *m);
void zns_mem_wake(struct zns_mem *m);
/* Makes the context hibernate by itself after @ms without activity; 0: never. */
void zns_mem_idle(struct zns_mem *m, uint64_t ms);
/*
 * Makes the budget a share of @total bytes, which are divided among all contexts with the same @dir
 * (the directory of the contexts). A context that has not used its memory for long gets less, but
 * at least @min. A successor calls this with @total 0, to keep its predecessor's values.
 */
int zns_mem_auto(struct zns_mem *m, int dir, uint64_t total, uint64_t min, struct zns_err *err);
bool zns_mem_is_auto(const struct zns_mem *m);
/* Should units that are likely to be used next be read ahead? The default is yes. */
void zns_mem_predict(struct zns_mem *m, bool on);
/*
 * Stores for a successor how fast the store may write, in MiB/s; 0: no limit. It does not limit
 * this store.
 */
void zns_mem_set_rate(struct zns_mem *m, uint32_t mibps);
uint32_t zns_mem_rate(const struct zns_mem *m);
/* Bytes that the cgroup of the context's processes may use; 0: no limit. */
uint64_t zns_mem_group_limit(struct zns_mem *m);
/* The number of processes in the context. */
unsigned int zns_mem_processes(struct zns_mem *m);
/* Returns a descriptor that becomes readable when the descriptors of zns_mem_fds() have changed. */
int zns_mem_changes(struct zns_mem *m);

/*
 * Begins a checkpoint that includes the processes @pid[0..nr): nothing is evicted until
 * zns_mem_unquiesce(). -ENOENT: none of them belongs to this context.
 */
int zns_mem_quiesce(struct zns_mem *m, const pid_t *pid, uint32_t nr, struct zns_err *err);
void zns_mem_unquiesce(struct zns_mem *m);

/*
 * A unit of 64 KiB, with its pages as bits. @mask: pages whose only copy is at the place, unless
 * they are in memory. @clean: pages that are in memory and equal to their copy at the place.
 */
struct zns_mem_unit {
	uint64_t addr;
	struct zns_pages_ref ref;
	uint16_t mask, clean;
};
/*
 * Lists the units of a frozen process; call it between zns_mem_quiesce() and zns_mem_unquiesce().
 * Free *@out. -ENOENT: the process does not belong to this context.
 */
int zns_mem_units(struct zns_mem *m, pid_t pid, struct zns_mem_unit **out, size_t *nr,
		  struct zns_err *err);
/*
 * Is this area registered with our userfaultfd? For an empty area (@start == @end): does the
 * process belong to this context? 0: yes; -ENOENT: no.
 */
int zns_mem_owns(struct zns_mem *m, pid_t pid, uint64_t start, uint64_t end, struct zns_err *err);

/* On success, free @st with zns_mem_status_free(). */
int zns_mem_status(struct zns_mem *m, ZnsPb__MemoryStatus *st);
void zns_mem_status_free(ZnsPb__MemoryStatus *st);

/*
 * Reads back all memory and releases the processes. After an error the context continues as before.
 */
int zns_mem_detach(struct zns_mem *m, struct zns_err *err);

/*
 * What a successor needs if this pager dies: descriptors, and @meta. Any process that has copies of
 * these can continue the context. The descriptors that zns_mem_fds() returns still belong to the
 * context.
 */
#define ZNS_MEM_FDS_MAX 1539U
#define ZNS_MEM_META_MAX 8192U /* most bytes of data beside the descriptors */
struct zns_mem_fds {
	int fd[ZNS_MEM_FDS_MAX];
	uint32_t nr;
	uint8_t meta[ZNS_MEM_META_MAX];
	uint32_t len; /* bytes in meta */
	uint64_t forks; /* the children of the first @forks forks are included */
};
/* These descriptors stay open until zns_mem_kept(), or until the next call. */
void zns_mem_fds(struct zns_mem *m, struct zns_mem_fds *out);
/* Call when the keeper has copies of @f: descriptors that stayed open for it may be closed. */
void zns_mem_kept(struct zns_mem *m, const struct zns_mem_fds *f);
/*
 * Sets the process that has the copies. If it dies together with us, all processes with memory on
 * zones are killed, so that none of them reads zeroes.
 */
void zns_mem_keeper(struct zns_mem *m, pid_t pid);
/*
 * Takes over the descriptors, also if it fails, and ends what still runs of the dead predecessor,
 * which may hold locks on the device. @store is not used before zns_mem_go_on(), which calls hold()
 * for each unit; until then the store must not give back any zone. If zns_mem_go_on() fails, @m is
 * freed.
 */
int zns_mem_take(const struct zns_mem_fds *from, const struct zns_mem_store *store,
		 struct zns_mem **out, struct zns_err *err);
int zns_mem_go_on(struct zns_mem *m, struct zns_err *err);

/*
 * Ends the threads and frees everything. The processes are not changed: they wait at their next
 * fault.
 */
void zns_mem_leave(struct zns_mem *m);

#endif
