/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_BUCKET_H
#define ZNS_BUCKET_H
/*
 * A token bucket: limits the bytes per second of all threads that take from it (design.md §5,
 * `--zns-qos-max`). It starts empty: at any moment, no more than rate x (time since the first take)
 * has passed. At most one burst passes at once: 10 ms of the rate, or 64 KiB if that is more.
 * Takers are served in order of arrival, but urgent ones before all others. An urgent take delays
 * the other takers accordingly, so the rate holds.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct zns_bucket;

struct zns_bucket *zns_bucket_new(void); /* a bucket without a limit; NULL: out of memory */
void zns_bucket_free(struct zns_bucket *b); /* @b may be NULL; no thread may be waiting in it */

/* Sets the limit; 0: no limit. It applies to takes from now on. A take that is already waiting may
 * wait a tenth of a second longer. */
void zns_bucket_set(struct zns_bucket *b, uint32_t mibps);
uint32_t zns_bucket_rate(struct zns_bucket *b); /* the limit in MiB/s; 0: none */
/* Sets a second limit, for the bytes of zns_bucket_take and of zns_bucket_take_shared together. 0:
 * none. */
void zns_bucket_cap(struct zns_bucket *b, uint32_t mibps);

/* The largest take that still gives an even rate: 5 ms of the limit, at least 64 KiB. SIZE_MAX: no
 * limit. */
size_t zns_bucket_slice(struct zns_bucket *b);

/* Bytes that have passed so far, also while there was no limit. */
uint64_t zns_bucket_passed(struct zns_bucket *b);

/* Waits until @bytes may pass. @b NULL: returns at once. @urgent: a task is stopped until these
 * bytes arrive. */
void zns_bucket_take(struct zns_bucket *b, size_t bytes, bool urgent);

/* Like zns_bucket_take, for bytes that were not read from the device: only the second limit applies
 * to them, and zns_bucket_passed does not count them. */
void zns_bucket_take_shared(struct zns_bucket *b, size_t bytes, bool urgent);

/* Wakes all waiting takers and makes all later takes return at once; to be called when the
 * operation has failed elsewhere. */
void zns_bucket_stop(struct zns_bucket *b);

#endif
