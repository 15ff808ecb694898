/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a thread that feeds an image does with a unit: waits for room in the queue, gives the unit a
 * place, and queues it. While it waits, it does what only such a thread may do: gives units of
 * failed zones new places, and checks whether the weights still fit the speeds of the zones.
 */
#include "writer.h"

void feeder_wait(struct zns_writer *w, bool more)
{
	if (w->zones.nr_unrepaired) {
		repair_now(w);
	} else {
		writer_sleep(w, more ? &w->room : &w->idle);
		weights_look(w, more);
	}
}

void feeder_wait_room(struct zns_writer *w, bool data)
{
	/* units of a failed zone count as queued until a repair gives them new places */
	while ((w->zones.nr_unrepaired || w->queue.nr >= w->queue.max ||
		(data && w->queue.nr_data >= w->queue.max_data)) &&
	       !w->err.code)
		feeder_wait(w, true);
}

/*
 * The lock is held from the placement of the unit until it is queued; otherwise two units of one
 * zone could be queued in the wrong order. So a caller that places the job itself must have waited
 * for room before that.
 */
int enqueue(struct zns_writer *w, struct job *j, uint64_t hint_units)
{
	int ret = 0;

	if (j->img)
		feeder_wait_room(w, j->data);
	if (w->err.code)
		ret = w->err.code;
	if (!ret && j->img) {
		j->k = j->img->nr_units;
		ret = lanes_place(w, j, hint_units);
	}
	if (ret) {
		if (j->img && !j->data)
			j->img->ungathered--;
		job_free(w, j);
		writer_wake(w);
		return ret;
	}
	if (j->img) {
		j->img->nr_units++;
		j->img->pb.size += j->len;
		w->stats.bytes += j->len;
		if (j->img->pages)
			w->stats.page_bytes += j->len;
	}
	if (j->img && j->data)
		rescue_keep_data(w, j->img, j->k, j->data, j->len, j->ready);
	j->counted = j->data != NULL;
	w->queue.nr_data += j->counted;
	queue_push(w, j);
	return 0;
}
