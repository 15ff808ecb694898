/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_BUCKET_H
#define ZNS_BUCKET_H
/*
 * A token bucket: bytes per second over all threads that take from it (design.md §5,
 * `--zns-qos-max`). It begins empty: since the first take no more than rate x time has passed, at
 * any moment. At most one burst passes at once: what the rate gives in 10 ms, or 64 KiB if that is
 * more. Takers are served in the order in which they come, urgent ones before all others: those
 * who wait pass later by what the urgent one takes, so the rate holds.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct zns_bucket;

struct zns_bucket *zns_bucket_new(void); /* a bucket without a limit; NULL: no memory */
void zns_bucket_free(struct zns_bucket *b); /* NULL is fine; no thread may wait in it */

/* 0: no limit. Applies to takes from now on. A take under way waits at most a tenth of a second
 * longer. */
void zns_bucket_set(struct zns_bucket *b, uint32_t mibps);
uint32_t zns_bucket_rate(struct zns_bucket *b); /* the limit in MiB/s; 0: none */
/* A second limit, for these bytes together with those of zns_bucket_take_shared. 0: none. */
void zns_bucket_cap(struct zns_bucket *b, uint32_t mibps);

/* The most to take at once for an even rate: 5 ms of the limit, at least 64 KiB. SIZE_MAX: no
 * limit. */
size_t zns_bucket_slice(struct zns_bucket *b);

/* Bytes that were let pass so far, with a limit or without. */
uint64_t zns_bucket_passed(struct zns_bucket *b);

/* Wait until @bytes may pass. @b NULL: at once. @urgent: a task stands still for them. */
void zns_bucket_take(struct zns_bucket *b, size_t bytes, bool urgent);

/* The same for bytes that did not come from the device: the second limit alone holds for them, and
 * they do not count as passed. */
void zns_bucket_take_shared(struct zns_bucket *b, size_t bytes, bool urgent);

/* Wakes all takers, and makes all later takes return at once: for use after an error elsewhere. */
void zns_bucket_stop(struct zns_bucket *b);

#endif
