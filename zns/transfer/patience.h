/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_PATIENCE_H
#define ZNS_CTL_PATIENCE_H
/*
 * How long a command waits for a peer, who may stop in the middle to send, or to take. It is a
 * bucket: time spent waiting empties it, and each byte fills it at CTL_PATIENCE_RATE. A peer that
 * keeps that rate may take for ever. A peer that stops is waited for until the limit, and one that
 * only trickles for little longer. Time that the command itself takes, such as for writes to slow
 * zones, does not count.
 */
#include <stdbool.h>
#include <stdint.h>
#include "zns/err.h"

#define CTL_PATIENCE_RATE (64U << 10) /* bytes a second */

struct ctl_patience {
	uint64_t limit_s; /* 0: for ever */
	uint64_t full, left; /* bytes */
};

void ctl_patience_start(struct ctl_patience *p, uint64_t limit_s);
/* Add a time of waiting. False: the limit is exceeded. */
bool ctl_patience_waited(struct ctl_patience *p, uint64_t ns);
/* Add the time since @from_ns (zns_mono_ns), after a wait of a second at most: what is far more was
 * a time in which this process was stopped itself. */
bool ctl_patience_ticked(struct ctl_patience *p, uint64_t from_ns);
void ctl_patience_got(struct ctl_patience *p, uint64_t bytes);
/* Waits until @fd can be read or has ended. -ETIMEDOUT: the limit is exceeded. NULL: no limit. */
int ctl_patience_wait(struct ctl_patience *p, int fd);
/* Writes all bytes to a descriptor of any kind; for a regular file there is no limit. -ETIMEDOUT:
 * the limit is exceeded; else the error of write(), or -EINTR with a text: ctl_caught(). Uses
 * SIGALRM, and unblocks it. */
int ctl_patience_write(struct ctl_patience *p, int fd, const void *buf, size_t len,
		       struct zns_err *err);
/* Makes the error text for -ETIMEDOUT. @who_did: subject and verb, such as "the registry sent". */
int ctl_patience_fail(const struct ctl_patience *p, const char *who_did, struct zns_err *err);

#endif
