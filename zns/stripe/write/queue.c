/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Units of work, and the queue between the threads that feed images and the workers. */
#include "writer.h"

/* Number of units. If a feeding thread were woken for every free place, it would spend more time
 * waking up than feeding. If it were woken less often than this, it would check the weights too
 * late. */
#define ROOM 8

struct job *job_new(struct zns_wimage *img)
{
	struct job *j = calloc(1, sizeof(*j));

	if (j)
		j->img = img;
	return j;
}

void job_free(struct zns_writer *w, struct job *j)
{
	if (!j)
		return;
	if (j->data)
		pool_put(&w->pool, j->data);
	w->queue.nr_data -= j->counted;
	free(j->iov);
	free(j);
}

static uint32_t taken(const struct job *j)
{
	return j->lane ? j->lane->taken : 0;
}

/* May a worker take a unit of this lane now, or do workers already have enough units of it? */
NEEDS_LOCK static bool may_take(const struct zns_writer *w, const struct job *j)
{
	uint32_t spare = w->crew.wanted > w->lanes.nr ? w->crew.wanted - w->lanes.nr : 1;

	return !taken(j) || w->queue.nr_ahead < spare || w->stop || w->err.code;
}

void queue_push(struct zns_writer *w, struct job *j)
{
	j->next = NULL;
	*w->queue.tail = j;
	w->queue.tail = &j->next;
	w->queue.nr++;
	if (may_take(w, j))
		pthread_cond_signal(&w->work);
}

void queue_tell_room(struct zns_writer *w)
{
	if (w->queue.nr + zns_min((uint32_t)ROOM, w->queue.max / 4) <= w->queue.max)
		pthread_cond_broadcast(&w->room);
}

/* Chooses the next unit: the oldest unit of a lane that no worker serves. If there is none, and
 * enough workers are left for all lanes, one of the lane with the fewest workers, which is then
 * read and hashed in advance. So a slow zone never occupies all workers. */
struct job *queue_take(struct zns_writer *w)
{
	struct job **best = NULL, *j;

	for (struct job **p = &w->queue.first; *p; p = &(*p)->next)
		if (!best || taken(*p) < taken(*best))
			best = p;
	if (!best || !may_take(w, *best))
		return NULL;
	j = *best;
	*best = j->next;
	if (!j->next)
		w->queue.tail = best;
	if (j->lane)
		w->queue.nr_ahead += j->lane->taken++ > 0;
	w->queue.nr--;
	w->queue.nr_running++;
	return j;
}

void queue_done(struct zns_writer *w, struct lane *l)
{
	w->queue.nr_running--;
	if (l)
		w->queue.nr_ahead -= --l->taken > 0;
}
