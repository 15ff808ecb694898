/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_MEM_H
#define ZNS_MEM_H
/*
 * A memory context: the private anonymous memory of a tree of processes that were not changed for
 * it, kept under a budget of DRAM. Units of 64 KiB that were not used lately go to a store, and
 * come back when they are touched. Documentation/inside/memory-inside.md has the rules. One context per
 * process. Functions return 0 or -errno and fill @err.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "zns/err.h"
#include "zns/pages.h"
#include "zns-memory.pb-c.h"

/* The store of a context. The product uses zns/pages.h; tests have another one. */
struct zns_mem_store {
	int (*put)(void *arg, const void *const units[], uint32_t n, struct zns_pages_ref *refs,
		   struct zns_err *err);
	int (*get)(void *arg, struct zns_pages_ref ref, void *buf, struct zns_err *err);
	/* one page of a unit, alone; see zns_pages_get_piece() */
	int (*piece)(void *arg, const struct zns_pages_ref *ref, uint32_t nr, void *buf,
		     struct zns_err *err);
	int (*hold)(void *arg, struct zns_pages_ref ref);
	int (*drop)(void *arg, struct zns_pages_ref ref);
	/* NULL: put and get will do; see zns_pages_put_as_is() */
	int (*put_as_is)(void *arg, const void *const units[], uint32_t n,
			 struct zns_pages_ref *refs, struct zns_err *err);
	int (*get_as_is)(void *arg, struct zns_pages_ref ref, void *buf, struct zns_err *err);
	/* NULL: nothing is ever moved; see zns_pages_dead() */
	bool (*dead)(void *arg, uint64_t *first, uint64_t *last);
	void *arg;
};

struct zns_mem;

/* A new context without a process. */
int zns_mem_new(const char *name, uint64_t dram, const struct zns_mem_store *store,
		struct zns_mem **out, struct zns_err *err);
/* Add a running process to the context. Its children by fork belong to the context from now on. */
int zns_mem_attach(struct zns_mem *m, pid_t pid, struct zns_err *err);
/*
 * Add a process that was restored and does not run yet. @uffd is the userfaultfd of its lazy
 * restore (fork, remap, remove and unmap events; its lazy areas are registered), which this call
 * takes over, also when it fails. @g: the units that the process lacks, by their places in the
 * store. The store has counted each unit once; if the call fails, it is told to drop them.
 */
#define ZNS_MEM_ORIGIN (1ULL << 47) /* in a place: it is in a checkpoint (zns/origin.h) */
struct zns_mem_given {
	uint64_t addr; /* a multiple of 64 KiB */
	uint64_t place;
	uint32_t pages; /* bits: pages of it that are to come from there */
};
int zns_mem_adopt(struct zns_mem *m, pid_t pid, int uffd, const struct zns_mem_given *g, size_t nr,
		  struct zns_err *err);
/* After zns_mem_start, before adopted processes run: read back what must be in memory, as
 * stacks. */
int zns_mem_settle(struct zns_mem *m, struct zns_err *err);
/* Begin to serve and to evict. Threads of ours run from now on. */
int zns_mem_start(struct zns_mem *m, struct zns_err *err);

/* Evict nothing until told otherwise. */
void zns_mem_pause(struct zns_mem *m, bool pause);
void zns_mem_limit(struct zns_mem *m, uint64_t dram);
/*
 * Hibernate: evict all that can be evicted, and then nothing more. No thread of ours stays in any
 * process. Touched units come back. When many do, the context is awake, and what its last
 * activation touched is read ahead. These calls only ask for it; zns_mem_status() tells how far it
 * is.
 */
void zns_mem_hibernate(struct zns_mem *m);
void zns_mem_wake(struct zns_mem *m);
/* Hibernate without being asked after @ms without activity; 0: never. */
void zns_mem_idle(struct zns_mem *m, uint64_t ms);
/*
 * The budget is this context's part of @total bytes, which it divides with all others that were
 * given the same @dir (the contexts' directory): who has not used its memory for longest has less,
 * but not less than @min. @total 0: a successor goes on.
 */
int zns_mem_auto(struct zns_mem *m, int dir, uint64_t total, uint64_t min, struct zns_err *err);
bool zns_mem_is_auto(const struct zns_mem *m);
/* Whether units are read that are likely to be asked for next. They are, at first. */
void zns_mem_predict(struct zns_mem *m, bool on);
/* How fast its store may write, MiB/s; 0: no limit. Kept for a successor, and no more. */
void zns_mem_set_rate(struct zns_mem *m, uint32_t mibps);
uint32_t zns_mem_rate(const struct zns_mem *m);
/* What the cgroup of its processes may use, bytes; 0: as much as it wants. */
uint64_t zns_mem_group_limit(struct zns_mem *m);
/* How many processes the context still has. */
unsigned int zns_mem_processes(struct zns_mem *m);
/* A descriptor that becomes readable when the descriptors of zns_mem_fds() have changed. */
int zns_mem_changes(struct zns_mem *m);

/*
 * A checkpoint of processes among which is @pid[0..nr): until zns_mem_unseal() nothing is evicted.
 * -ENOENT: none of them is of this context.
 */
int zns_mem_seal(struct zns_mem *m, const pid_t *pid, uint32_t nr, struct zns_err *err);
void zns_mem_unseal(struct zns_mem *m);

/* 64 KiB of a process. Pages by bits: those in @mask are at the place alone, unless they are in
 * memory; those in @clean are in memory, and the same. */
struct zns_mem_unit {
	uint64_t addr;
	struct zns_pages_ref ref;
	uint16_t mask, clean;
};
/* Of a frozen process, while sealed; to be freed. -ENOENT: it is not of this context. */
int zns_mem_units(struct zns_mem *m, pid_t pid, struct zns_mem_unit **out, size_t *nr,
		  struct zns_err *err);
/* Is the userfaultfd of this area ours? For an empty area (@start == @end): is the process of this
 * context? 0: yes; -ENOENT: no. */
int zns_mem_owns(struct zns_mem *m, pid_t pid, uint64_t start, uint64_t end, struct zns_err *err);

/* To be freed with zns_mem_status_free(), unless it fails. */
int zns_mem_status(struct zns_mem *m, ZnsPb__MemoryStatus *st);
void zns_mem_status_free(ZnsPb__MemoryStatus *st);

/* Read all memory back and release the processes. On an error all goes on as before. */
int zns_mem_detach(struct zns_mem *m, struct zns_err *err);

/*
 * A pager that dies leaves nothing behind but descriptors; who has copies of them can go on. The
 * descriptors of zns_mem_fds() stay ours.
 */
#define ZNS_MEM_FDS_MAX 1539U
#define ZNS_MEM_META_MAX 8192U /* bytes: what is kept beside the descriptors */
struct zns_mem_fds {
	int fd[ZNS_MEM_FDS_MAX];
	uint32_t nr;
	uint8_t meta[ZNS_MEM_META_MAX];
	uint32_t len; /* of meta, bytes */
	uint64_t forks; /* children of these are among them */
};
/* They stay open until zns_mem_kept(), or until they are asked for again. */
void zns_mem_fds(struct zns_mem *m, struct zns_mem_fds *out);
/* The keeper has copies of @f: descriptors that were kept open for it may be closed. */
void zns_mem_kept(struct zns_mem *m, const struct zns_mem_fds *f);
/* The process that has the copies. If it dies with us, whoever has memory on zones is killed, and
 * does not see zeroes there. */
void zns_mem_keeper(struct zns_mem *m, pid_t pid);
/*
 * Takes over the descriptors, also when it fails, and lets the dead predecessor go: what is left of
 * it may have locks on the device. The store is not used before zns_mem_go_on(), which holds each
 * unit there. It must not have given anything back. When that fails @m is gone.
 */
int zns_mem_take(const struct zns_mem_fds *from, const struct zns_mem_store *store,
		 struct zns_mem **out, struct zns_err *err);
int zns_mem_go_on(struct zns_mem *m, struct zns_err *err);

/* Ends the threads and forgets everything; processes stay as they are, and wait. */
void zns_mem_leave(struct zns_mem *m);

#endif
