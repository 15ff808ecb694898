/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_HOLD_H__
#define __CR_ZNS_HOLD_H__
/*
 * A container is restored between its runtime's `create` and `start`: the restore waits once all
 * namespaces are made and before there is any memory. $ZNS_HOLD is the path of the runtime's
 * socket. criu sends "h" and the PID of @init there. It goes on after a packet "g" with the
 * container's host name behind it, and gives up after any other, or when the socket is closed.
 * Nothing is held without the variable. 0 or -1.
 */
#include <sys/types.h>

int zns_hold(pid_t init);

#endif
