/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_MEMKEEP_H
#define ZNS_MEMKEEP_H
/*
 * The keeper of memory contexts, zns-memkeep, as a pager (zns-mem) knows it. There is one for each
 * runtime directory. It holds copies of each context's descriptors and some bytes that say what
 * they are. When a pager dies without zns_memkeep_end(), the keeper starts the next one,
 *
 *     zns-mem --take-over NAME      descriptor ZNS_MEMKEEP_FD: its connection to the keeper
 *
 * which calls zns_memkeep_take() with that descriptor. If that one dies as well, the next is
 * started later, and later; the descriptors stay. When the keeper dies, zns_memkeep_fd() becomes
 * readable: zns_memkeep_again() finds or starts another one, and the pager hands all over again. It
 * should evict nothing before that.
 *
 * The first pager is started by `znsctl memory attach`, as a daemon (zns/daemon.h):
 *
 *     zns-mem --ready-fd 3 --name NAME --dram BYTES [--dev DEV] PID
 *
 * It says "ready" when the process is extended and the keeper has all; before that it undoes what
 * it did, and says why.
 *
 * Only root's processes (the keeper's user) are served. A store of one process; any of its threads
 * may call, one waits for the other. Functions return 0 or -errno and fill @err (may be NULL).
 */
#include <stdint.h>
#include <sys/types.h>
#include "zns/err.h"

#define ZNS_MEMKEEP_FD 3
#define ZNS_MEMKEEP_TAKE "--take-over" /* option of zns-mem */
#define ZNS_MEMKEEP_CONTEXTS_MAX 2048u
#define ZNS_MEMKEEP_FDS_MAX 4096u /* most descriptors of one context */
#define ZNS_MEMKEEP_DATA_MAX 65536u /* most bytes of data of one context */

struct zns_memkeep;

/*
 * Connects to the keeper, starting one if none runs, and names the context: a container's name
 * without a slash (zns/util.h). Errors:
 *   -EEXIST  the keeper has a context of this name already
 *   -ENOSPC  there are ZNS_MEMKEEP_CONTEXTS_MAX contexts
 *   -EDQUOT  its tenant has as many contexts as are left for all. The tenant is the rule of
 *            tenants.conf for this container, else its namespace, else all that have neither
 */
int zns_memkeep_open(const char *name, struct zns_memkeep **out, struct zns_err *err);

/*
 * Hands over: @data and copies of the @nr descriptors take the place of all that the keeper had of
 * this context. When it returns 0 the keeper has them; on an error it has what it had before.
 * -EPIPE: the keeper is gone. -EMFILE: it can hold no more.
 */
int zns_memkeep_hand(struct zns_memkeep *k, const void *data, size_t len, const int *fds,
		     uint32_t nr, struct zns_err *err);

int zns_memkeep_fd(const struct zns_memkeep *k); /* readable: the keeper is gone */
pid_t zns_memkeep_pid(const struct zns_memkeep *k);

/* Call it when the keeper has died: finds or starts another one, which has nothing of this
 * context. */
int zns_memkeep_again(struct zns_memkeep *k, struct zns_err *err);

/* The context is over: the keeper forgets it. Frees @k. */
void zns_memkeep_end(struct zns_memkeep *k);
/* Frees @k; the keeper goes on, and starts a successor when this process ends. */
void zns_memkeep_leave(struct zns_memkeep *k);

/* What a successor gets. */
struct zns_memkeep_set {
	char name[256];
	void *data; /* malloc'ed, @len bytes */
	size_t len;
	int *fds; /* malloc'ed; all are the caller's, close-on-exec */
	uint32_t nr;
	uint32_t deaths; /* pagers of this context that have died so far */
};
/* closes the descriptors that are still in it (>= 0) */
void zns_memkeep_set_free(struct zns_memkeep_set *s);

/* For a successor. @fd (ZNS_MEMKEEP_FD) belongs to *@out from now on. */
int zns_memkeep_take(int fd, struct zns_memkeep **out, struct zns_memkeep_set *set,
		     struct zns_err *err);

#endif
