/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_MEMKEEP_H
#define ZNS_MEMKEEP_H
/*
 * A pager's (zns-mem) interface to the keeper of memory contexts, zns-memkeep. There is one keeper
 * for each runtime directory. It has copies of each context's descriptors, and some bytes of data
 * that describe them. When a pager dies without zns_memkeep_end(), the keeper starts the next one,
 *
 *     zns-mem --take-over NAME      descriptor ZNS_MEMKEEP_FD: its connection to the keeper
 *
 * which calls zns_memkeep_take() with that descriptor. If this pager dies as well, the keeper
 * starts the next one after a growing delay, and keeps the descriptors. When the keeper dies,
 * zns_memkeep_fd() becomes readable: then zns_memkeep_again() finds or starts another keeper, and
 * the pager hands over everything again. It should not evict before that is done.
 *
 * `znsctl memory attach` starts the first pager, as a daemon (zns/daemon.h):
 *
 *     zns-mem --ready-fd 3 --name NAME --dram BYTES [--dev DEV] PID
 *
 * It reports "ready" when it serves the process and the keeper has all descriptors. If it fails
 * before that, it undoes what it did, and reports the reason.
 *
 * The keeper serves only root's processes (its own user). A process can have one connection; its
 * threads may call at the same time, and are served one by one. Functions return 0 or -errno and
 * fill @err (may be NULL).
 */
#include <stdint.h>
#include <sys/types.h>
#include "zns/err.h"

#define ZNS_MEMKEEP_FD 3
#define ZNS_MEMKEEP_TAKE "--take-over" /* this option makes zns-mem a successor */
#define ZNS_MEMKEEP_CONTEXTS_MAX 2048u
#define ZNS_MEMKEEP_FDS_MAX 4096u /* most descriptors of one context */
#define ZNS_MEMKEEP_DATA_MAX 65536u /* most bytes of data of one context */

struct zns_memkeep;

/*
 * Connects to the keeper, which is started if none runs, and names the context by a container's
 * name without slashes (zns/util.h). Errors:
 *   -EEXIST  the keeper already has a context of this name
 *   -ENOSPC  there are ZNS_MEMKEEP_CONTEXTS_MAX contexts
 *   -EDQUOT  its tenant has as many contexts as are left for all. The tenant is the rule of
 *            tenants.conf for this container, else its namespace, else all containers that have
 *            neither
 */
int zns_memkeep_open(const char *name, struct zns_memkeep **out, struct zns_err *err);

/*
 * Hands over @data and copies of the @nr descriptors. They replace all that the keeper had of this
 * context. 0: the keeper has them; after an error it still has what it had before. -EPIPE: the
 * keeper is gone. -EMFILE: it cannot hold more descriptors.
 */
int zns_memkeep_hand(struct zns_memkeep *k, const void *data, size_t len, const int *fds,
		     uint32_t nr, struct zns_err *err);

int zns_memkeep_fd(const struct zns_memkeep *k); /* becomes readable when the keeper has died */
pid_t zns_memkeep_pid(const struct zns_memkeep *k);

/*
 * Call it when the keeper has died: finds or starts another one, which knows nothing of this
 * context yet.
 */
int zns_memkeep_again(struct zns_memkeep *k, struct zns_err *err);

/* The context has ended, and the keeper forgets it. Frees @k. */
void zns_memkeep_end(struct zns_memkeep *k);
/* Frees @k. The keeper continues, and starts a successor when this process exits. */
void zns_memkeep_leave(struct zns_memkeep *k);

/* What a successor gets. */
struct zns_memkeep_set {
	char name[256];
	void *data; /* malloc'ed, @len bytes */
	size_t len;
	int *fds; /* malloc'ed; the caller owns all descriptors, which are close-on-exec */
	uint32_t nr;
	uint32_t deaths; /* number of pagers of this context that have died so far */
};
/* also closes the descriptors that are still in the set (>= 0) */
void zns_memkeep_set_free(struct zns_memkeep_set *s);

/*
 * For a successor: takes over the connection @fd (ZNS_MEMKEEP_FD), which belongs to *@out from now
 * on.
 */
int zns_memkeep_take(int fd, struct zns_memkeep **out, struct zns_memkeep_set *set,
		     struct zns_err *err);

#endif
