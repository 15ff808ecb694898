/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The room on the device that a live dump takes. A page that is written while the rounds copy is on
 * the device more than once. If that takes too much room, the copies are discarded before the
 * freeze, which then copies everything, as in a plain dump. The same happens if copies on a failed
 * zone are lost, since the tasks may have changed those pages.
 */
#include "live.h"

/*
 * bytes kept free: the freeze writes more than the trackers know, and no zone is filled to its last
 * byte
 */
#define SPARE MIB(4)

static const char no_room[] = "the device has no room for copies of rounds";
static const char lost[] = "a zone failed and lost copies of rounds";

/*
 * Returns why the dump can go on after a failed round, without the copies of the rounds. NULL: it
 * cannot. It can only if the writer has failed, and nothing else.
 */
const char *live_hopeless(struct live *l)
{
	struct dump *d = l->d;
	int code;

	pthread_mutex_lock(&d->lock);
	code = d->err.code;
	pthread_mutex_unlock(&d->lock);
	if (code)
		return NULL;
	code = zns_writer_error(d->v.w, NULL);
	if (code == -EIO)
		return lost;
	return code == -ENOSPC || code == -EBUSY ? no_room : NULL;
}

/*
 * Makes all copied pages of the task pending, so that the freeze copies them. Its tracker
 * continues.
 */
static int owe_all(struct live_task *t)
{
	int ret = 0;

	for (size_t n = 0; n < t->places.nr && !ret; n++)
		ret = zns_spans_add(&t->pending, t->places.p[n].vaddr,
				    t->places.p[n].vaddr + t->places.p[n].len);
	places_free(&t->places);
	return ret;
}

/* About how many bytes without a tracker the freeze has to copy. */
static uint64_t untracked(const struct live *l)
{
	uint64_t sum = 0;

	for (size_t n = 0; n < l->nr_tasks; n++)
		sum += task_bytes(l->task[n].pid, l->task[n].track != NULL);
	return sum;
}

static int too_large(const struct live *l, uint64_t need, uint64_t room, struct zns_err *err)
{
	char a[32], b[32];

	return zns_fail(err, -ENOSPC,
			"%s has no room for this checkpoint: about %s are needed, and %s are free; "
			"`znsctl gc --compact` or `znsctl rm` makes room",
			l->d->h->s.reg.path, zns_format_size(need, a, sizeof(a)),
			zns_format_size(room, b, sizeof(b)));
}

int live_give_up(struct live *l, const char *why, struct zns_err *err)
{
	uint64_t need = untracked(l), room = 0;
	struct zns_writer_stats st;
	char size[32];
	int ret = 0;

	for (uint32_t n = 0; n < l->nr_rounds; n++)
		l->given_up += l->round[n].bytes;
	for (size_t n = 0; n < l->nr_tasks && !ret; n++)
		ret = owe_all(&l->task[n]);
	if (ret)
		return zns_fail(err, -ENOMEM, "no memory for lists of pages");
	for (size_t n = 0; n < l->nr_tasks; n++)
		if (l->task[n].track)
			need += zns_spans_bytes(&l->task[n].pending);
	zns_writer_stats_get(l->d->v.w, &st);
	if (st.nr_images != l->nr_parts)
		return zns_fail(err, -EPROTO, "criu sent images before the rounds of a live dump");
	ret = dump_anew(l->d, &room, err);
	if (ret)
		return ret;
	if (need > room)
		return too_large(l, need, room, err);
	if (l->slow_fails && why == lost)
		return zns_fail(err, -EIO, "%s: %s (--zns-live-slow fail): run the dump again",
				l->d->h->s.reg.path, why);
	if (l->slow_fails)
		return zns_fail(err, -ENOSPC,
				"%s has no room for the rounds of a live dump, which copied %s "
				"(--zns-live-slow fail): dump with --zns-live=no, or make room by "
				"`znsctl gc --compact` or `znsctl rm`",
				l->d->h->s.reg.path,
				zns_format_size(l->given_up, size, sizeof(size)));
	live_verify_anew(l);
	l->nr_parts = l->nr_rounds = 0;
	l->at = 0;
	l->gave_up = why;
	l->not_converging = false;
	return 0;
}

/* The check is not exact: other dumps may take zones after it, as with any dump. */
int live_check_room(struct live *l, struct zns_err *err)
{
	uint64_t need = untracked(l) + 2 * l->left + SPARE;

	for (uint32_t n = 0; n < l->nr_rounds; n++)
		need += l->round[n].bytes;
	return need > l->room ? live_give_up(l, no_room, err) : 0;
}

int live_check_zones(struct live *l, struct zns_err *err)
{
	int ret = zns_writer_check(l->d->v.w, err);
	const char *why = ret ? live_hopeless(l) : NULL;

	if (!why)
		return ret;
	*err = (struct zns_err)ZNS_ERR_INIT;
	return live_give_up(l, why, err);
}
