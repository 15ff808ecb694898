/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_TCP_H__
#define __CR_ZNS_TCP_H__
/*
 * A container may get another address than it had. With ZNS_TCP=auto in criu's environment a
 * connection whose own address is not there is restored closed, as --tcp-close does with all.
 */
#include <stdbool.h>

struct InetSkEntry;

/* In the task, in its network namespace. */
bool zns_tcp_lost(const struct InetSkEntry *ie);

#endif
