/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_CONTEXT_H
#define MEM_CONTEXT_H
#include "mem.h"

/*
 * Version of the data that a pager shares with its successor. When the package is upgraded, a
 * running pager is never replaced by one of another version (debian/zns-criu.preinst).
 */
#define CONTEXT_VERSION 15

/*
 * Takes over @sh_fd. If *@out is not NULL, also after an error, the caller must call
 * zns_mem_leave() for it.
 */
int context_make(int sh_fd, const struct zns_mem_store *store, struct zns_mem **out,
		 struct zns_err *err);
int context_serve(struct zns_mem *m); /* starts all threads of serve.c */
int context_evict(struct zns_mem *m);

#endif
