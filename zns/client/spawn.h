/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_CLIENT_SPAWN_H
#define ZNS_CLIENT_SPAWN_H
#include "zns/config.h"
#include "zns/err.h"

#define ZNS_HELLO_MS 20000

/* Starts znsd for @dev and waits until it listens. If it cannot, @err has znsd's own message. */
int zns_broker_spawn(const struct zns_registered *dev, struct zns_err *err);

/* What a test build (test/controls) may change; the product links spawn_none.c. */
/* Shall the broker inherit this environment variable as well? */
bool zns_spawn_keeps_more(const char *name, size_t len);
/* Time limit for a broker's hello, in ms. A loop that resets zones or waits for a flush is slow. */
unsigned zns_hello_limit_ms(void);

#endif
