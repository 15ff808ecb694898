/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A memory context without one of its rules (ZNS_MEM_WITHOUT=NUMBER,… of enum mem_rule), on a
 * kernel that refuses something (ZNS_MEM_REFUSED=NUMBER,… of enum mem_refused), or in which
 * something happens where a unit reaches a state: the pager is killed there the N-th time
 * (ZNS_MEM_KILL=STATE@N), waits there each time (ZNS_MEM_LATE=STATE@US), or is stopped there once
 * (ZNS_MEM_HALT=STATE@N). The variables are read when the process begins.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../../../zns/memory/engine/rules.h"
#include "control.h"

/* A variable's value: a bit for each number, or STATE << 32
 * N. */
enum which { WITHOUT, REFUSED, KILL, LATE, HALT, CONTROLS };
static const char *const name[CONTROLS] = {
	[WITHOUT] = "ZNS_MEM_WITHOUT", [REFUSED] = "ZNS_MEM_REFUSED", [KILL] = "ZNS_MEM_KILL",
	[LATE] = "ZNS_MEM_LATE",       [HALT] = "ZNS_MEM_HALT",
};
static _Atomic uint64_t says[CONTROLS];

static uint64_t numbers(const char *text)
{
	uint64_t bits = 0;
	char *end;

	for (; *text; text = *end ? end + 1 : end) {
		long nr = strtol(text, &end, 10);

		if (nr > 0 && nr < 64) /* 99 means none */
			bits |= 1ULL << nr;
	}
	return bits;
}

static uint64_t state_and_number(const char *text)
{
	char *at;
	uint64_t state = (uint64_t)strtol(text, &at, 10);

	return *at == '@' ? state << 32 | (uint32_t)strtol(at + 1, NULL, 10) : 0;
}

void mem_control(const char *variable, const char *value)
{
	for (int i = 0; i < CONTROLS; i++) {
		if (strcmp(variable, name[i]))
			continue;
		says[i] = !value ? 0 : i >= KILL ? state_and_number(value) : numbers(value);
		return;
	}
	fprintf(stderr, "no control is named %s\n", variable);
	abort();
}

/* Runs before the constructors of tests. */
static __attribute__((constructor(101))) void read_environment(void)
{
	for (int i = 0; i < CONTROLS; i++)
		mem_control(name[i], getenv(name[i]));
}

static bool listed(enum which which, unsigned int nr)
{
	return says[which] >> nr & 1;
}

bool mem_without(enum mem_rule rule)
{
	return listed(WITHOUT, rule);
}

bool mem_refused(enum mem_refused what)
{
	return listed(REFUSED, what);
}

/* Returns N of STATE@N; 0: the variable is not set, or names another state. */
static uint32_t told(enum which which, int state)
{
	uint64_t word = says[which];

	return word >> 32 == (uint64_t)state ? (uint32_t)word : 0;
}

/* Ends the pager from a process that it started, and that outlives it. */
static bool in_stop(int state)
{
	return state == REACHED_STOP || (state >= REACHED_SCRATCH && state <= REACHED_COMPARED);
}

void mem_reached(int state)
{
	static _Atomic uint32_t times, halts;
	uint32_t nr = told(KILL, state), late_us = told(LATE, state), halt = told(HALT, state);

	if (late_us)
		usleep(late_us);
	if (halt && ++halts == halt)
		/* not raise(): this process has the C library's memory of another thread */
		syscall(SYS_tgkill, syscall(SYS_getpid), syscall(SYS_gettid), SIGSTOP);
	if (nr && ++times == nr)
		kill(in_stop(state) ? getppid() : getpid(), SIGKILL);
}
