/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_STATE_H__
#define __CR_ZNS_STATE_H__
/* The state of this process's dump or restore on zones; criu's later children inherit it. It calls
 * no function, so every file may include it. zns-session.c writes it, except `serves` (zns-serve.c)
 * and `lazy` (zns-lazy.c). */
#include <stdbool.h>
#include <stdint.h>

#include "zns-wire.h"

#define HANDLE_NAME "zns-handle.img"

enum zns_state { ZNS_OFF, ZNS_DUMP, ZNS_RESTORE };

struct zns_session {
	enum zns_state state;
	int nr_parents; /* number of parents of the new checkpoint, all generations */
	bool used; /* stays true after the close: criu writes its statistics last */
	bool receiving; /* a page server: pages are sent through pipes */
	bool serves; /* a page server for lazy pages: it reads what its clients ask for */
	bool lazy; /* a lazy-pages daemon that reads its pages from zones */
	struct zw_send ids; /* of what a dump or page server writes, and of its parent */
};

extern struct zns_session zns_session;
extern unsigned long long zns_now_us(void); /* microseconds of a monotonic clock */

#endif
