/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef HELPER_RESTORE_SESSION_H
#define HELPER_RESTORE_SESSION_H
#include "../helper.h"
#include "zns/flat.h"
#include "zns/reader.h"

struct restore {
	ZnsPb__Handle *handle; /* NULL: the checkpoint was named by its id */
	const ZnsPb__Checkpoint *c;
	/* for an incremental checkpoint: criu sees it as one dumped in full */
	struct zns_flat *flat;
	ZnsPb__FirstPages *first; /* recorded first pages, or NULL */
};

/* Waits for admission, if criu's options say so: -EBUSY, -ETIMEDOUT, -EDQUOT: no promise.
 */
int restore_lease(struct helper *h, const struct zw_begin *b, const uint8_t *id,
		  ZnsPb__Response **resp, struct zns_err *err);
/* The flat view that has image @img, or NULL. */
struct zns_flat *restore_flat(const struct helper *h, const struct zns_rimage *img);
/* ZW_OPEN. @above: levels that are not in h->chain. The answer is sent here, or by a thread that
 * this starts. */
int restore_open(struct helper *h, struct packet *p, uint32_t above, struct zns_err *err);

#endif
