/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The functions of spawn.h for the product, which change nothing. */
#include "spawn.h"

bool zns_spawn_keeps_more(const char *name, size_t len)
{
	return false;
}

unsigned zns_hello_limit_ms(void)
{
	return ZNS_HELLO_MS;
}
