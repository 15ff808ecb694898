/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_OPTS_H__
#define __CR_ZNS_OPTS_H__
#include <stdbool.h>
#include "zns-wire.h"

extern struct zw_begin zns_opts;	/* as given; what else the helper is told is filled in at the beginning */
extern bool zns_opts_given;	/* any of them */
extern bool zns_opts_timeout;	/* --timeout, which has a default */

#endif
