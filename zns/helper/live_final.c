/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The freeze of a live dump: of each task, the pages that were written since the last round. What
 * is clean by every rule of Documentation/live.md stays as it was copied.
 */
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include "live.h"
#include "zns/pagemap.h"
#include "zns/grow.h"

#define AREAS_MAX (1u << 22)

/* Areas as criu lists them; those of @whole are copied as they are. */
struct areas {
	struct zns_spans all, whole;
};

static int read_areas(struct packet *p, struct areas *a, struct zns_err *err)
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
		    (v[n].whole && zns_spans_add(&a->whole, v[n].start, v[n].end)))
			return zns_fail(err, -ENOMEM, "no memory for a list of areas");
	}
	return 0;
}

/* What is to be read now: written pages, and those that were owed and are still there. */
static int list_rest(struct live_task *t, const struct areas *a, const struct zns_spans *stale,
		     struct zns_spans *rest)
{
	struct zns_spans there = { 0 }, owed = { 0 };
	int ret = zns_spans_without(&t->owed, stale, &there);

	if (!ret)
		ret = zns_spans_both(&there, &a->all, &owed);
	if (!ret)
		ret = zns_spans_join(rest, &owed);
	if (!ret)
		ret = zns_spans_join(rest, &a->whole);
	zns_spans_free(&there);
	zns_spans_free(&owed);
	return ret;
}

/* What has no good copy is forgotten, and copied now. */
static int copy_rest(struct live *l, struct live_task *t, const struct areas *a,
		     struct zns_err *err)
{
	struct zns_spans stale = { 0 }, rest = { 0 };
	uint64_t before = l->at;
	int ret = zns_track_final(t->track, a->all.s, a->all.nr, false, &stale, &rest, err);

	if (!ret &&
	    (places_drop(&t->places, stale.s, stale.nr) ||
	     places_keep(&t->places, a->all.s, a->all.nr) || list_rest(t, a, &stale, &rest)))
		ret = zns_fail(err, -ENOMEM, "no memory for lists of pages");
	if (!ret)
		ret = live_copy(l, t, &rest, err);
	if (!ret && t->owed.nr)
		ret = zns_fail(err, -EFAULT, "cannot read the memory of task %d at %llx", t->pid,
			       (unsigned long long)t->owed.s[0].start);
	if (!ret)
		ret = live_verify(l, t, &a->all, &a->whole, err);
	l->frozen_bytes += l->at - before;
	zns_spans_free(&stale);
	zns_spans_free(&rest);
	return ret;
}

static int entries(struct live_task *t, struct zns_err *err)
{
	struct zns_pagemap_run *run = malloc((t->places.nr + 1) * sizeof(*run));
	size_t nr = 0;
	int ret;

	if (!run)
		return zns_fail(err, -ENOMEM, "no memory for a pagemap");
	t->bytes = 0;
	for (size_t n = 0; n < t->places.nr; n++) {
		const struct place *p = &t->places.p[n];

		t->bytes += p->len;
		if (nr && run[nr - 1].vaddr + run[nr - 1].len == p->vaddr)
			run[nr - 1].len += p->len;
		else
			run[nr++] = (struct zns_pagemap_run){ p->vaddr, p->len };
	}
	ret = zns_pagemap_entries(run, nr, &t->entries, &t->entries_len, err);
	free(run);
	return ret;
}

int live_final(struct dump *d, struct packet *p, struct zns_err *err)
{
	struct zw_reply r = { .kind = ZW_KIND_NONE };
	struct live *l = d->live;
	struct live_task *t = l ? live_find(l, p->h.pid) : NULL;
	const char *name = packet_text(p);
	struct areas a = { 0 };
	int ret;

	if (!l || !name || strlen(name) >= ZW_NAME || (t && t->final))
		return zns_fail(err, -EPROTO, "criu sent an impossible task of a live dump");
	l->frozen = true;
	if (!t || !t->track) {
		snprintf(r.msg, sizeof(r.msg), "live: task %d is copied now: %s", p->h.pid,
			 t ? t->why.msg : "it is new");
		reply_send(p->fd[0], &r, -1);
		return 0;
	}
	ret = dump_check(d, err);
	if (!ret)
		ret = read_areas(p, &a, err);
	if (!ret)
		ret = copy_rest(l, t, &a, err);
	if (!ret)
		ret = entries(t, err);
	zns_spans_free(&a.all);
	zns_spans_free(&a.whole);
	if (ret)
		return ret;
	t->final = true;
	snprintf(t->pagemap, sizeof(t->pagemap), "%s", name);
	r.kind = ZW_KIND_PAGES;
	r.size = t->bytes;
	snprintf(r.msg, sizeof(r.msg), "live: task %d has %llu pages in %zu runs%s", t->pid,
		 (unsigned long long)t->bytes / (unsigned)getpagesize(), t->places.nr,
		 l->verify ? ", verified" : "");
	reply_send(p->fd[0], &r, -1);
	return 0;
}

int live_image(struct dump *d, struct packet *p, struct zns_err *err)
{
	struct live_task *t = d->live ? live_find(d->live, p->h.pid) : NULL;

	if (!t || !t->final || t->image != LIVE_NO_IMAGE || p->h.image >= d->nr_pages ||
	    d->pages[p->h.image].img)
		return zns_fail(err, -EPROTO, "criu sent an impossible image of a live dump");
	t->image = p->h.image;
	d->pages[t->image].live = true;
	return 0;
}

int live_fill_pagemap(struct dump *d, const char *name, int fd, struct zns_err *err)
{
	struct live_task *t = NULL;
	struct stat st;
	int ret;

	for (size_t n = 0; d->live && n < d->live->nr_tasks && !t; n++)
		if (d->live->task[n].entries && !strcmp(d->live->task[n].pagemap, name))
			t = &d->live->task[n];
	if (!t)
		return 0;
	ret = fstat(fd, &st) ? -errno : zns_pwrite_all(fd, t->entries, t->entries_len, st.st_size);
	free(t->entries);
	t->entries = NULL;
	return ret ? zns_fail_sys(err, ret, "cannot complete image %s", name) : 0;
}

void live_note_plain(struct dump *d, pid_t pid, uint64_t bytes)
{
	struct live_task *t = d->live ? live_find(d->live, pid) : NULL;

	if (t)
		t->untracked += bytes;
	else if (d->live)
		d->live->shared_bytes += bytes;
}
