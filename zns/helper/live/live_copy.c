/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Copies pages of a task, running or frozen. A running task may unmap a page before it is read.
 * Such a page is left out and becomes pending: at the freeze it is either gone, or copied then.
 */
#include <string.h>
#include <sys/mman.h>
#include "live.h"

/* The pages that are still to be read. */
struct cursor {
	const struct zns_spans *s;
	size_t n;
	uint64_t va;
};

struct copying {
	struct live *l;
	struct live_task *t;
	struct cursor c;
	struct places fresh;
	uint64_t page;
};

static void advance(struct cursor *c, uint64_t len)
{
	c->va += len;
	if (c->n < c->s->nr && c->va == c->s->s[c->n].end && ++c->n < c->s->nr)
		c->va = c->s->s[c->n].start;
}

/* Collects the next ranges to read, of @room bytes at most. */
static uint32_t next_ranges(struct cursor c, struct iovec *v, size_t room, size_t *sum)
{
	uint32_t nr = 0;

	*sum = 0;
	while (nr < TASK_READ_IOVS && c.n < c.s->nr && room > *sum) {
		size_t len = zns_min(c.s->s[c.n].end - c.va, room - *sum);

		v[nr++] = (struct iovec){ (void *)(uintptr_t)c.va, len };
		*sum += len;
		advance(&c, len);
	}
	return nr;
}

/* Records that the next @len bytes were read into @buf; @at: their place in the part. */
static int have(struct copying *k, const uint8_t *buf, uint64_t len, uint64_t at)
{
	if (live_verify_note(k->l, buf, len))
		return -ENOMEM;
	while (len) {
		uint64_t part = zns_min(len, k->c.s->s[k->c.n].end - k->c.va);
		struct place one = { k->c.va, part, at, k->l->nr_parts - 1 };

		if (places_append(&k->fresh, one))
			return -ENOMEM;
		advance(&k->c, part);
		at += part;
		len -= part;
	}
	return 0;
}

/*
 * Called when a running task cannot be read. It is read in the freeze instead, when its mappings do
 * not change.
 */
static void give_up(struct copying *k, int ret)
{
	zns_track_free(k->t->track);
	k->t->track = NULL;
	zns_fail(&k->t->why, ret, "its memory at %llx could not be read while it ran: %s",
		 (unsigned long long)k->c.va,
		 ret == -ETIMEDOUT ? "whoever brings it did not answer" : strerror(-ret));
	k->c.n = k->c.s->nr;
}

/* Reads into @buf until it is full or the pages end; *filled: bytes read. */
static int fill(struct copying *k, uint8_t *buf, size_t room, uint64_t at, size_t *filled)
{
	struct iovec remote[TASK_READ_IOVS];

	*filled = 0;
	while (k->c.n < k->c.s->nr && room - *filled >= k->page) {
		size_t sum;
		uint32_t nr = next_ranges(k->c, remote, room - *filled, &sum);
		ssize_t got = k->l->frozen ? task_read(k->t->pid, remote, nr, buf + *filled) :
					     task_read_apart(&k->l->reader, k->t->pid, remote, nr,
							     buf + *filled);

		if (got < 0 && !k->l->frozen) {
			give_up(k, (int)got);
			break;
		}
		if (got > 0) {
			if (have(k, buf + *filled, (uint64_t)got, at + *filled))
				return -ENOMEM;
			*filled += (size_t)got;
			continue;
		}
		if (zns_spans_add(&k->t->pending, k->c.va, k->c.va + k->page))
			return -ENOMEM;
		advance(&k->c, k->page);
	}
	return 0;
}

int live_flush_stage(struct live *l, struct zns_err *err)
{
	int ret = l->staged ? zns_wimage_data(l->part[l->nr_parts - 1], l->stage, l->staged, err) :
			      0;

	l->staged = 0;
	return ret;
}

/* Copies one batch of pages, to the stage or to the writer. */
static int step(struct copying *k, struct zns_err *err)
{
	struct live *l = k->l;
	size_t room = LIVE_STAGE_BYTES - l->staged, filled;
	uint8_t *buf = l->stage ? l->stage + l->staged : NULL;
	int ret = 0;

	if (l->frozen && !l->direct && room < k->page) {
		l->direct = true;
		ret = live_flush_stage(l, err);
	}
	if (!l->frozen || l->direct)
		ret = ret ? ret : zns_wimage_room(l->part[l->nr_parts - 1], &buf, &room, err);
	if (ret)
		return ret;
	if (fill(k, buf, room, l->at, &filled))
		return zns_fail(err, -ENOMEM, "no memory for the places of pages");
	l->at += filled;
	if (l->frozen && !l->direct)
		l->staged += filled;
	else
		ret = zns_wimage_filled(l->part[l->nr_parts - 1], filled, err);
	return ret;
}

int live_copy(struct live *l, struct live_task *t, const struct zns_spans *s, struct zns_err *err)
{
	struct copying k = { .l = l, .t = t, .page = (uint64_t)getpagesize() };
	int ret = 0;

	k.c = (struct cursor){ s, 0, s->nr ? s->s[0].start : 0 };
	zns_spans_free(&t->pending); /* @s contains the pending pages now */
	/*
	 * Forget older copies of the pages in @s: a page that cannot be read now must not be
	 * restored from an older copy.
	 */
	if (places_drop(&t->places, s->s, s->nr))
		ret = zns_fail(err, -ENOMEM, "no memory for the places of pages");
	while (!ret && k.c.n < s->nr) {
		ret = step(&k, err);
		if (!ret && !l->frozen)
			ret = dump_check(l->d, err);
	}
	if (!ret && places_put(&t->places, k.fresh.p, k.fresh.nr))
		ret = zns_fail(err, -ENOMEM, "no memory for the places of pages");
	places_free(&k.fresh);
	return ret;
}

int live_open_part(struct live *l, struct zns_err *err)
{
	char name[ZW_NAME];
	int ret;

	snprintf(name, sizeof(name), "live-%u.img", l->nr_parts);
	ret = zns_writer_image(l->d->v.w, name, true, &l->part[l->nr_parts], err);
	if (ret)
		return ret;
	zns_wimage_set_part(l->part[l->nr_parts++]);
	l->at = 0;
	return 0;
}
