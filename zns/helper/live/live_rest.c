/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Decides which pages of a frozen task have to be copied, and which have a valid copy or are in the
 * parent, by the rules of Documentation/inside/live.md.
 */
#include <string.h>
#include "live.h"
#include "zns-memfd.h"
#include "zns/track_control.h"

#define AREAS_MAX (1u << 22)

int live_areas(struct packet *p, struct live_areas *a, struct zns_err *err)
{
	size_t len = (size_t)p->h.nr * sizeof(struct zw_area);
	cleanup_free struct zw_area *v = malloc(len + 1);
	uint64_t end = 0;

	if (p->nr_fd != 2 || p->h.nr > AREAS_MAX || !v || zns_pread_all(p->fd[1], v, len, 0))
		return zns_fail(err, -EPROTO, "criu sent an impossible list of areas");
	for (uint32_t n = 0; n < p->h.nr; n++) {
		if (v[n].start < end || v[n].end <= v[n].start)
			return zns_fail(err, -EPROTO, "criu sent areas that are out of order");
		end = v[n].end;
		if (zns_spans_add(&a->all, v[n].start, v[n].end) ||
		    ((v[n].how & ZW_AREA_WHOLE) &&
		     zns_spans_add(&a->whole, v[n].start, v[n].end)) ||
		    ((v[n].how & ZW_AREA_LAZY) && zns_spans_add(&a->lazy, v[n].start, v[n].end)))
			return zns_fail(err, -ENOMEM, "no memory for a list of areas");
	}
	if (track_more_areas(p->h.pid, &a->all))
		return zns_fail(err, -ENOMEM, "no memory for a list of areas");
	return 0;
}

/* Lists the pages to read now: those that were written, and pending ones that still exist. */
static int list_rest(struct live_task *t, const struct live_areas *a, const struct zns_spans *stale,
		     struct zns_spans *rest)
{
	struct zns_spans there = { 0 }, pending = { 0 };
	int ret = zns_spans_without(&t->pending, stale, &there);

	if (!ret)
		ret = zns_spans_both(&there, &a->all, &pending);
	if (!ret)
		ret = zns_spans_join(rest, &pending);
	if (!ret)
		ret = zns_spans_join(rest, &a->whole);
	zns_spans_free(&there);
	zns_spans_free(&pending);
	return ret;
}

/*
 * A tracker also protects pages of areas that criu does not dump. If a later dump includes such an
 * area, the tracker reports its pages as clean, although no checkpoint has them. This lists those
 * pages.
 */
static int list_unknown(struct live_task *t, const struct live_areas *a,
			const struct zns_spans *stale, struct zns_spans *rest, struct zns_err *err)
{
	struct zns_spans new = { 0 }, clean = { 0 }, copied = { 0 }, unknown = { 0 }, has = { 0 };
	int ret = zns_spans_without(&a->all, &t->parents_areas, &new);

	if (!ret)
		ret = zns_spans_without(&new, stale, &clean);
	for (size_t n = 0; n < t->places.nr && clean.nr && !ret; n++)
		ret = zns_spans_add(&copied, t->places.p[n].vaddr,
				    t->places.p[n].vaddr + t->places.p[n].len);
	if (!ret)
		ret = zns_spans_without(&clean, &copied, &unknown);
	if (!ret && unknown.nr)
		ret = zns_track_content(t->pid, unknown.s, unknown.nr, &has, err);
	if (!ret)
		ret = zns_spans_join(rest, &has);
	zns_spans_free(&new);
	zns_spans_free(&clean);
	zns_spans_free(&copied);
	zns_spans_free(&unknown);
	zns_spans_free(&has);
	return ret;
}

/* Keeps in @t->parent only those pages that still exist and are unchanged. */
static int leave_to_parent(struct live_task *t, const struct live_areas *a,
			   const struct zns_spans *stale, const struct zns_spans *rest)
{
	struct zns_spans there = { 0 }, clean = { 0 };
	int ret = zns_spans_both(&t->parent, &a->all, &there);

	if (!ret)
		ret = zns_spans_without(&there, stale, &clean);
	if (!ret)
		ret = zns_spans_without(&clean, rest, &t->parent);
	zns_spans_free(&there);
	zns_spans_free(&clean);
	return ret;
}

void live_areas_free(struct live_areas *a)
{
	zns_spans_free(&a->all);
	zns_spans_free(&a->whole);
	zns_spans_free(&a->lazy);
}

int live_rest(struct live *l, struct live_task *t, const struct live_areas *a,
	      struct zns_spans *rest, struct zns_spans *guards, struct zns_err *err)
{
	struct zns_spans stale = { 0 };
	int ret;

	if (l->again)
		live_keep_changed(l);
	ret = zns_track_final(t->track, a->all.s, a->all.nr, l->again, &stale, rest, guards, err);
	if (!ret && (places_drop(&t->places, stale.s, stale.nr) ||
		     places_keep(&t->places, a->all.s, a->all.nr) ||
		     list_rest(t, a, &stale, rest) || leave_to_parent(t, a, &stale, rest)))
		ret = zns_fail(err, -ENOMEM, "no memory for lists of pages");
	if (!ret && t->kept && list_unknown(t, a, &stale, rest, err))
		ret = zns_fail(err, -ENOMEM, "cannot list the new areas of task %d", t->pid);
	zns_spans_free(&stale);
	return ret;
}

bool live_is_tracked(struct live *l, struct live_task *t, const char *pagemap)
{
	if (t && t->kept && t->track && strcmp(pagemap, t->parents_pagemap)) {
		live_keep_changed(l);
		zns_track_free(t->track);
		t->track = NULL;
		zns_fail(&t->why, -ESTALE,
			 "the parent stores this task's pages under another image name");
	}
	return t && t->track;
}

/* -1: criu has to look for guard pages itself. */
int live_guards_fd(const struct live *l, const struct zns_spans *guards)
{
	cleanup_free struct zw_iov *v = malloc((guards->nr + 1) * sizeof(*v));
	int fd = v && l->kernel.guards ? zns_memfd("zns-guards") : -1;

	if (fd < 0)
		return -1;
	for (size_t n = 0; n < guards->nr; n++)
		v[n] = (struct zw_iov){ guards->s[n].start, guards->s[n].end - guards->s[n].start };
	if (!zns_pwrite_all(fd, v, guards->nr * sizeof(*v), 0))
		return fd;
	close(fd);
	return -1;
}
