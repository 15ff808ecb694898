/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_ALONE_H__
#define __CR_ZNS_ALONE_H__
#include <stdbool.h>

/*
 * For a child process that runs beside criu. Gives it a session of its own, so that a signal to
 * criu's group does not reach it. Its descriptors 0 to 2 become /dev/null; @fd[0] to @fd[@nr - 1]
 * become ZNS_ALONE_FD and the following numbers; all others are closed. @block: block all signals,
 * otherwise unblock all. Returns 0, or -1.
 */
extern int zns_alone(const int *fd, int nr, bool block);
#define ZNS_ALONE_FD 3
#define ZNS_ALONE_MAX 8 /* most descriptors */

#endif
