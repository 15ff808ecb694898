/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_CONTROL_H
#define MEM_CONTROL_H

/*
 * Acts as if @variable (one of those in rules.c) had had @value when the process began; NULL: as if
 * it were not set. May be called by any thread at any time. A pager's threads read the variables
 * all the time, so a test cannot call setenv(), which moves what getenv() reads.
 */
void mem_control(const char *variable, const char *value);

#endif
