/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_OPTS_H__
#define __CR_ZNS_OPTS_H__
#include <stdbool.h>
#include "zns-wire.h"

/* the options as given; zns-session.c fills in the other fields for the helper */
extern struct zw_begin zns_opts;
extern bool zns_over_rpc; /* the request came over RPC, for example from runc */
extern bool zns_opts_given; /* any zns option was given */
extern bool zns_live_durable; /* --zns-live=durable: the tasks stay frozen until the commit */
extern bool zns_scripts; /* --action-script was given */
extern bool zns_record_off; /* --zns-record=off */
extern unsigned long long zns_memory; /* --zns-memory: bytes; 0: not given */
#define ZNS_MEMORY_DAEMON \
	",daemon" /* a restore adds this to the value for the lazy-pages daemon that it starts */
extern bool zns_memory_daemon;
extern unsigned int zns_record_s; /* --zns-record: for how many seconds */
extern bool zns_opts_timeout; /* --timeout was given on the command line (it has a default) */

#endif
