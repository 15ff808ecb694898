/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_HELPER_FILL_H
#define ZNS_HELPER_FILL_H
/* Pages that go straight to where a task has mapped their areas. */
#include "zns/err.h"

struct helper;
struct packet;
struct zns_flat;
struct zns_rimage;

/*
 * ZW_FILL. @flat: if not NULL, the image as it is there. The task's place in h->fills is taken;
 * there may be thousands, so none has a thread before its blob asks. On an error the caller
 * answers.
 */
int fill_start(struct helper *h, struct packet *p, struct zns_rimage *img, struct zns_flat *flat,
	       struct zns_err *err);
/* Something is to be read in h->fills: each task that asked gets a thread, which answers it. */
void fill_ready(struct helper *h);

#endif
