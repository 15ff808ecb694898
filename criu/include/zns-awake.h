/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_AWAKE_H__
#define __CR_ZNS_AWAKE_H__
/*
 * Keeps idle CPUs from sleep (/dev/cpu_dma_latency) while criu and tasks wake each other: a CPU
 * that slept takes longer to wake than they work. Who may not ask for that does without.
 *
 * awake: from now on, for @ms at most; 0: without a limit. timeout: for a loop that waits, which
 * calls it before each wait of @ms (-1: for ever); returns how long it may wait, and ends what has
 * lasted its time. A process that ends lets them sleep.
 */
void zns_cpus_awake(unsigned int ms);
int zns_cpus_timeout(int ms);
void zns_cpus_may_sleep(void);

#endif
