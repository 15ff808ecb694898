/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A memory context without one of its rules (ZNS_MEM_WITHOUT=NUMBER,… of enum mem_rule), on a
 * kernel that refuses something (ZNS_MEM_REFUSED=NUMBER,… of enum mem_refused), with rings from the
 * first minute on (ZNS_MEM_RING=1, as without RULE_UNMAPPED), killed when a unit reaches a state
 * (ZNS_MEM_KILL=STATE@N, the N-th time), late there (ZNS_MEM_LATE=STATE@US, each time), or standing
 * still there, all threads of it (ZNS_MEM_HALT=STATE@N, once).
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

/* What stands behind STATE@ in a variable; 0: nothing, or another state. */
static long told(const char *variable, int state)
{
	const char *env = getenv(variable);
	char *at;

	return env && strtol(env, &at, 10) == state && *at == '@' ? strtol(at + 1, NULL, 10) : 0;
}

void mem_reached(int state)
{
	static _Atomic long times, halts;
	long nr = told("ZNS_MEM_KILL", state), late_us = told("ZNS_MEM_LATE", state);
	long halt = told("ZNS_MEM_HALT", state);

	if (late_us)
		usleep((useconds_t)late_us);
	if (halt && ++halts == halt)
		raise(SIGSTOP);
	if (nr && ++times == nr)
		kill(state == REACHED_STOP ? getppid() : getpid(), SIGKILL);
}
