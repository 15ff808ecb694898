/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_AS_IS_H
#define ZNS_CTL_AS_IS_H
/* Shared by copy, send and receive: a checkpoint goes from one device to another unchanged. Ids,
 * names, times, rates, origins, parents and keys stay: the units are written as they are on the
 * source device, with their checksums. */
#include "../ctl/lib/ctl.h"
#include "zns/save.h"

/* A checkpoint that is open for reading. */
struct as_is {
	struct zns_session s;
	ZnsPb__Response *answer;
	const ZnsPb__Checkpoint *c; /* the record in the log */
	const ZnsPb__Manifest *m;
	struct zns_chain *chain;
};

#define AS_IS_INIT                     \
	{                              \
		.s = ZNS_SESSION_INIT, \
	}

extern const struct ctl_cmd transfer_copy, transfer_send, transfer_receive;

int as_is_open(struct as_is *a, const char *path, const uint8_t *id, struct zns_err *err);
void as_is_close(struct as_is *a);

/* Connects to @path and begins to write @m, which is borrowed until zns_save_end, with the record
 * @c. @v->proof may be set. @claimed: nobody here has named its container. */
int as_is_write(struct zns_save *v, struct zns_session *to, const char *path,
		const ZnsPb__Manifest *m, const ZnsPb__Checkpoint *c, bool claimed,
		struct zns_err *err);

/* Is @c already among the checkpoints of @target, the device @path? 1: yes. -EEXIST: a different
 * checkpoint has its id. */
int as_is_there(const ZnsPb__Response *target, const char *path, const ZnsPb__Checkpoint *c,
		struct zns_err *err);
/* Did only this checkpoint fail? If it was changed meanwhile, or cannot be sent or received, the
 * transfer of the others goes on. */
bool as_is_goes_on(int ret);

/* Would a sweep soon remove @c, because what it was made for does not exist here? Then it is pinned:
 * somebody brought it by hand, so it is wanted. */
bool as_is_orphan(const ZnsPb__Checkpoint *c);

/* Pins the checkpoint. It is not an error if the checkpoint is gone. */
int as_is_pin(struct zns_broker *b, const ProtobufCBinaryData *id, struct zns_err *err);

#endif
