/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef MEM_CMD_PAGER_H
#define MEM_CMD_PAGER_H
#include <stdbool.h>
#include "zns/mem.h"
#include "zns/memkeep.h"
#include "zns/origin.h"
#include "zns/util.h"

struct pager {
	char name[ZNS_NAME_MAX + 1];
	struct zns_mem *m;
	struct zns_pages *pages;
	/* NULL: the context was not restored, or no memory is left in the checkpoint */
	struct zns_origin *origin;
	struct zns_memkeep *keep;
	int dir, listen;
	int quiesce_listen, quiesce; /* connection of the dump in progress; -1: none */
	bool end; /* all memory is back, so the pager exits */
};

/* --- control.c: the socket for znsctl --- */
int control_open(struct pager *p, struct zns_err *err);
void control_close(struct pager *p);
void control_serve(struct pager *p); /* serves one connection */
bool control_is_root(int sk);

/* --- quiesce.c: the socket for dumps --- */
int quiesce_open(struct pager *p, struct zns_err *err);
void quiesce_close(struct pager *p);
void quiesce_accept(struct pager *p);
void quiesce_serve(struct pager *p); /* handles one request on p->quiesce */

/* --- hand.c: handing over to the keeper --- */
int hand_over(struct pager *p, struct zns_err *err);
int hand_take(struct pager *p, struct zns_err *err);
void store_of(struct pager *p, struct zns_mem_store *st);
/* Call when no memory is left in the checkpoint: removes the checkpoint's id from the lock file. */
void origin_over(struct pager *p);

/* --- restore.c: taking over processes that are being restored --- */
struct restoring {
	int sk; /* connection to criu's lazy-pages daemon */
	const char *device, *checkpoint; /* UUIDs */
	uint64_t dram;
};
/*
 * Takes over restored processes, and tells the daemon the result. 0: they are served, and may run.
 */
int restore_take(struct pager *p, const struct restoring *r, struct zns_err *err);

#endif
