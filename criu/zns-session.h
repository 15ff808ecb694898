/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_SESSION_H__
#define __CR_ZNS_SESSION_H__
/* What this process's dump or restore on zones is at; the same in children that criu forks later.
 */
#include <stdbool.h>

#define HANDLE_NAME "zns-handle.img"

enum zns_state { ZNS_OFF, ZNS_DUMP, ZNS_RESTORE };

extern enum zns_state zns_state(void);
extern int zns_nr_parents(void); /* of what is dumped, all generations */
extern bool zns_was_used(void); /* also when all is closed: criu writes its statistics last */
extern bool zns_receiving(void); /* as a page server: pages come through pipes */

#endif
