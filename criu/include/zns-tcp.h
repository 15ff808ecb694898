/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_TCP_H__
#define __CR_ZNS_TCP_H__
/*
 * A container may get another address than before. With ZNS_TCP=auto in criu's environment a
 * connection whose local address does not exist is restored closed, as --tcp-close does with all.
 */
#include <stdbool.h>

struct InetSkEntry;

/* Called in the task's network namespace. */
bool zns_tcp_lost(const struct InetSkEntry *ie);

#endif
