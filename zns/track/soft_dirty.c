/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Tracking by soft-dirty bits, for kernels before 6.7. Reading these bits and clearing them are two
 * steps. All threads are stopped during both, since a write in between would be lost. (A write by
 * another process, by process_vm_writev(), is lost if it comes in between, as in every tool that
 * uses these bits.)
 *
 * New and moved memory is soft-dirty. A discarded page is a hole; after a read it is the zero page
 * or a page of the file. None of these is the process's own page, and only the process's own pages
 * can be clean.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "threads.h"
#include "track_int.h"
#include "zns/util.h"

#define ENTRIES 2048 /* entries of pagemap that are read at once: 16 KiB of stack */
#define HUGE_PAGES 512ULL /* pages of 4 KiB in a huge page */
/* bit of /proc/kpageflags: the page is the zero page, small or huge */
#define KPF_ZERO (1ULL << 24)

int soft_open(struct zns_track *t, struct zns_err *err)
{
	char path[48];

	snprintf(path, sizeof(path), "/proc/%d/clear_refs", t->pid);
	t->clear_refs = open(path, O_WRONLY | O_CLOEXEC);
	if (t->clear_refs < 0)
		return zns_fail_sys(err, -errno, "cannot open %s", path);
	t->kpageflags = open("/proc/kpageflags", O_RDONLY | O_CLOEXEC);
	return t->kpageflags < 0 ? zns_fail_sys(err, -errno, "cannot open /proc/kpageflags") : 0;
}

int soft_clear(struct zns_track *t)
{
	return write(t->clear_refs, "4", 1) == 1 ? 0 : -errno;
}

struct zero {
	const struct zns_track *t;
	uint64_t from; /* page frame number of the huge zero page that was seen last; 0: none */
};

/*
 * Is the page the zero page, that is, mapped but never written? A huge page begins at a multiple of
 * its size, both in physical memory and in addresses.
 */
static int is_zero(struct zero *z, uint64_t addr, uint64_t entry, bool *yes)
{
	uint64_t pfn = entry & PME_PFN, flags = 0;
	int ret;

	*yes = pfn == z->t->k.zero_pfn || (z->from && pfn - z->from < HUGE_PAGES);
	if (*yes || pfn % HUGE_PAGES || addr / TRACK_PAGE % HUGE_PAGES)
		return 0;
	ret = zns_pread_all(z->t->kpageflags, &flags, sizeof(flags), (off_t)(pfn * sizeof(flags)));
	*yes = flags & KPF_ZERO;
	if (*yes)
		z->from = pfn;
	return ret;
}

/* Called for each run of the process's own pages. dirty: written since the bits were cleared. */
typedef int (*own_run)(void *arg, uint64_t start, uint64_t end, bool dirty);

static int classify(struct zero *z, uint64_t addr, uint64_t e, int *class)
{
	bool zero = false;
	int ret = 0;

	*class = 0;
	if (!(e & (PME_PRESENT | PME_SWAP)) || e & PME_FILE)
		return 0;
	if (e & PME_PRESENT)
		ret = is_zero(z, addr, e, &zero);
	if (!zero)
		*class = e & PME_SOFT_DIRTY || !z->t->armed || z->t->lost ? 2 : 1;
	return ret;
}

static int scan(const struct zns_track *t, uint64_t start, uint64_t end, own_run found, void *arg)
{
	struct zero z = { .t = t };
	uint64_t entry[ENTRIES], since = start;
	int class = 0, ret = 0;

	for (uint64_t at = start; at < end && !ret;) {
		size_t n = zns_min((end - at) / TRACK_PAGE, (uint64_t)ENTRIES);

		ret = zns_pread_all(t->pagemap, entry, n * sizeof(*entry),
				    (off_t)(at / TRACK_PAGE * sizeof(*entry)));
		for (size_t i = 0; i < n && !ret; i++, at += TRACK_PAGE) {
			int now;

			ret = classify(&z, at, entry[i], &now);
			if (now == class)
				continue;
			if (class && !ret)
				ret = found(arg, since, at, class == 2);
			since = at;
			class = now;
		}
	}
	return ret || !class ? ret : found(arg, since, end, class == 2);
}

/* ---- a round ---- */

struct round {
	struct zns_track *t;
	struct zns_spans *copy;
	struct zns_err *err;
};

static int to_copy(void *arg, uint64_t start, uint64_t end, bool dirty)
{
	return dirty ? zns_spans_add(arg, start, end) : 0;
}

/*
 * Runs while all threads are stopped. Unlike other work of a tracer it allocates memory, for the
 * list of present areas. So if this child alone is killed, a lock of the heap may stay locked, and
 * our process may hang: a wait for our process must have a time limit.
 */
static int arm(struct tracer *tr, pid_t tid, void *arg)
{
	struct round *r = arg;
	struct zns_track *t = r->t;
	int ret = track_areas(t, r->err);

	if (ret)
		return ret;
	for (size_t i = 0; i < t->areas.nr && !ret; i++) {
		const struct area *a = &t->areas.a[i];

		if (a->may)
			ret = scan(t, a->start, a->end, to_copy, r->copy);
	}
	return ret ? ret : soft_clear(t);
}

int soft_arm(struct zns_track *t, struct zns_spans *copy, struct zns_err *err)
{
	struct tracer tr = { .pid = t->pid };
	struct round r = { .t = t, .copy = copy, .err = err };
	int ret = track_areas(t, err);

	if (!ret)
		ret = threads_alone(t->pid, 1000, err);
	if (!ret)
		ret = threads_stopped(&tr, THREADS_LIMIT_MS, arm, &r, err);
	return ret;
}

/* ---- the final scan ---- */

static int to_final(void *arg, uint64_t start, uint64_t end, bool dirty)
{
	struct part *p = arg;
	int ret;

	if (dirty)
		return zns_spans_add(p->present, start, end);
	ret = zns_spans_add(p->stale, p->at, start);
	p->at = end;
	return ret;
}

static int to_present(void *arg, uint64_t start, uint64_t end, bool dirty)
{
	return zns_spans_add(arg, start, end);
}

int soft_part(struct part *p, const struct area *a, uint64_t start, uint64_t end)
{
	int ret;

	p->at = start;
	if (a->may)
		ret = scan(p->t, start, end, to_final, p);
	else /* no round has covered this area */
		ret = scan(p->t, start, end, to_present, p->present);
	return ret ? ret : zns_spans_add(p->stale, p->at, end);
}
