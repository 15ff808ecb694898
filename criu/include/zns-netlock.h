/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_NETLOCK_H__
#define __CR_ZNS_NETLOCK_H__
/*
 * The lock of the network in a dump into zones. It is criu's: an nftables table of this dump's own
 * name, or chains and rules of iptables. Here is what is done in another way: nftables unless
 * --network-lock says something else, few transactions in the freeze, a lock that does not outlive
 * a criu that is killed, and that blocks no more than connections once the tasks have ended.
 */
#include <stdbool.h>
#include <sys/types.h>

struct inet_sk_desc;

/* zns-netlock.c */

/* sets the method that --network-lock, or the field of an RPC request, names */
void zns_netlock_given(void);
void zns_netlock_choose(void); /* a dump into zones begins */
/* Called before the freeze: prepares the lock of @pid's network namespace. */
int zns_netlock_begin(pid_t pid);
/*
 * criu locks the namespace, or prepares to lock connections, locks one (or, in a locked namespace,
 * dumps one), unlocks. 0: done; -1: an error, printed; 1: criu's own way.
 */
int zns_netlock_whole(void);
int zns_netlock_conns(void);
int zns_netlock_conn(const struct inet_sk_desc *sk);
int zns_netlock_unlock(void);
void zns_netlock_finish(void); /* the tasks run on or have ended */

/* zns-netwatch.c */

/* Forks a process that waits for our end. If the lock is held then, it enters @netns and calls
 * @lift. */
int zns_netwatch_start(int netns, void (*lift)(void));
void zns_netwatch_held(bool now);
/* @socket is, or will be, in repair mode: its task cannot use it. The watcher ends that, too. */
void zns_netwatch_repairs(int socket);
void zns_netwatch_end(void); /* ends the watcher */

#endif
