/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef TRACK_INJECT_H
#define TRACK_INJECT_H
/* A userfaultfd belongs to the memory of the process that made it. So the process has to make it.
 */
#include <stdint.h>
#include "maps.h"
#include "tracer.h"

/*
 * Lets one thread of the process call userfaultfd(), takes the descriptor over into *@uffd and
 * closes it there. 0 or -errno, with @err set. tracer_run() with a @work of ours is inside.
 */
int inject_userfaultfd(struct tracer *t, int pidfd, const struct areas *areas, int *uffd,
		       struct zns_err *err);

#endif
