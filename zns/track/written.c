/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Tracking by a userfaultfd with asynchronous write protection. The kernel resolves the faults;
 * nothing waits for us.
 *
 * A page is clean if it is present or swapped, protected, and in an area that is registered by us.
 * All else is stale: unmapped, discarded, moved, mapped anew, never seen. Only pages that are
 * reported are protected, and at the same instant: a protected page without a copy would count as
 * clean. So no holes (that would also take page tables), no zero pages, no guards; and in private
 * mappings of files only pages of the process's own.
 */
#include <errno.h>

#include "track_int.h"
#include "uffd.h"
#include "zns/util.h"

#define ARM_STEP MIB(32) /* a quarter of a millisecond */
#define END_STEP MIB(8)
/* A gap of so many bytes of clean pages between stale ones is copied again rather than skipped with
 * another call. */
#define SKIP MIB(1)

static int add_found(void *arg, uint64_t start, uint64_t end, uint64_t categories)
{
	return zns_spans_add(arg, start, end);
}

/* Pages with content of their own, and guard pages. */
static struct scan_query own_content(const struct zns_track *t, bool file)
{
	uint64_t never = IS_ZERO | (file ? IS_FILE : 0);

	return (struct scan_query){ .mask = never,
				    .inverted = never,
				    .anyof = IS_PRESENT | IS_SWAPPED,
				    .returned = IS_WRITTEN | (t->k.guards ? IS_GUARD : 0) };
}

/* The query for pages that are to be protected. */
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

/* Which areas are registered still? */
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
 * Register an area that was not. Its pages may be marked as protected nevertheless: when mremap()
 * puts an area beside a registered one and the kernel joins them, it takes the registration from
 * both and leaves the marks of the second. Pages are then written without a trace, and would be
 * clean once the area is registered again. So all marks are removed first.
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
	if (ret) /* the area has changed meanwhile */
		uffd_unregister(t->uffd, a->start, a->end);
	return ret;
}

static int take(struct zns_track *t, const struct area *a)
{
	int ret = -EOPNOTSUPP;

	/* One that was registered is not registered again: it may have lost that since it was
	 * looked at. */
	if (a->may)
		ret = a->registered ? 0 : take_new(t, a);
	if (ret == -ESRCH)
		return ret;
	/* areas that we may not register stay untracked, and stale */
	return ret ? 0 : zns_spans_add(&t->tracked, a->start, a->end);
}

/* The areas may have changed since they were read. The kernel skips what is not registered. */
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

/* A private mapping of a file, or a kernel that does not report all holes: find what is clean. The
 * rest is stale. */
static int own_found(void *arg, uint64_t start, uint64_t end, uint64_t categories)
{
	struct part *f = arg;
	int ret;

	if (categories & IS_GUARD)
		return zns_spans_add(f->guards, start, end);
	/* A protected page that was discarded leaves only the protection in such a mapping, and
	 * looks swapped. So swapped pages are copied once more. */
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
	if (!ret && f->again) { /* afterwards: a page that is looked at twice must be written both
				   times */
		q = written_content(f->t, file);
		ret = scan_range(f->t->pagemap, &q, start, end, no_found, NULL);
	}
	return ret ? ret : zns_spans_add(f->stale, f->at, end);
}

/* Looks closely at what the quick scan has found. */
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

/* Was it registered by an earlier round, and is it still ours? New areas may be left alone if no
 * dump follows. */
static bool is_tracked(struct part *f, const struct area *a, uint64_t start)
{
	struct zns_track *t = f->t;

	if (!a->may || t->lost)
		return false;
	/* frozen: nothing has changed since that was read */
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
	uint64_t from, done; /* [from, done) is passed, but still registered */
};

/* Memory is unmapped in pieces with little content, since the process can map no memory and change
 * no areas meanwhile. */
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
		/*
		 * unregisters the whole range once more: a part may have failed for lack of memory
		 */
		uffd_unregister(t->uffd, e.from, a->end);
		uffd_unregister(t->uffd, a->start, a->end);
	}
}
