/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Tracking by a userfaultfd with asynchronous write protection. The kernel resolves the faults by
 * itself, so a writing thread never waits for us.
 *
 * A page is clean if it is present or swapped out, is protected, and lies in an area that is
 * registered with our userfaultfd. All other pages are stale: unmapped, discarded, moved, newly
 * mapped, or never seen. A page is protected only at the instant when it is reported: a protected
 * page without a copy would count as clean. So holes are not protected (that would also allocate
 * page tables), nor zero pages, nor guard pages, and in private mappings of files only the
 * process's own pages are.
 */
#include <errno.h>

#include "track_int.h"
#include "uffd.h"
#include "zns/util.h"

#define ARM_STEP MIB(32) /* bytes; protecting them takes a quarter of a millisecond */
#define END_STEP MIB(8)
/*
 * bytes; a gap of clean pages between stale ones is copied again if it is smaller than this, since
 * skipping it would take another call
 */
#define SKIP MIB(1)

static int add_found(void *arg, uint64_t start, uint64_t end, uint64_t categories)
{
	return zns_spans_add(arg, start, end);
}

/* Matches pages that have content of their own, and guard pages. */
static struct scan_query own_content(const struct zns_track *t, bool file)
{
	uint64_t never = IS_ZERO | (file ? IS_FILE : 0);

	return (struct scan_query){ .mask = never,
				    .inverted = never,
				    .anyof = IS_PRESENT | IS_SWAPPED,
				    .returned = IS_WRITTEN | (t->k.guards ? IS_GUARD : 0) };
}

/* Matches the pages that are to be protected. */
static struct scan_query written_content(const struct zns_track *t, bool file)
{
	struct scan_query q = own_content(t, file);

	q.mask |= IS_WRITTEN;
	if (t->k.guards) {
		q.mask |= IS_GUARD;
		q.inverted |= IS_GUARD;
	}
	q.protect = true;
	return q;
}

/* Finds out which areas are still registered. */
static int look_at_areas(struct zns_track *t)
{
	struct area *a = t->areas.a, *last = a + t->areas.nr;
	int64_t at = 0;

	for (; a < last; a++) {
		if (at >= 0 && (uint64_t)at < a->end)
			at = scan_unregistered(t->pagemap, zns_max((uint64_t)at, a->start),
					       last[-1].end);
		if (at < 0)
			return (int)at;
		a->registered = (uint64_t)at >= a->end;
		at = zns_max((uint64_t)at, a->end);
	}
	return 0;
}

static int unprotect_found(void *arg, uint64_t start, uint64_t end, uint64_t categories)
{
	for (uint64_t at = start, to; at < end; at = to) {
		int ret;

		to = zns_min(end, at + END_STEP);
		ret = uffd_unprotect(*(int *)arg, at, to);
		if (ret)
			return ret;
	}
	return 0;
}

/*
 * Registers an area that is not registered. Its pages may nevertheless be marked as protected: when
 * mremap() puts an area beside a registered one and the kernel merges them, the merged area loses
 * the registration but keeps the marks of the second area. Writes to such pages would go unnoticed,
 * and the pages would count as clean once the area is registered again. So all marks are removed
 * first.
 */
static int take_new(struct zns_track *t, const struct area *a)
{
	static const struct scan_query marked = { .mask = IS_WRITTEN,
						  .inverted = IS_WRITTEN,
						  .anyof = IS_PRESENT | IS_SWAPPED,
						  .returned = IS_WRITTEN,
						  .step = ARM_STEP };
	int ret = uffd_register(t->uffd, a->start, a->end);

	if (ret)
		return ret;
	ret = scan_range(t->pagemap, &marked, a->start, a->end, unprotect_found, &t->uffd);
	if (ret) /* the area has changed since it was read */
		uffd_unregister(t->uffd, a->start, a->end);
	return ret;
}

static int take(struct zns_track *t, const struct area *a)
{
	int ret = -EOPNOTSUPP;

	/*
	 * An area that was registered when the list was read is not registered here: it may have
	 * lost the registration since. Then the next round calls take_new(), which also removes
	 * marks that are no longer right.
	 */
	if (a->may)
		ret = a->registered ? 0 : take_new(t, a);
	if (ret == -ESRCH)
		return ret;
	/* an area that we may not register stays untracked, so all its pages are stale */
	return ret ? 0 : zns_spans_add(&t->tracked, a->start, a->end);
}

/*
 * Protects written pages of all areas. The areas may have changed since they were read: the kernel
 * skips those that are not registered.
 */
static int protect(struct zns_track *t, struct zns_spans *copy)
{
	int ret = 0;

	for (size_t i = 0; i < t->areas.nr && !ret; i++) {
		const struct area *a = &t->areas.a[i];
		struct scan_query q = written_content(t, a->file);

		q.step = ARM_STEP;
		if (zns_spans_has(&t->tracked, a->start))
			ret = scan_range(t->pagemap, &q, a->start, a->end, add_found, copy);
	}
	return ret;
}

int uffd_arm(struct zns_track *t, struct zns_spans *copy, struct zns_err *err)
{
	int ret = track_areas(t, err);

	if (ret)
		return ret;
	zns_spans_clear(&t->tracked);
	ret = look_at_areas(t);
	for (size_t i = 0; i < t->areas.nr && !ret; i++)
		ret = take(t, &t->areas.a[i]);
	if (!ret)
		ret = protect(t, copy);
	return ret ? zns_fail_sys(err, ret, "cannot protect the memory of process %d", t->pid) : 0;
}

/* ---- the final scan ---- */

/*
 * For private mappings of files, and on kernels that do not report all holes: looks for the clean
 * pages. All others are stale.
 */
static int own_found(void *arg, uint64_t start, uint64_t end, uint64_t categories)
{
	struct part *f = arg;
	int ret;

	if (categories & IS_GUARD)
		return zns_spans_add(f->guards, start, end);
	/*
	 * In such a mapping a protected page that was discarded leaves only the mark of its
	 * protection, and looks swapped out. So swapped pages are copied again.
	 */
	if (!(categories & IS_WRITTEN) && categories & IS_PRESENT) {
		ret = zns_spans_add(f->stale, f->at, start);
		f->at = zns_max(f->at, end);
		return ret;
	}
	return zns_spans_add(f->present, start, end);
}

static int anon_found(void *arg, uint64_t start, uint64_t end, uint64_t categories)
{
	return own_found(arg, start, end,
			 categories & IS_SWAPPED ? categories | IS_PRESENT : categories);
}

static int stale_found(void *arg, uint64_t start, uint64_t end, uint64_t categories)
{
	struct part *f = arg;

	return zns_spans_add(categories & IS_GUARD ? f->guards : f->present, start, end);
}

int guards_of(struct part *p, uint64_t start, uint64_t end)
{
	static const struct scan_query q = { .mask = IS_GUARD, .returned = IS_GUARD };

	return p->t->k.guards && start < end ?
		       scan_range(p->t->pagemap, &q, start, end, add_found, p->guards) :
		       0;
}

static int no_found(void *arg, uint64_t start, uint64_t end, uint64_t categories)
{
	return 0;
}

static int scan_all(struct part *f, uint64_t start, uint64_t end, bool file)
{
	struct scan_query q = own_content(f->t, file);
	int ret;

	q.returned |= IS_PRESENT | IS_SWAPPED;
	f->at = start;
	ret = scan_range(f->t->pagemap, &q, start, end, file ? own_found : anon_found, f);
	/*
	 * protect only now: a page that the scan reports twice must be reported as written both
	 * times
	 */
	if (!ret && f->again) {
		q = written_content(f->t, file);
		ret = scan_range(f->t->pagemap, &q, start, end, no_found, NULL);
	}
	return ret ? ret : zns_spans_add(f->stale, f->at, end);
}

/* Examines the pages that the quick scan has found. */
static int scan_written(struct part *f, uint64_t start, uint64_t end)
{
	struct scan_query q = own_content(f->t, false), again = written_content(f->t, false);
	struct zns_spans *found = &f->t->found;
	int ret;

	zns_spans_clear(found);
	q.mask |= IS_WRITTEN;
	ret = fast_written(f->t->pagemap, start, end, found);
	for (size_t i = 0, j; i < found->nr && !ret; i = j) {
		for (j = i + 1; j < found->nr && found->s[j].start - found->s[j - 1].end <= SKIP;
		     j++)
			;
		ret = scan_range(f->t->pagemap, &q, found->s[i].start, found->s[j - 1].end,
				 stale_found, f);
		if (!ret && f->again)
			ret = scan_range(f->t->pagemap, &again, found->s[i].start,
					 found->s[j - 1].end, no_found, NULL);
	}
	return ret ? ret : zns_spans_join(f->stale, found);
}

int uffd_look(struct zns_track *t)
{
	return t->lost ? 0 : look_at_areas(t);
}

/*
 * Was this part registered by an earlier round, and is it still? New areas are registered only if
 * another dump follows (@again).
 */
static bool is_tracked(struct part *f, const struct area *a, uint64_t start)
{
	struct zns_track *t = f->t;

	if (!a->may || t->lost)
		return false;
	/* the process is frozen, so the list of areas has not changed since it was read */
	if (a->registered && zns_spans_has(&t->tracked, start))
		return !uffd_register(t->uffd, a->start, a->end);
	return f->again && !take_new(t, a);
}

int uffd_part(struct part *f, const struct area *a, uint64_t start, uint64_t end)
{
	struct zns_track *t = f->t;
	struct scan_query q = own_content(t, true);
	int ret;

	if (is_tracked(f, a, start)) {
		ret = zns_spans_add(&t->tracked, start, end);
		if (ret)
			return ret;
		return a->file || !t->k.holes ? scan_all(f, start, end, a->file) :
						scan_written(f, start, end);
	}
	ret = zns_spans_add(f->stale, start, end);
	return ret ? ret : scan_range(t->pagemap, &q, start, end, stale_found, f);
}

/* ---- the end ---- */

struct end {
	int uffd;
	uint64_t from, done; /* [from, done) was scanned, but is still registered */
};

/*
 * Unregisters memory in pieces with little content: during a call the process can neither map
 * memory nor change its areas.
 */
static int end_found(void *arg, uint64_t start, uint64_t end, uint64_t categories)
{
	struct end *e = arg;

	while (start < end) {
		uint64_t to = zns_min(end, (start | (END_STEP - 1)) + 1);

		if (to - e->from >= END_STEP) {
			uffd_unregister(e->uffd, e->from, to);
			e->from = to;
		}
		start = to;
	}
	return 0;
}

void uffd_end(struct zns_track *t)
{
	static const struct scan_query q = { .anyof = IS_PRESENT | IS_SWAPPED,
					     .returned = IS_PRESENT,
					     .step = MIB(32) };

	if (track_areas(t, NULL) == -ESRCH)
		return;
	for (size_t i = 0; i < t->areas.nr; i++) {
		const struct area *a = &t->areas.a[i];
		struct end e = { .uffd = t->uffd, .from = a->start };

		if (!a->may)
			continue;
		scan_range(t->pagemap, &q, a->start, a->end, end_found, &e);
		/* unregister the whole area again: a piece may have failed for lack of memory */
		uffd_unregister(t->uffd, e.from, a->end);
		uffd_unregister(t->uffd, a->start, a->end);
	}
}
