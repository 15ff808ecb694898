/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_CLIENT_SPAWN_H
#define ZNS_CLIENT_SPAWN_H
#include "zns/config.h"
#include "zns/err.h"

#define ZNS_HELLO_MS 20000

/* Starts znsd for @dev and waits until it listens. If znsd fails, @err has its message. */
int zns_broker_spawn(const struct zns_registered *dev, struct zns_err *err);

/* What test builds can change (test/controls); the product links spawn_none.c. */
/* Shall the broker also inherit this environment variable? */
bool zns_spawn_keeps_more(const char *name, size_t len);
/* Time limit in ms for a broker's answer to the first request. A broker that is resetting zones or
 * waiting for a flush answers late. */
unsigned zns_hello_limit_ms(void);

#endif
