/* SPDX-License-Identifier: GPL-2.0-only */
/* See flow.h. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "flow.h"
#include "zns/util.h"

struct ctl_flow {
	uint8_t *ring;
	size_t size; /* bytes */
	pthread_mutex_t lock; /* protects the members below */
	pthread_cond_t more, room;
	uint64_t put, taken; /* number of bytes so far */
	bool ended, left;
};

struct ctl_flow *ctl_flow_new(size_t bytes)
{
	struct ctl_flow *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->ring = malloc(bytes);
	f->size = bytes;
	if (!f->ring) {
		free(f);
		return NULL;
	}
	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->more, NULL);
	pthread_cond_init(&f->room, NULL);
	return f;
}

void ctl_flow_free(struct ctl_flow *f)
{
	if (!f)
		return;
	pthread_mutex_destroy(&f->lock);
	pthread_cond_destroy(&f->more);
	pthread_cond_destroy(&f->room);
	free(f->ring);
	free(f);
}

/*
 * A sleeping thread is woken only when this many bytes are available, or fewer if fewer are left.
 */
static size_t part(const struct ctl_flow *f, size_t len)
{
	return zns_min(len, f->size / 4);
}

static size_t used(const struct ctl_flow *f)
{
	return (size_t)(f->put - f->taken);
}

static size_t room(const struct ctl_flow *f)
{
	return f->size - used(f);
}

/* Returns how many bytes from @at on are contiguous in the ring. */
static size_t in_one(const struct ctl_flow *f, uint64_t at, size_t len)
{
	return zns_min(len, f->size - (size_t)(at % f->size));
}

int ctl_flow_put(void *flow, const void *buf, size_t len)
{
	struct ctl_flow *f = flow;
	const uint8_t *from = buf;

	while (len) {
		bool left;
		size_t n;

		pthread_mutex_lock(&f->lock);
		while (room(f) < part(f, f->size) && !f->left)
			pthread_cond_wait(&f->room, &f->lock);
		left = f->left;
		n = in_one(f, f->put, zns_min(len, room(f)));
		pthread_mutex_unlock(&f->lock);
		if (left)
			return -EPIPE;
		memcpy(f->ring + f->put % f->size, from, n);
		from += n;
		len -= n;
		pthread_mutex_lock(&f->lock);
		f->put += n;
		pthread_cond_signal(&f->more);
		pthread_mutex_unlock(&f->lock);
	}
	return 0;
}

void ctl_flow_end(struct ctl_flow *f)
{
	pthread_mutex_lock(&f->lock);
	f->ended = true;
	pthread_cond_signal(&f->more);
	pthread_mutex_unlock(&f->lock);
}

size_t ctl_flow_next(struct ctl_flow *f, size_t most, const uint8_t **at)
{
	size_t n;

	pthread_mutex_lock(&f->lock);
	while (used(f) < part(f, most) && !f->ended)
		pthread_cond_wait(&f->more, &f->lock);
	n = in_one(f, f->taken, zns_min(most, used(f)));
	*at = f->ring + f->taken % f->size;
	pthread_mutex_unlock(&f->lock);
	return n;
}

void ctl_flow_done(struct ctl_flow *f, size_t n)
{
	pthread_mutex_lock(&f->lock);
	f->taken += n;
	if (room(f) >= part(f, f->size))
		pthread_cond_signal(&f->room);
	pthread_mutex_unlock(&f->lock);
}

size_t ctl_flow_take(struct ctl_flow *f, void *buf, size_t len)
{
	uint8_t *to = buf;
	const uint8_t *at;
	size_t have = 0, n;

	while (have < len && (n = ctl_flow_next(f, len - have, &at))) {
		memcpy(to + have, at, n);
		have += n;
		ctl_flow_done(f, n);
	}
	return have;
}

void ctl_flow_leave(struct ctl_flow *f)
{
	pthread_mutex_lock(&f->lock);
	f->left = true;
	pthread_cond_signal(&f->room);
	pthread_mutex_unlock(&f->lock);
}
