/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_RPC_H__
#define __CR_ZNS_RPC_H__
/* Requests over RPC (criu swrk, criu service): the message criu_zns_opts of images/rpc.proto. */
#include <stdbool.h>
#include "images/rpc.pb-c.h"

/* What the request asks for, before its config_file is read: 0, or -1 with one line. */
extern int zns_rpc_opts(const CriuOpts *req);
/* Answer FEATURE_CHECK's question after zones, if it was asked. */
extern void zns_rpc_features(const CriuFeatures *asked, CriuFeatures *answer);
/*
 * A client is told the first error only. @said was, @msg comes now: true if @msg is to take its
 * place. Errors that criu goes on after, such as an rlimit that it may not raise, would hide the
 * reason. @said NULL: the log is not open yet, and criu would forget the message.
 */
extern bool zns_err_first(const char *said, const char *msg);

#endif
