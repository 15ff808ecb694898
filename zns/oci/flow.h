/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_FLOW_H
#define ZNS_CTL_FLOW_H
/*
 * Bytes from one thread to another, as through a pipe, but copied in user space, and nobody is
 * woken for less than a part of it. One thread puts, one at a time takes.
 */
#include <stddef.h>
#include <stdint.h>

struct ctl_flow;

struct ctl_flow *ctl_flow_new(size_t bytes); /* of its buffer; NULL: no memory */
void ctl_flow_free(struct ctl_flow *f); /* both have ended; NULL is fine */

/* Waits for room. 0; -EPIPE: nobody takes any more. */
int ctl_flow_put(void *flow, const void *buf, size_t len);
void ctl_flow_end(struct ctl_flow *f); /* called by the producer: there is no more data */

/* Waits. Fewer than @len bytes only at the end. */
size_t ctl_flow_take(struct ctl_flow *f, void *buf, size_t len);
/* The same where they lie: waits for some, at most @most, and says how many; 0: the end. They stay
 * until ctl_flow_done() of so many. */
size_t ctl_flow_next(struct ctl_flow *f, size_t most, const uint8_t **at);
void ctl_flow_done(struct ctl_flow *f, size_t n);
void ctl_flow_leave(struct ctl_flow *f); /* called by the consumer: it takes no more data */

#endif
