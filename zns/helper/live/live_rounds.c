/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Rounds of a live dump: protect, barrier, copy (Documentation/inside/live.md). Each round copies
 * the pages that were written since the round before. The rounds end when few pages are left, or
 * when the tasks write faster than the rounds copy. Pages that the last round protected but did not
 * copy are left to the freeze.
 */
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include "live.h"

/*
 * If more than this percentage of a round's pages was written again meanwhile, another round makes
 * no progress.
 */
#define PROGRESS_PERCENT 80

static int criu_lives(struct live *l, struct zns_err *err)
{
	struct pollfd p = { .fd = l->d->h->sk };
	int ret = dump_check(l->d, err);

	if (!ret && poll(&p, 1, 0) == 1 && p.revents & (POLLHUP | POLLERR))
		ret = zns_fail(
			err, -ECANCELED,
			"criu ended before the tasks were frozen: nothing of the dump stays");
	return ret;
}

int live_protect(struct live_task *t, struct zns_spans *copy, struct zns_err *err)
{
	struct zns_err e = ZNS_ERR_INIT;
	struct zns_spans left = { 0 };

	if (zns_track_arm(t->track, copy, &e)) {
		/*
		 * the task has ended or executed another program; the next call of live_look()
		 * finds out which
		 */
		zns_track_free(t->track);
		t->track = NULL;
		t->why = e;
		copy->nr = 0;
		return 0;
	}
	if (zns_spans_join(copy, &t->pending) || zns_spans_without(&t->parent, copy, &left))
		return zns_fail(err, -ENOMEM, "no memory for lists of pages");
	zns_spans_free(&t->parent);
	t->parent = left;
	return 0;
}

static void barrier(struct live_task *t)
{
	struct zns_err e = ZNS_ERR_INIT;

	if (!t->track || !zns_track_barrier(t->track, &e))
		return;
	zns_track_free(t->track);
	t->track = NULL;
	t->why = e;
}

/* Adds to `pending` the pages that were protected and are not copied in this round. */
static int owe(struct live *l, const struct zns_spans *copy, struct zns_err *err)
{
	for (size_t n = 0; n < l->nr_tasks; n++)
		if (l->task[n].track && zns_spans_join(&l->task[n].pending, &copy[n]))
			return zns_fail(err, -ENOMEM, "no memory for lists of pages");
	return 0;
}

/* Would this round copy as much as the previous one? */
static bool stands_still(struct live *l, const struct zns_spans *copy)
{
	uint64_t last = l->nr_rounds ? l->round[l->nr_rounds - 1].bytes : UINT64_MAX;

	l->left = 0;
	for (size_t n = 0; n < l->nr_tasks; n++)
		l->left += zns_spans_bytes(&copy[n]);
	return l->nr_rounds && l->left > LIVE_ENOUGH_BYTES &&
	       l->left > last / 100 * PROGRESS_PERCENT;
}

static int copy_all(struct live *l, struct zns_spans *copy, struct zns_err *err)
{
	int ret = 0;

	for (size_t n = 0; n < l->nr_tasks; n++)
		barrier(&l->task[n]);
	ret = live_open_part(l, err);
	for (size_t n = 0; n < l->nr_tasks && !ret; n++) {
		ret = criu_lives(l, err);
		if (!ret && l->task[n].track)
			ret = live_copy(l, &l->task[n], &copy[n], err);
	}
	return ret ? ret : zns_wimage_seal(l->part[l->nr_parts - 1], err);
}

/* Runs one round. @must: copy even if the round makes no progress. */
static int one_round(struct live *l, bool must, struct zns_err *err)
{
	struct live_round *r = &l->round[l->nr_rounds];
	uint64_t start = zns_mono_ns();
	struct zns_spans *copy;
	const char *why;
	int ret = live_look(l, err);

	if (ret)
		return ret;
	copy = calloc(l->nr_tasks + 1, sizeof(*copy));
	if (!copy)
		return zns_fail(err, -ENOMEM, "no memory for lists of pages");
	live_keep_changed(l);
	for (size_t n = 0; n < l->nr_tasks && !ret; n++)
		if (l->task[n].track)
			ret = live_protect(&l->task[n], &copy[n], err);
	if (!ret && stands_still(l, copy) && !must) {
		l->not_converging = true;
		ret = owe(l, copy, err);
	} else if (!ret) {
		ret = copy_all(l, copy, err);
		r->bytes = l->at;
		r->us = (zns_mono_ns() - start) / 1000;
		l->nr_rounds++;
	}
	why = ret ? live_hopeless(l) : NULL;
	if (why) {
		*err = (struct zns_err)ZNS_ERR_INIT;
		ret = owe(l, copy, err);
		if (!ret)
			ret = live_give_up(l, why, err);
	}
	for (size_t n = 0; n < l->nr_tasks; n++)
		zns_spans_free(&copy[n]);
	free(copy);
	return ret;
}

/*
 * Allocates the stage and touches its pages before the freeze, so that the freeze takes no page
 * faults.
 */
static int make_stage(struct live *l, uint64_t expected, struct zns_err *err)
{
	size_t now = zns_min(expected + MIB(4), LIVE_STAGE_BYTES);
	void *p = mmap(NULL, LIVE_STAGE_BYTES, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return zns_fail_sys(err, -errno, "no memory for the last pages of a live dump");
	madvise(p, LIVE_STAGE_BYTES, MADV_HUGEPAGE);
	madvise(p, now, MADV_POPULATE_WRITE);
	l->stage = p;
	return 0;
}

/* Bytes of memory of tasks with a pager. No round copies these. */
static uint64_t paged_bytes(const struct live *l)
{
	uint64_t sum = 0;

	for (size_t n = 0; n < l->nr_tasks; n++)
		sum += l->task[n].memory ? task_bytes(l->task[n].pid, false) : 0;
	return sum;
}

/* Size of the last round in bytes; 0: there was none. */
static uint64_t last_bytes(const struct live *l)
{
	return l->nr_rounds ? l->round[l->nr_rounds - 1].bytes : 0;
}

static int all_rounds(struct live *l, struct zns_err *err)
{
	int ret;

	do {
		ret = one_round(l, false, err);
		if (ret || l->gave_up || l->not_converging || last_bytes(l) <= LIVE_ENOUGH_BYTES)
			return ret;
	} while (l->nr_rounds < LIVE_ROUNDS_MAX - 1);
	l->left = last_bytes(l);
	l->not_converging = true;
	return 0;
}

static uint32_t nr_tracked(const struct live *l)
{
	uint32_t nr = 0;

	for (size_t n = 0; n < l->nr_tasks; n++)
		nr += l->task[n].track != NULL;
	return nr;
}

static void how_it_went(const struct live *l, char *out, size_t len)
{
	uint64_t sum = 0;
	char all[32], rest[32];

	*out = '\0';
	for (uint32_t n = 0; n < l->nr_rounds; n++)
		sum += l->round[n].bytes;
	if (l->gave_up)
		snprintf(out, len, "; %s, %s were given up: the freeze copies everything",
			 l->gave_up, zns_format_size(l->given_up, all, sizeof(all)));
	else if (l->not_converging)
		snprintf(
			out, len,
			", %s copied while they ran, in %u rounds; they write faster than they are copied: "
			"%s were written again during the last one, so the freeze takes longer",
			zns_format_size(sum, all, sizeof(all)), l->nr_rounds,
			zns_format_size(l->left, rest, sizeof(rest)));
	else if (l->nr_rounds)
		snprintf(out, len, ", %s copied while they ran, in %u rounds, %s in the last one",
			 zns_format_size(sum, all, sizeof(all)), l->nr_rounds,
			 zns_format_size(last_bytes(l), rest, sizeof(rest)));
}

static void summary(const struct live *l, struct zw_reply *r)
{
	uint32_t kept = 0;
	char rounds[256], parent[224] = "";

	for (size_t n = 0; n < l->nr_tasks; n++)
		kept += l->task[n].kept && l->task[n].track;
	how_it_went(l, rounds, sizeof(rounds));
	if (l->track && l->d->has_parent && !kept)
		snprintf(parent, sizeof(parent), ", all in full (%s)",
			 l->keep.why[0] ? l->keep.why : "these are new");
	else if (l->track && l->d->has_parent)
		snprintf(parent, sizeof(parent), ", %u since the parent", kept);
	snprintf(r->msg, sizeof(r->msg), "live: %u of %zu tasks tracked (%s)%s%s", nr_tracked(l),
		 l->nr_tasks, zns_tracker_name(l->kernel.tracker), parent, rounds);
	r->warn = l->gave_up || (l->not_converging && !l->d->pre_dump);
	r->kind = ZW_KIND_PAGES;
}

static int too_slow(const struct live *l, struct zns_err *err)
{
	const struct live_round *r = &l->round[l->nr_rounds - 1];
	char again[32], had[32];

	return zns_fail(
		err, -EBUSY,
		"the tasks write faster than they are copied (--zns-live-slow fail): while round %u copied %s "
		"in %.1f s, %s were written again; dump them with --zns-live=no, or give the dump more bandwidth",
		l->nr_rounds, zns_format_size(r->bytes, had, sizeof(had)), (double)r->us / 1e6,
		zns_format_size(l->left, again, sizeof(again)));
}

/* Does all work that precedes the freeze. */
static int prepare(struct live *l, uint32_t how, struct zns_err *err)
{
	bool copy = how & ZW_ROUNDS_COPY;
	int ret = copy ? zns_save_room(&l->d->v, &l->room, err) : 0;

	if (!ret)
		ret = copy ? all_rounds(l, err) : live_look(l, err);

	if (!ret && l->not_converging && l->slow_fails)
		ret = too_slow(l, err);
	/* Read smaps before the last round, since it takes time in which the tasks write pages. */
	for (size_t n = 0; n < l->nr_tasks && how & ZW_ROUNDS_SMAPS && !ret; n++)
		live_maps_before(&l->task[n]);
	/*
	 * A dump that commits during the freeze writes its data during the freeze too, so its
	 * copies go directly to the writer.
	 */
	l->direct = !l->wanted && l->kernel.tracker == ZNS_TRACKER_NONE;
	if (!ret && !l->direct)
		ret = make_stage(l,
				 l->gave_up ? LIVE_STAGE_BYTES :
					      2 * zns_max(l->left, last_bytes(l)) + paged_bytes(l),
				 err);
	if (!ret && copy && !l->gave_up && !l->not_converging)
		ret = one_round(l, true, err);
	if (!ret && copy && !l->gave_up)
		ret = live_check_zones(l, err);
	if (!ret && copy && !l->gave_up)
		ret = live_check_room(l, err);
	return ret ? ret : live_open_part(l, err);
}

/* Leaves the memory to criu, which dumps it if there is no tracker, or only criu's own one. */
static void leave_to_criu(uint32_t how, struct packet *p, const char *why)
{
	struct zw_reply r = { .kind = ZW_KIND_NONE, .warn = how & ZW_ROUNDS_COPY };

	snprintf(r.msg, sizeof(r.msg), "live: %s; all memory is copied in the freeze", why);
	reply_send(p->nr_fd ? p->fd[0] : -1, &r, -1);
}

int live_rounds(struct dump *d, struct packet *p, struct zns_err *err)
{
	bool wanted = d->live; /* set by --zns-live */
	bool tracks = wanted || p->h.nr & ZW_ROUNDS_TRACK;
	uint32_t how = p->h.nr;
	struct zw_reply r = { 0 };
	struct zns_err e = ZNS_ERR_INIT;
	struct live *l;
	int ret = wanted ? 0 : live_new(d, err);

	if (ret)
		return ret;
	l = d->live;
	if (l->root || d->pid <= 0)
		return zns_fail(err, -EPROTO,
				"criu asked for rounds of a live dump at a wrong time");
	l->root = d->pid;
	l->wanted = wanted;
	if (zns_track_kernel(&l->kernel, &e))
		l->kernel.tracker = ZNS_TRACKER_NONE;
	if (!tracks || l->kernel.tracker == ZNS_TRACKER_NONE ||
	    (!wanted && l->kernel.tracker != ZNS_TRACKER_UFFD)) {
		l->kernel.tracker = ZNS_TRACKER_NONE;
		/* no tracking: the task's pager knows which pages have to be copied */
		if (d->paged) {
			ret = prepare(l, 0, err);
			if (ret)
				return ret;
		}
		leave_to_criu(how, p,
			      e.code ? e.msg :
			      tracks ? l->kernel.why :
				       "memory that is on zones stays there");
		if (!wanted && !d->paged) {
			free(l);
			d->live = NULL;
		}
		return 0;
	}
	live_verify_begin(l);
	if (l->kernel.tracker == ZNS_TRACKER_UFFD) {
		l->track = how & ZW_ROUNDS_TRACK;
		l->keep.has_parent = d->has_parent;
		memcpy(l->keep.of, d->parent, ZNS_UUID_LEN);
		memcpy(l->keep.id, d->v.id, ZNS_UUID_LEN);
		live_keep_begin(l, how & ZW_ROUNDS_KEEP);
	}
	ret = prepare(l, how, err);
	if (ret)
		return ret;
	summary(l, &r);
	reply_send(p->nr_fd ? p->fd[0] : -1, &r, -1);
	return 0;
}
