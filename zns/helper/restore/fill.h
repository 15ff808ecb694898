/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_HELPER_FILL_H
#define ZNS_HELPER_FILL_H
/* Pages that go straight into the areas that a task has mapped. */
#include "zns/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>
#include "zns/task.h"

struct helper;
struct packet;
struct zns_flat;
struct zns_rimage;

/*
 * ZW_FILL. @flat: if not NULL, the flat view that has the image. The task gets a place in h->fills.
 * Thousands of tasks may come, so none has a thread before its blob asks. On an error the caller
 * answers.
 */
int fill_start(struct helper *h, struct packet *p, struct zns_rimage *img, struct zns_flat *flat,
	       struct zns_err *err);
/* h->fills is readable: starts a thread for each task that asked. The thread answers the task. */
void fill_ready(struct helper *h);
/* Covers those ranges (zns/task.h) for which it is worth it. false: none, or the task has no
 * userfaultfd. */
bool fill_covers(struct zns_task task, const struct iovec *iov, uint32_t nr);

#endif
