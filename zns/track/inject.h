/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef TRACK_INJECT_H
#define TRACK_INJECT_H
/*
 * A userfaultfd belongs to the memory of the process that made it. So the tracked process itself
 * has to make it.
 */
#include "tracer.h"

/*
 * Makes one thread of the process call userfaultfd(), copies the descriptor into *@uffd, and closes
 * it in the process. Returns 0, or -errno with @err set. @maps: descriptor of /proc/PID/maps.
 */
int inject_userfaultfd(struct tracer *t, int pidfd, int maps, int *uffd, struct zns_err *err);

#endif
