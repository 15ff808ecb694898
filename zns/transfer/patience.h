/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_PATIENCE_H
#define ZNS_CTL_PATIENCE_H
/*
 * Limits how long a command waits for a peer, who may stop sending or receiving at any time. It is
 * a bucket: time spent waiting empties it, and each byte fills it at CTL_PATIENCE_RATE. A peer that
 * keeps to this rate is never cut off. A peer that stops is cut off after the limit, and one that
 * sends only a few bytes soon after that. Time that the command itself needs, such as for writes to
 * slow zones, does not count.
 */
#include <stdbool.h>
#include <stdint.h>
#include "zns/err.h"

#define CTL_PATIENCE_RATE (64U << 10) /* bytes per second */

struct ctl_patience {
	uint64_t limit_s; /* s; 0: no limit */
	uint64_t full, left; /* full: most bytes in the bucket; left: bytes in it now */
};

void ctl_patience_start(struct ctl_patience *p, uint64_t limit_s);
/* Adds ns of waiting. False: the limit is exceeded. */
bool ctl_patience_waited(struct ctl_patience *p, uint64_t ns);
/*
 * Adds the time since @from_ns (zns_mono_ns()), after a wait of at most a second. If far more has
 * passed, this process itself was stopped, and the excess does not count.
 */
bool ctl_patience_ticked(struct ctl_patience *p, uint64_t from_ns);
void ctl_patience_got(struct ctl_patience *p, uint64_t bytes);
/*
 * Waits until @fd is readable or at its end. -ETIMEDOUT: the limit is exceeded. @p NULL: no limit.
 */
int ctl_patience_wait(struct ctl_patience *p, int fd);
/*
 * Writes all bytes to a descriptor of any kind; a regular file has no limit. Errors: -ETIMEDOUT:
 * the limit is exceeded; -EINTR, with the text of ctl_caught(): a signal came; else the error of
 * write(). Uses SIGALRM, and unblocks it.
 */
int ctl_patience_write(struct ctl_patience *p, int fd, const void *buf, size_t len,
		       struct zns_err *err);
/* Fills @err for -ETIMEDOUT. @who_did: subject and verb, such as "the registry sent". */
int ctl_patience_fail(const struct ctl_patience *p, const char *who_did, struct zns_err *err);

#endif
