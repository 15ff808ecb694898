/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_CLIENT_SPAWN_H
#define ZNS_CLIENT_SPAWN_H
#include "zns/config.h"
#include "zns/err.h"

/* How long a broker may take to say hello; a variable for tests. A loop that resets zones or waits
 * for a flush is slow. */
extern unsigned zns_broker_hello_ms;

/* Start znsd for @dev and wait until it listens; its own words in @err if it cannot. */
int zns_broker_spawn(const struct zns_registered *dev, struct zns_err *err);

/* Shall the broker have this variable, too? Only test builds (test/controls) say yes; the product
 * links spawn_none.c. */
bool zns_spawn_keeps_more(const char *name, size_t len);

#endif
