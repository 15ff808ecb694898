/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_DEV_RACE_PRIV_H
#define ZNS_DEV_RACE_PRIV_H
#include "zns/dev.h"

/* race.c: zns_dev_race for devices that do not implement it themselves. */
int zns_race_threads(struct zns_dev *d, const struct zns_race *r, uint32_t nr, struct zns_err *err);

#endif
