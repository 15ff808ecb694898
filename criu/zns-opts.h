/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_OPTS_H__
#define __CR_ZNS_OPTS_H__
#include <stdbool.h>
#include "zns-wire.h"

/* as given; what else the helper is told is filled in at the beginning */
extern struct zw_begin zns_opts;
extern bool zns_opts_given; /* any of them */
extern bool zns_opts_timeout; /* --timeout, which has a default */

#endif
