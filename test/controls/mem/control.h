/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_CONTROL_H
#define MEM_CONTROL_H

/*
 * As if @variable (one of those in rules.c) had had @value when the process began; NULL: as if it
 * were not set. Any thread, at any time: a pager's threads ask for it all the time, so that a test
 * must not call setenv(), which moves what getenv() reads.
 */
void mem_control(const char *variable, const char *value);

#endif
