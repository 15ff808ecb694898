/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * After the thaw: writes the staged pages, and composes each pages image from the copies of rounds
 * and freeze.
 */
#include <string.h>
#include <sys/mman.h>
#include "live.h"
#include "zns/grow.h"

#define RESTS_MAX 64 /* most entries of `rests` in a record */

static int compose(struct live *l, const struct live_task *t, struct zns_err *err)
{
	struct zns_wimage *from[LIVE_ROUNDS_MAX + 2], *named = paged_image(l->d->paged);
	uint32_t nr_from = l->nr_parts;
	struct runs runs = { 0 };
	int ret = 0;

	if (t->image == LIVE_NO_IMAGE || t->entries)
		return zns_fail(err, -EPROTO, "criu lost an image of task %d", t->pid);
	memcpy(from, l->part, nr_from * sizeof(*from));
	if (named)
		from[nr_from++] = named;
	for (size_t n = 0; n < t->places.nr && !ret; n++) {
		const struct place *p = &t->places.p[n];

		if (p->source == LIVE_PAGED)
			ret = paged_runs(l->d->paged, p, l->nr_parts, &runs);
		else
			ret = paged_add(&runs, p->len, p->source, p->at);
	}
	if (ret)
		zns_fail(err, -ENOMEM, "no memory for image %s", l->d->pages[t->image].name);
	else
		ret = zns_writer_compose(l->d->v.w, l->d->pages[t->image].name, from, nr_from,
					 runs.v, runs.nr, err);
	free(runs.v);
	return ret;
}

static int add_rest(ZnsPb__Live *r, const char *why, uint64_t bytes, pid_t pid)
{
	ZnsPb__LiveRest *e;

	if (!bytes || r->n_rests == RESTS_MAX)
		return 0;
	e = malloc(sizeof(*e));
	if (!e || zns_grow_by_one(r->rests, r->n_rests)) {
		free(e);
		return -ENOMEM;
	}
	zns_pb__live_rest__init(e);
	e->bytes = bytes;
	e->has_pid = pid > 0;
	e->pid = (uint32_t)pid;
	e->why = strdup(why);
	r->rests[r->n_rests++] = e;
	return e->why ? 0 : -ENOMEM;
}

static int add_round(ZnsPb__Live *r, const struct live_round *round)
{
	ZnsPb__LiveRound *e = malloc(sizeof(*e));

	if (!e || zns_grow_by_one(r->rounds, r->n_rounds)) {
		free(e);
		return -ENOMEM;
	}
	zns_pb__live_round__init(e);
	e->bytes = round->bytes;
	e->us = round->us;
	r->rounds[r->n_rounds++] = e;
	return 0;
}

int live_describe(const struct dump *d, ZnsPb__Checkpoint *c)
{
	/* An incremental dump without rounds is no live dump: its record has no `live`. */
	const struct live *l = d->live && (d->live->nr_rounds || d->live->wanted) ? d->live : NULL;
	ZnsPb__Live *r = l ? malloc(sizeof(*r)) : NULL;
	int ret = 0;

	if (!l)
		return 0;
	if (!r)
		return -ENOMEM;
	zns_pb__live__init(r);
	c->live = r;
	r->has_not_converging = r->not_converging = l->not_converging;
	r->tracker = strdup(zns_tracker_name(l->kernel.tracker));
	if (!r->tracker)
		return -ENOMEM;
	for (uint32_t n = 0; n < l->nr_rounds && !ret; n++)
		ret = add_round(r, &l->round[n]);
	if (!ret)
		ret = add_rest(r, l->gave_up ? l->gave_up : "written since the last round",
			       l->frozen_bytes, 0);
	if (!ret)
		ret = add_rest(r, "shared memory", l->shared_bytes, 0);
	for (size_t n = 0; n < l->nr_tasks && !ret; n++)
		ret = add_rest(r, l->task[n].why.msg, l->task[n].untracked, l->task[n].pid);
	return ret;
}

int live_finish(struct dump *d, struct zns_err *err)
{
	struct live *l = d->live;
	int ret = 0;

	if (!l || !l->nr_parts)
		return 0;
	ret = live_flush_stage(l, err);
	if (!ret)
		ret = zns_wimage_seal(l->part[l->nr_parts - 1], err);
	if (l->stage)
		munmap(l->stage, LIVE_STAGE_BYTES);
	l->stage = NULL;
	if (!ret)
		ret = paged_name(d, err);
	for (size_t n = 0; n < l->nr_tasks && !ret; n++) {
		ret = live_maps_check(&l->task[n], err);
		if (!ret && l->task[n].final)
			ret = compose(l, &l->task[n], err);
	}
	return ret;
}
