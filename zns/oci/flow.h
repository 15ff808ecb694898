/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_FLOW_H
#define ZNS_CTL_FLOW_H
/*
 * Passes bytes from one thread to another, like a pipe, but copies in user space and wakes the
 * other thread only for larger parts. One thread writes; one thread at a time reads.
 */
#include <stddef.h>
#include <stdint.h>

struct ctl_flow;

struct ctl_flow *ctl_flow_new(size_t bytes); /* @bytes: size of the buffer; NULL: no memory */
/* call it when both threads have ended; @f may be NULL */
void ctl_flow_free(struct ctl_flow *f);

/* Writes, and waits for room. Returns 0; -EPIPE: the reader has left. */
int ctl_flow_put(void *flow, const void *buf, size_t len);
void ctl_flow_end(struct ctl_flow *f); /* called by the writer: there are no more data */

/* Reads @len bytes and waits for them. Returns fewer only at the end. */
size_t ctl_flow_take(struct ctl_flow *f, void *buf, size_t len);
/*
 * Gives access to bytes in the buffer: waits until there are some, and returns how many, at most
 * @most; 0: the end. They stay valid until ctl_flow_done() is called with that number.
 */
size_t ctl_flow_next(struct ctl_flow *f, size_t most, const uint8_t **at);
void ctl_flow_done(struct ctl_flow *f, size_t n);
void ctl_flow_leave(struct ctl_flow *f); /* called by the reader: it reads no more */

#endif
