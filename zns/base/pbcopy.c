/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* See zns/pbcopy.h. */
#include <errno.h>
#include <stdlib.h>
#include "zns/pbcopy.h"
#include "zns/err.h"
#include "zns/util.h"

void *zns_pb_copy(const ProtobufCMessage *msg, struct zns_err *err)
{
	size_t n = protobuf_c_message_get_packed_size(msg);
	cleanup_free uint8_t *buf = malloc(n + 1);
	void *copy = NULL;

	if (buf) {
		protobuf_c_message_pack(msg, buf);
		copy = protobuf_c_message_unpack(msg->descriptor, NULL, n, buf);
	}
	if (!copy)
		zns_fail(err, -ENOMEM, "no memory for a copy of a message");
	return copy;
}
