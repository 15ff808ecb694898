/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_ALONE_H__
#define __CR_ZNS_ALONE_H__
#include <stdbool.h>

/*
 * For a child process that continues next to criu: gives it a session of its own, so that a signal
 * to criu's group does not reach it; /dev/null as 0 to 2; @fd[0] to @fd[@nr - 1] as ZNS_ALONE_FD
 * and the following numbers; no other descriptor. @block: blocks all signals, otherwise none. 0, or
 * -1.
 */
extern int zns_alone(const int *fd, int nr, bool block);
#define ZNS_ALONE_FD 3
#define ZNS_ALONE_MAX 8 /* descriptors */

#endif
