/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_CLIENT_SPAWN_H
#define ZNS_CLIENT_SPAWN_H
#include "zns/config.h"
#include "zns/err.h"

/* Time limit for a broker's hello; a variable for tests. A loop that resets zones or waits for a
 * flush is slow. */
extern unsigned zns_broker_hello_ms;

/* Starts znsd for @dev and waits until it listens. If it cannot, @err has znsd's own message. */
int zns_broker_spawn(const struct zns_registered *dev, struct zns_err *err);

/* Shall the broker keep this variable, too? Only test builds (test/controls) say yes; the product
 * links spawn_none.c. */
bool zns_spawn_keeps_more(const char *name, size_t len);

#endif
