/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_STATE_H__
#define __CR_ZNS_STATE_H__
/*
 * The state of this process's dump or restore on zones, which criu's later children inherit. This
 * header needs no other, so every file may include it. zns-session.c writes the state, except
 * `serves` (zns-serve.c) and `lazy` (zns-lazy.c).
 */
#include <stdbool.h>
#include <stdint.h>

#include "zns-wire.h"

#define HANDLE_NAME "zns-handle.img"

enum zns_state { ZNS_OFF, ZNS_DUMP, ZNS_RESTORE };

struct zns_session {
	enum zns_state state;
	int nr_parents; /* number of parents of the new checkpoint, in all generations */
	/* zones were used; stays true at the end, since criu writes its statistics last */
	bool used;
	bool receiving; /* this is a page server that receives pages, through pipes */
	/* this is a page server for lazy pages: it reads the pages that its clients request */
	bool serves;
	bool lazy; /* this is a lazy-pages daemon that reads its pages from zones */
	/* ids of the checkpoint that a dump or page server writes, and of its parent */
	struct zw_send ids;
};

extern struct zns_session zns_session;
extern unsigned long long zns_now_us(void); /* the monotonic clock in microseconds */

#endif
