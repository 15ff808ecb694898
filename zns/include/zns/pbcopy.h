/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_PBCOPY_H
#define ZNS_PBCOPY_H
#include <protobuf-c/protobuf-c.h>

struct zns_err;

/* Makes a deep copy of any message; free it like an unpacked one. NULL: out of memory, with a
 * message in @err (may be NULL). */
void *zns_pb_copy(const ProtobufCMessage *msg, struct zns_err *err);

#endif
