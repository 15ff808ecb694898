/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef HELPER_RESTORE_SESSION_H
#define HELPER_RESTORE_SESSION_H
#include "../helper.h"
#include "zns/flat.h"
#include "zns/reader.h"

struct restore {
	ZnsPb__Handle *handle; /* NULL: the user named the checkpoint by its id */
	const ZnsPb__Checkpoint *c;
	/* set for an incremental checkpoint: criu sees the flat view as one full checkpoint */
	struct zns_flat *flat;
	ZnsPb__FirstPages *first; /* recorded first pages, or NULL */
};

/*
 * Gets the lease. Waits for the promised rate if criu's options say so. -EBUSY, -ETIMEDOUT,
 * -EDQUOT: the broker does not promise the rate.
 */
int restore_lease(struct helper *h, const struct zw_begin *b, const uint8_t *id,
		  ZnsPb__Response **resp, struct zns_err *err);
/* The flat view that has image @img, or NULL. */
struct zns_flat *restore_flat(const struct helper *h, const struct zns_rimage *img);
/*
 * Answers ZW_OPEN. @above: number of levels that criu counts above h->chain. This function sends
 * the answer itself, or starts a thread that sends it.
 */
int restore_open(struct helper *h, struct packet *p, uint32_t above, struct zns_err *err);

#endif
