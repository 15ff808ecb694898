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

struct zns_bucket *zns_bucket_new(void); /* without a limit; NULL: no memory */
void zns_bucket_free(struct zns_bucket *b); /* NULL is fine; nobody may be in it */

/* 0: no limit. Counts for takes from now on. A take under way waits a tenth of a second longer at
 * most. */
void zns_bucket_set(struct zns_bucket *b, uint32_t mibps);
uint32_t zns_bucket_rate(struct zns_bucket *b); /* MiB/s; 0: no limit */
/* A second limit, for these bytes and those of zns_bucket_take_shared together. 0: none. */
void zns_bucket_cap(struct zns_bucket *b, uint32_t mibps);

/* Take at most this at once, so that the rate is even: 5 ms of it, 64 KiB at least. SIZE_MAX: no
 * limit. */
size_t zns_bucket_slice(struct zns_bucket *b);

/* Bytes that were let pass so far, with a limit or without. */
uint64_t zns_bucket_passed(struct zns_bucket *b);

/* Wait until @bytes may pass. @b NULL: at once. @urgent: a task stands still for them. */
void zns_bucket_take(struct zns_bucket *b, size_t bytes, bool urgent);

/* The same for bytes that did not come from the device: the second limit alone holds for them, and
 * they do not count as passed. */
void zns_bucket_take_shared(struct zns_bucket *b, size_t bytes, bool urgent);

/* Wake all takers, and let nobody wait any more: something else has failed. */
void zns_bucket_stop(struct zns_bucket *b);

#endif
