/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_AS_IS_H
#define ZNS_CTL_AS_IS_H
/*
 * Shared by copy, send and receive: transfers a checkpoint from one device to another without a
 * change. It keeps its id, names, times, rates, origin, parents and key: its units and their
 * checksums are written as they are on the source device.
 */
#include "../ctl/lib/ctl.h"
#include "zns/save.h"

/* A checkpoint that is open for reading. */
struct as_is {
	struct zns_session s;
	ZnsPb__Response *answer;
	const ZnsPb__Checkpoint *c; /* its record in the log */
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

/*
 * Connects to @path and begins to write @m with the record @c. @m is borrowed until zns_save_end().
 * @v->proof may be set. @claimed: nobody on this host has named its container.
 */
int as_is_write(struct zns_save *v, struct zns_session *to, const char *path,
		const ZnsPb__Manifest *m, const ZnsPb__Checkpoint *c, bool claimed,
		struct zns_err *err);

/*
 * Is @c already among the checkpoints @target of the device @path? Returns 1 if so. -EEXIST:
 * another checkpoint has its id.
 */
int as_is_there(const ZnsPb__Response *target, const char *path, const ZnsPb__Checkpoint *c,
		struct zns_err *err);
/*
 * Does the error @ret concern only this checkpoint? If it was changed meanwhile, or cannot be sent
 * or received, the transfer of the others goes on.
 */
bool as_is_goes_on(int ret);

/*
 * Would gc soon remove @c because its owner does not exist on this host? Then the caller pins @c:
 * somebody brought it here by hand, so it is wanted.
 */
bool as_is_orphan(const ZnsPb__Checkpoint *c);

/* Pins the checkpoint. Returns 0 also if it is gone. */
int as_is_pin(struct zns_broker *b, const ProtobufCBinaryData *id, struct zns_err *err);

#endif
