/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_AWAKE_H__
#define __CR_ZNS_AWAKE_H__
/*
 * Keeps idle CPUs from sleep (/dev/cpu_dma_latency) while criu and tasks wake each other: waking a
 * sleeping CPU takes longer than their work. Without the right to ask for that nothing changes.
 *
 * awake: from now on, for at most @ms; 0: without a limit. timeout: for a loop that waits; called
 * before each wait of @ms (-1: for ever), it returns how long the loop may wait, and ends a request
 * whose time is over. CPUs may sleep again when the process ends.
 */
void zns_cpus_awake(unsigned int ms);
int zns_cpus_timeout(int ms);
void zns_cpus_may_sleep(void);

#endif
