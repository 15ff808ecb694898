/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The freeze of a live dump: copies the pages of each task that were written since the last round.
 * Copies of pages that are clean by every rule of Documentation/inside/live.md stay valid.
 */
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include "live.h"
#include "zns-memfd.h"
#include "zns/pagemap.h"
#include "zns/grow.h"
#include "zns/track_control.h"

/* Copies the pages that have no valid copy. Their old places are forgotten first. */
static int copy_rest(struct live *l, struct live_task *t, const struct live_areas *a,
		     struct zns_spans *guards, struct zns_err *err)
{
	struct zns_spans rest = { 0 };
	uint64_t before = l->at;
	int ret = t->memory ? paged_rest(l->d->paged, t, a, &rest, err) :
			      live_rest(l, t, a, &rest, guards, err);

	if (!ret)
		ret = live_copy(l, t, &rest, err);
	if (!ret && t->pending.nr)
		ret = zns_fail(err, -EFAULT, "cannot read the memory of task %d at %llx", t->pid,
			       (unsigned long long)t->pending.s[0].start);
	if (!ret && !t->memory)
		ret = live_verify(l, t, &a->all, &a->whole, err);
	l->frozen_bytes += l->at - before;
	zns_spans_free(&rest);
	return ret;
}

static void add_run(struct zns_pagemap_run *run, size_t *nr, struct zns_pagemap_run one)
{
	struct zns_pagemap_run *last = *nr ? &run[*nr - 1] : NULL;

	if (last && last->vaddr + last->len == one.vaddr && last->parent == one.parent &&
	    last->lazy == one.lazy)
		last->len += one.len;
	else
		run[(*nr)++] = one;
}

/*
 * Adds an entry for a copy. The copy is split where the pages that may be restored lazily begin or
 * end. @at: current index in @lazy.
 */
static void add_place(struct zns_pagemap_run *run, size_t *nr, const struct place *p,
		      const struct zns_spans *lazy, size_t *at)
{
	uint64_t from = p->vaddr, end = p->vaddr + p->len;

	while (from < end) {
		while (*at < lazy->nr && lazy->s[*at].end <= from)
			(*at)++;
		const struct zns_span *s = *at < lazy->nr ? &lazy->s[*at] : NULL;
		bool in = s && s->start <= from;
		uint64_t to = !s ? end : zns_min(end, in ? s->end : s->start);

		add_run(run, nr,
			(struct zns_pagemap_run){ .vaddr = from, .len = to - from, .lazy = in });
		from = to;
	}
}

/*
 * Makes the entries of the pagemap, sorted by address: pages that were copied, and pages that the
 * parent has.
 */
static int entries(struct live_task *t, const struct zns_spans *lazy, struct zns_err *err)
{
	const struct zns_spans *up = &t->parent;
	struct zns_pagemap_run *run = malloc((t->places.nr + up->nr + 2 * lazy->nr + 1) *
					     sizeof(*run));
	size_t nr = 0, m = 0, at = 0;
	int ret;

	if (!run)
		return zns_fail(err, -ENOMEM, "no memory for a pagemap");
	t->bytes = 0;
	t->parent_bytes = zns_spans_bytes(up);
	for (size_t n = 0; n < t->places.nr || m < up->nr;) {
		const struct place *p = &t->places.p[n];

		if (m < up->nr && (n == t->places.nr || up->s[m].start < p->vaddr)) {
			add_run(run, &nr,
				(struct zns_pagemap_run){ .vaddr = up->s[m].start,
							  .len = up->s[m].end - up->s[m].start,
							  .parent = true });
			m++;
			continue;
		}
		t->bytes += p->len;
		add_place(run, &nr, p, lazy, &at);
		n++;
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
	cleanup_close int fd = -1;
	struct zns_spans guards = { 0 };
	struct live_areas a = { 0 };
	int ret = 0;

	if (l && !t && l->d->paged)
		ret = live_late(l, p->h.pid, &t, err);
	if (ret)
		return ret;
	if (!l || !name || strlen(name) >= ZW_NAME || (t && t->final))
		return zns_fail(err, -EPROTO, "criu sent an impossible task of a live dump");
	l->frozen = true;
	if (!(t && t->memory) && !live_is_tracked(l, t, name)) {
		snprintf(r.msg, sizeof(r.msg), "live: task %d is copied now: %s", p->h.pid,
			 t ? t->why.msg : "it is new");
		reply_send(p->fd[0], &r, -1);
		return 0;
	}
	ret = dump_check(d, err);
	if (!ret)
		ret = live_areas(p, &a, err);
	if (!ret)
		ret = copy_rest(l, t, &a, &guards, err);
	if (!ret)
		ret = entries(t, &a.lazy, err);
	zns_spans_free(&t->areas);
	t->areas = a.all;
	zns_spans_free(&a.whole);
	zns_spans_free(&a.lazy);
	fd = ret || t->memory ? -1 : live_guards_fd(l, &guards);
	zns_spans_free(&guards);
	if (ret)
		return ret;
	t->final = true;
	snprintf(t->pagemap, sizeof(t->pagemap), "%s", name);
	r.kind = ZW_KIND_PAGES;
	r.size = t->bytes;
	snprintf(r.msg, sizeof(r.msg),
		 "live: task %d has %llu pages in %zu runs, and %llu in the parent%s", t->pid,
		 (unsigned long long)t->bytes / (unsigned)getpagesize(), t->places.nr,
		 (unsigned long long)t->parent_bytes / (unsigned)getpagesize(),
		 l->verify ? ", verified" : "");
	reply_send(p->fd[0], &r, fd);
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
