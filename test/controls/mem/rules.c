/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A memory context without one of its rules (ZNS_MEM_WITHOUT=NUMBER of enum mem_rule), or killed
 * when a unit reaches a state (ZNS_MEM_KILL=STATE@N, the N-th time).
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "../../../zns/mem/rules.h"

bool mem_without(enum mem_rule rule)
{
	const char *env = getenv("ZNS_MEM_WITHOUT");

	return env && strtol(env, NULL, 10) == rule;
}

void mem_reached(int state)
{
	static _Atomic long times;
	const char *env = getenv("ZNS_MEM_KILL");
	char *at;

	if (!env || strtol(env, &at, 10) != state || *at != '@')
		return;
	if (++times == strtol(at + 1, NULL, 10))
		kill(getpid(), SIGKILL);
}
