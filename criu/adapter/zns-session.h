/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_SESSION_H__
#define __CR_ZNS_SESSION_H__
/* The state of this process's dump or restore on zones; criu's later children inherit it. */
#include <stdbool.h>
#include <stdint.h>

#define HANDLE_NAME "zns-handle.img"

enum zns_state { ZNS_OFF, ZNS_DUMP, ZNS_RESTORE };

extern enum zns_state zns_state(void);
extern int zns_nr_parents(void); /* of the new checkpoint, all generations */
extern bool zns_was_used(void); /* stays true after the close: criu writes its statistics last */
/* The id of what a dump or page server writes, and that of its parent: struct zw_send. */
extern const uint8_t *zns_session_ids(void);
extern bool zns_receiving(void); /* true as a page server: pages come through pipes */

#endif
