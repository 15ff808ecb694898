/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The token bucket, implemented as a schedule: each take gets the time at which the rate allows it,
 * and sleeps until then. These times are absolute, so that a late wake-up does not reduce the rate.
 * An urgent take gets the earliest time after what has already passed, and the times of all waiting
 * takes move back by its cost.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include "zns/bucket.h"
#include "zns/util.h"

#define SECOND 1000000000u
#define BURST_NS 10000000u
#define SLICE_MIN KIB(64)
#define SLICES_PER_S 200

struct limit {
	uint32_t mibps;
	/* the time at which the rate allows the next take; 0: nothing was taken yet */
	uint64_t earned_ns;
	/* the time at which the rate allows everything that has passed, and all urgent takes; 0:
	 * there are none */
	uint64_t passed_ns;
	uint64_t urgent_ns; /* sum of the costs of all urgent takes so far, as a time */
};

/* One take's place in the schedule of one limit. It moves back when urgent takes come later. */
struct turn {
	uint64_t due_ns; /* when it may pass; 0: at once */
	uint64_t urgent_ns; /* the limit's urgent_ns at the time of the take */
	bool urgent;
};

struct zns_bucket {
	pthread_mutex_t lock;
	pthread_cond_t stopped;
	bool stop;
	/* two limits: for bytes that the device transfers, and for all bytes */
	struct limit device, all;
	uint64_t passed; /* in bytes */
};

struct zns_bucket *zns_bucket_new(void)
{
	struct zns_bucket *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	pthread_mutex_init(&b->lock, NULL);
	pthread_cond_init(&b->stopped, NULL);
	return b;
}

void zns_bucket_free(struct zns_bucket *b)
{
	if (!b)
		return;
	pthread_mutex_destroy(&b->lock);
	pthread_cond_destroy(&b->stopped);
	free(b);
}

static void set(struct zns_bucket *b, struct limit *l, uint32_t mibps)
{
	pthread_mutex_lock(&b->lock);
	if (l->mibps != mibps && !l->mibps)
		/* without a limit nothing was counted, so start with an empty schedule */
		l->earned_ns = l->passed_ns = 0;
	l->mibps = mibps;
	pthread_mutex_unlock(&b->lock);
}

void zns_bucket_set(struct zns_bucket *b, uint32_t mibps)
{
	set(b, &b->device, mibps);
}

void zns_bucket_cap(struct zns_bucket *b, uint32_t mibps)
{
	set(b, &b->all, mibps);
}

uint32_t zns_bucket_rate(struct zns_bucket *b)
{
	uint32_t mibps;

	pthread_mutex_lock(&b->lock);
	mibps = b->device.mibps;
	pthread_mutex_unlock(&b->lock);
	return mibps;
}

uint64_t zns_bucket_passed(struct zns_bucket *b)
{
	uint64_t passed;

	pthread_mutex_lock(&b->lock);
	passed = b->passed;
	pthread_mutex_unlock(&b->lock);
	return passed;
}

size_t zns_bucket_slice(struct zns_bucket *b)
{
	uint64_t mibps = b ? zns_bucket_rate(b) : 0;

	return mibps ? zns_max(SLICE_MIN, zns_align_down(MIB(mibps) / SLICES_PER_S, SLICE_MIN)) :
		       SIZE_MAX;
}

static struct turn earn(struct limit *l, uint64_t now, size_t bytes, bool urgent)
{
	uint64_t rate = MIB(l->mibps), after = urgent ? l->passed_ns : l->earned_ns;
	uint64_t burst_ns, cost_ns, from;

	if (!rate || !bytes)
		return (struct turn){ 0 };
	burst_ns = zns_max((uint64_t)BURST_NS, SLICE_MIN * SECOND / rate);
	cost_ns = (uint64_t)((unsigned __int128)bytes * SECOND / rate);
	from = after ? zns_max(after, now - zns_min(now, burst_ns)) : now;
	l->earned_ns = zns_max(l->earned_ns, from) + cost_ns;
	if (urgent) {
		l->passed_ns = from + cost_ns;
		l->urgent_ns += cost_ns;
	}
	return (struct turn){ from + cost_ns, l->urgent_ns, urgent };
}

static uint64_t due(const struct limit *l, const struct turn *t)
{
	return t->due_ns && !t->urgent ? t->due_ns + l->urgent_ns - t->urgent_ns : t->due_ns;
}

static void wait_until(struct zns_bucket *b, uint64_t ns)
{
	struct timespec ts = { .tv_sec = (time_t)(ns / SECOND), .tv_nsec = (long)(ns % SECOND) };

	while (!b->stop && !pthread_cond_clockwait(&b->stopped, &b->lock, CLOCK_MONOTONIC, &ts))
		;
}

static void pass(struct zns_bucket *b, size_t bytes, size_t device_bytes, bool urgent)
{
	uint64_t now, waited = 0, until;
	struct turn device, all;

	pthread_mutex_lock(&b->lock);
	now = zns_mono_ns();
	device = earn(&b->device, now, device_bytes, urgent);
	all = earn(&b->all, now, bytes, urgent);
	/* repeated, because an urgent take may have moved the time back meanwhile */
	while ((until = zns_max(due(&b->device, &device), due(&b->all, &all))) > waited &&
	       !b->stop) {
		wait_until(b, until);
		waited = until;
	}
	b->device.passed_ns = zns_max(b->device.passed_ns, due(&b->device, &device));
	b->all.passed_ns = zns_max(b->all.passed_ns, due(&b->all, &all));
	b->passed += device_bytes;
	pthread_mutex_unlock(&b->lock);
}

void zns_bucket_take(struct zns_bucket *b, size_t bytes, bool urgent)
{
	if (b)
		pass(b, bytes, bytes, urgent);
}

void zns_bucket_take_shared(struct zns_bucket *b, size_t bytes, bool urgent)
{
	if (b)
		pass(b, bytes, 0, urgent);
}

void zns_bucket_stop(struct zns_bucket *b)
{
	if (!b)
		return;
	pthread_mutex_lock(&b->lock);
	b->stop = true;
	pthread_cond_broadcast(&b->stopped);
	pthread_mutex_unlock(&b->lock);
}
