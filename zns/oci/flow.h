/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_FLOW_H
#define ZNS_CTL_FLOW_H
/* Passes bytes from one thread to another like a pipe, but copies in user space, and wakes the
 * other thread only for larger parts. One thread puts, one at a time takes. */
#include <stddef.h>
#include <stdint.h>

struct ctl_flow;

struct ctl_flow *ctl_flow_new(size_t bytes); /* size of its buffer; NULL: no memory */
/* to be called when both threads have ended; NULL is fine */
void ctl_flow_free(struct ctl_flow *f);

/* Waits for room. 0; -EPIPE: the consumer has left. */
int ctl_flow_put(void *flow, const void *buf, size_t len);
void ctl_flow_end(struct ctl_flow *f); /* called by the producer: there is no more data */

/* Waits. Fewer than @len bytes only at the end. */
size_t ctl_flow_take(struct ctl_flow *f, void *buf, size_t len);
/* Gives access to the bytes in the buffer: waits until there are some, and returns how many, at
 * most @most; 0: the end. They stay valid until ctl_flow_done() with that number. */
size_t ctl_flow_next(struct ctl_flow *f, size_t most, const uint8_t **at);
void ctl_flow_done(struct ctl_flow *f, size_t n);
void ctl_flow_leave(struct ctl_flow *f); /* called by the consumer: it takes no more data */

#endif
