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
	struct zns_origin *origin; /* NULL: it was not restored, or all of it has come */
	struct zns_memkeep *keep;
	int dir, listen;
	int seal_listen, seal; /* who makes a checkpoint; -1: nobody */
	bool end; /* all is back, nothing is left to do */
};

/* --- control.c: the socket that znsctl talks to --- */
int control_open(struct pager *p, struct zns_err *err);
void control_close(struct pager *p);
void control_serve(struct pager *p); /* one connection */
bool control_is_root(int sk);

/* --- seal.c: the socket that dumps talk to --- */
int seal_open(struct pager *p, struct zns_err *err);
void seal_close(struct pager *p);
void seal_accept(struct pager *p);
void seal_serve(struct pager *p); /* one request of p->seal */

/* --- hand.c: what the keeper has --- */
int hand_over(struct pager *p, struct zns_err *err);
int hand_take(struct pager *p, struct zns_err *err);
void store_of(struct pager *p, struct zns_mem_store *st);
/* Nothing lies in the checkpoint any more: it may go. */
void origin_over(struct pager *p);

/* --- restore.c: processes that are being restored --- */
struct restoring {
	int sk; /* criu's lazy-pages daemon */
	const char *device, *checkpoint; /* UUIDs */
	uint64_t dram;
};
/* Returns when they are served, and may run; also says so at the other end, or why not. */
int restore_take(struct pager *p, const struct restoring *r, struct zns_err *err);

#endif
