/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A memory context without one of its rules (ZNS_MEM_WITHOUT=NUMBER,… of enum mem_rule), on a
 * kernel that refuses something (ZNS_MEM_REFUSED=NUMBER,… of enum mem_refused), with rings from the
 * first minute on (ZNS_MEM_RING=1, as without RULE_UNMAPPED), or killed when a unit reaches a state
 * (ZNS_MEM_KILL=STATE@N, the N-th time).
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "../../../zns/mem/rules.h"

static bool listed(const char *variable, long nr)
{
	const char *env = getenv(variable);
	char *end;

	for (; env && *env; env = *end ? end + 1 : end)
		if (strtol(env, &end, 10) == nr)
			return true;
	return false;
}

bool mem_without(enum mem_rule rule)
{
	if (rule == RULE_UNMAPPED && listed("ZNS_MEM_RING", 1))
		return true;
	return listed("ZNS_MEM_WITHOUT", rule);
}

bool mem_refused(enum mem_refused what)
{
	return listed("ZNS_MEM_REFUSED", what);
}

void mem_reached(int state)
{
	static _Atomic long times;
	const char *env = getenv("ZNS_MEM_KILL");
	char *at;

	if (!env || strtol(env, &at, 10) != state || *at != '@')
		return;
	if (++times == strtol(at + 1, NULL, 10))
		kill(state == REACHED_STOP ? getppid() : getpid(), SIGKILL);
}
