/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_HELPER_FILL_H
#define ZNS_HELPER_FILL_H
/* Reads pages straight into the areas that a task has mapped. */
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
 * Answers ZW_FILL. @flat: the flat view that has the image, or NULL. Adds the task to h->fills.
 * There may be thousands of tasks, so a task gets a thread only when its blob asks for the pages.
 * On an error the caller answers.
 */
int fill_start(struct helper *h, struct packet *p, struct zns_rimage *img, struct zns_flat *flat,
	       struct zns_err *err);
/*
 * Call when h->fills is readable: starts a thread for each task that has asked. The thread answers
 * the task.
 */
void fill_ready(struct helper *h);
/*
 * Covers the ranges with the task's userfaultfd (zns/task.h) where that saves time. false: none was
 * covered, or the task has no userfaultfd.
 */
bool fill_covers(struct zns_task task, const struct iovec *iov, uint32_t nr);

#endif
