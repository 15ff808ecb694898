/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef TRACK_INJECT_H
#define TRACK_INJECT_H
/* A userfaultfd belongs to the memory of the process that made it. So the process has to make it.
 */
#include "tracer.h"

/*
 * Lets one thread of the process call userfaultfd(), takes the descriptor over into *@uffd and
 * closes it there. 0 or -errno, with @err set. @maps: /proc/PID/maps.
 */
int inject_userfaultfd(struct tracer *t, int pidfd, int maps, int *uffd, struct zns_err *err);

#endif
