/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_CLIENT_SWEEP_H
#define ZNS_CLIENT_SWEEP_H
#include "zns/config.h"

/* Runs `znsctl gc` with its default grace time, for at most 30 s. -ENOENT: znsctl is not installed.
 * -EIO: it failed. */
int zns_sweep(const struct zns_registered *reg);

#endif
