/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The tasks of a live dump. They are found in /proc, and each is tracked from the round in which it
 * is first seen.
 */
#include <string.h>
#include "live.h"
#include "zns/grow.h"

struct live_task *live_find(struct live *l, pid_t pid)
{
	for (size_t n = 0; n < l->nr_tasks; n++)
		if (l->task[n].pid == pid)
			return &l->task[n];
	return NULL;
}

static void forget(struct live *l, size_t n)
{
	struct live_task *t = &l->task[n];

	/*
	 * no page was protected anew, so the keeper still needs the tracker: leave the protection
	 * in place
	 */
	if (t->kept && !l->keep.changed)
		zns_track_leave(t->track);
	else
		zns_track_free(t->track);
	places_free(&t->places);
	zns_spans_free(&t->pending);
	zns_spans_free(&t->parent);
	zns_spans_free(&t->areas);
	zns_spans_free(&t->parents_areas);
	zns_spans_free(&t->send);
	live_maps_free(&t->before);
	live_maps_free(&t->frozen);
	free(t->entries);
	*t = l->task[--l->nr_tasks];
}

static int add(struct live *l, pid_t pid, struct zns_err *err)
{
	struct live_task *t;
	int ret;

	if (zns_grow(l->task, l->nr_tasks, l->max_tasks))
		return zns_fail(err, -ENOMEM, "no memory for a list of tasks");
	t = &l->task[l->nr_tasks++];
	*t = (struct live_task){ .pid = pid, .image = LIVE_NO_IMAGE, .seen = true };
	ret = paged_has(l->d, pid, &t->memory, err);
	if (t->memory)
		return zns_fail(&t->why, -EBUSY, "its memory is partly on zones"), ret;
	if (ret || l->kernel.tracker == ZNS_TRACKER_NONE)
		return ret;
	/* A task without a tracker is copied in the freeze, and the record says why. */
	if (!live_keep_claim(l, t) && zns_track_new(pid, &l->kernel, &t->track, &t->why))
		t->track = NULL;
	return 0;
}

int live_look(struct live *l, struct zns_err *err)
{
	cleanup_free pid_t *pid = NULL;
	uint32_t nr = task_tree(l->root, &pid);
	int ret = 0;

	for (size_t n = 0; n < l->nr_tasks; n++)
		l->task[n].seen = false;
	for (uint32_t n = 0; n < nr && !ret; n++) {
		struct live_task *t = live_find(l, pid[n]);

		if (t)
			t->seen = true;
		else
			ret = add(l, pid[n], err);
	}
	for (size_t n = l->nr_tasks; n-- > 0;)
		if (!l->task[n].seen)
			forget(l, n);
	return ret;
}

int live_late(struct live *l, pid_t pid, struct live_task **t, struct zns_err *err)
{
	bool has;
	int ret = paged_has(l->d, pid, &has, err);

	if (!ret && has)
		ret = add(l, pid, err);
	*t = ret ? NULL : live_find(l, pid);
	return ret;
}

void live_end(struct live *l)
{
	if (!l)
		return;
	while (l->nr_tasks)
		forget(l, l->nr_tasks - 1);
	task_reader_end(&l->reader);
	live_keep_end(l);
	live_verify_end(l);
}

int live_new(struct dump *d, struct zns_err *err)
{
	d->live = calloc(1, sizeof(*d->live));
	if (!d->live)
		return zns_fail(err, -ENOMEM, "no memory for the dump");
	d->live->d = d;
	d->live->keep.parent = d->live->keep.next = -1;
	return 0;
}
