/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_RPC_H__
#define __CR_ZNS_RPC_H__
/* Requests over RPC (criu swrk, criu service): the message criu_zns_opts of images/rpc.proto. */
#include <stdbool.h>
#include "images/rpc.pb-c.h"

/* Takes the request's options, before its config_file is read: 0, or -1 with one line. */
extern int zns_rpc_opts(const CriuOpts *req);
/* Answers the question of FEATURE_CHECK about zones, if the request has it. */
extern void zns_rpc_features(const CriuFeatures *asked, CriuFeatures *answer);
/*
 * A client gets only one error. @said was the first, @msg is the next: true if @msg shall replace
 * it. Otherwise an error that criu survives, such as an rlimit that it may not raise, would hide
 * the reason. @said NULL: the log is not open yet, and criu would forget the message.
 */
extern bool zns_err_first(const char *said, const char *msg);

#endif
