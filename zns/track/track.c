/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Trackers: see zns/track.h. */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inject.h"
#include "threads.h"
#include "track_int.h"
#include "uffd.h"
#include "zns/track_control.h"
#include "zns/util.h"

static int open_proc(pid_t pid, const char *name)
{
	char path[48];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* Has the process exited? Its pidfd tells, since the PID may have been reused. */
static bool ended(const struct zns_track *t)
{
	struct pollfd p = { .fd = t->pidfd, .events = POLLIN };

	return poll(&p, 1, 0) > 0;
}

static void drop(struct zns_track *t)
{
	const int fd[] = { t->pidfd, t->maps, t->pagemap, t->uffd, t->clear_refs, t->kpageflags };

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(fd); i++)
		if (fd[i] >= 0)
			close(fd[i]);
	areas_free(&t->areas);
	zns_spans_free(&t->tracked);
	zns_spans_free(&t->found);
	free(t);
}

int track_areas(struct zns_track *t, struct zns_err *err)
{
	int ret = areas_read(t->maps, &t->areas, err);

	if (ret)
		return ret;
	if (!t->areas.nr)
		return zns_fail(err, -ESRCH, "process %d is gone or has executed a program",
				t->pid);
	if (t->areas.async)
		return zns_fail(err, -ENOTSUP, "process %d uses %s, whose writes are not seen",
				t->pid, t->areas.async);
	/*
	 * in this mapping a discarded page keeps its mark in the page table and looks swapped out,
	 * but reading it reads the file's page
	 */
	for (size_t i = 0; i < t->areas.nr; i++) {
		struct area *a = &t->areas.a[i];

		if (a->may && a->file && !files_answer(t->pid, a->major, a->minor))
			a->may = false;
	}
	return 0;
}

static int open_all(struct zns_track *t)
{
	t->pidfd = (int)syscall(SYS_pidfd_open, t->pid, 0);
	if (t->pidfd < 0)
		return -errno;
	t->maps = open_proc(t->pid, "maps");
	t->pagemap = open_proc(t->pid, "pagemap");
	if (ended(t))
		return -ESRCH;
	return zns_min(zns_min(t->maps, t->pagemap), 0);
}

static struct zns_track *make(pid_t pid, const struct zns_track_kernel *k, struct zns_err *err)
{
	struct zns_track *t = calloc(1, sizeof(*t));

	if (!t) {
		zns_fail(err, -ENOMEM, "no memory for a tracker");
		return NULL;
	}
	*t = (struct zns_track){ .pid = pid,
				 .k = *k,
				 .pidfd = -1,
				 .maps = -1,
				 .pagemap = -1,
				 .uffd = -1,
				 .clear_refs = -1,
				 .kpageflags = -1 };
	return t;
}

static int begin(pid_t pid, const struct zns_track_kernel *k, struct zns_track **out,
		 struct zns_err *err)
{
	struct zns_track *t;
	int ret;

	if (k->tracker == ZNS_TRACKER_NONE)
		return zns_fail(err, -ENOTSUP, "this kernel does not track written pages: %s",
				k->why);
	t = make(pid, k, err);
	if (!t)
		return -ENOMEM;
	ret = open_all(t);
	if (ret) {
		if (ret == -ENOENT)
			ret = -ESRCH;
		zns_fail_sys(err, ret, "cannot look into process %d", pid);
	} else {
		ret = track_areas(t, err);
	}
	if (!ret && k->tracker == ZNS_TRACKER_SOFT_DIRTY)
		ret = soft_open(t, err);
	if (ret)
		drop(t);
	else
		*out = t;
	return ret;
}

int zns_track_new(pid_t pid, const struct zns_track_kernel *k, struct zns_track **out,
		  struct zns_err *err)
{
	struct tracer tr = { .pid = pid };
	struct zns_track *t = NULL;
	int ret = begin(pid, k, &t, err);

	if (ret)
		return ret;
	ret = threads_alone(pid, 100, err);
	if (!ret && k->tracker == ZNS_TRACKER_UFFD) {
		ret = inject_userfaultfd(&tr, t->pidfd, t->maps, &t->uffd, err);
		if (!ret) {
			ret = uffd_begin(t->uffd, k->features);
			if (ret)
				zns_fail_sys(err, ret,
					     "the userfaultfd of process %d cannot be used", pid);
		}
	}
	if (ret)
		drop(t);
	else
		*out = t;
	return ret;
}

static void give(struct zns_track *t, const int fd[ZNS_TRACK_FDS])
{
	t->pidfd = fd[ZNS_TRACK_PIDFD];
	t->maps = fd[ZNS_TRACK_MAPS];
	t->pagemap = fd[ZNS_TRACK_PAGEMAP];
	t->uffd = fd[ZNS_TRACK_UFFD];
}

int zns_track_adopt(pid_t pid, const struct zns_track_kernel *k, const int fd[ZNS_TRACK_FDS],
		    struct zns_track **out, struct zns_err *err)
{
	static const int none[ZNS_TRACK_FDS] = { -1, -1, -1, -1 };
	struct zns_track *t = make(pid, k, err);
	int ret;

	if (!t)
		return -ENOMEM;
	give(t, fd);
	ret = ended(t) ? zns_fail(err, -ESRCH, "process %d is gone", pid) : track_areas(t, err);
	for (size_t i = 0; i < t->areas.nr && !ret; i++)
		if (zns_spans_add(&t->tracked, t->areas.a[i].start, t->areas.a[i].end))
			ret = zns_fail(err, -ENOMEM, "no memory for a tracker");
	if (ret) {
		give(t, none);
		drop(t);
		return ret;
	}
	t->armed = t->adopted = true;
	*out = t;
	return 0;
}

int zns_track_arm(struct zns_track *t, struct zns_spans *copy, struct zns_err *err)
{
	int ret;

	zns_spans_clear(copy);
	if (t->lost)
		return zns_fail(err, -ESRCH, "process %d is not tracked any more", t->pid);
	if (t->k.tracker == ZNS_TRACKER_UFFD)
		ret = uffd_arm(t, copy, err);
	else
		ret = soft_arm(t, copy, err);
	if (ret)
		t->lost = true;
	t->armed = true;
	return ret;
}

int zns_track_barrier(struct zns_track *t, struct zns_err *err)
{
	struct tracer tr = { .pid = t->pid };
	int ret = ended(t) ? tracer_fail(-ESRCH, t->pid, err) : 0;

	/*
	 * soft-dirty needs no barrier: all threads were stopped at once when the bits were cleared
	 */
	if (!ret && t->k.tracker == ZNS_TRACKER_UFFD && !track_breaks(TRACK_BARRIER))
		ret = threads_barrier(&tr, err);
	if (!ret)
		ret = threads_alone(t->pid, 1000, err);
	/*
	 * check the areas again: asynchronous I/O that began before the protection is visible there
	 */
	if (!ret)
		ret = track_areas(t, err);
	return ret;
}

/*
 * Starts anew with no knowledge of any page: all pages are stale. `present` lists pages of the
 * memory that the process has now.
 */
static int look_anew(struct zns_track *t, struct zns_err *err)
{
	int maps = open_proc(t->pid, "maps"), pagemap = open_proc(t->pid, "pagemap");

	if (maps >= 0) {
		close(t->maps);
		t->maps = maps;
	}
	if (pagemap >= 0) {
		close(t->pagemap);
		t->pagemap = pagemap;
	}
	if (maps < 0 || pagemap < 0 || ended(t))
		return zns_fail(err, -ESRCH, "process %d is gone", t->pid);
	return areas_read(t->maps, &t->areas, err);
}

/* Is all of this mapped, as far as is known? If not, what is known is of memory that the process had
 * before it executed a program: memory lives on while anybody looks at it. */
static bool is_mapped(const struct areas *l, const struct zns_span *area, size_t nr)
{
	size_t j = 0;

	for (size_t i = 0; i < nr; i++) {
		uint64_t at = area[i].start;

		while (j < l->nr && l->a[j].end <= at)
			j++;
		for (size_t k = j; k < l->nr && l->a[k].start <= at && at < area[i].end; k++)
			at = l->a[k].end;
		if (at < area[i].end)
			return false;
	}
	return true;
}

/*
 * Called for an adopted tracker while the process is frozen. Is the memory that it tracks still
 * that of the process? The process may have executed another program while a third process shared
 * its old memory.
 */
static bool is_its_memory(struct zns_track *t)
{
	cleanup_close int maps = open_proc(t->pid, "maps");
	struct areas now = { 0 };
	bool same = maps >= 0 && !areas_read(maps, &now, NULL) && now.nr == t->areas.nr;

	for (size_t i = 0; same && i < now.nr; i++)
		same = now.a[i].start == t->areas.a[i].start && now.a[i].end == t->areas.a[i].end;
	areas_free(&now);
	return same && !ended(t);
}

static int scan_part(struct part *p, const struct area *a, uint64_t start, uint64_t end)
{
	int ret;

	if (p->t->k.tracker == ZNS_TRACKER_UFFD)
		return uffd_part(p, a, start, end);
	ret = soft_part(p, a, start, end);
	return ret ? ret : guards_of(p, start, end);
}

/* Finds guard pages outside of @area, for example in shared memory. */
static int scan_others(struct part *p, const struct zns_span *area, size_t nr)
{
	const struct areas *l = &p->t->areas;
	size_t j = 0;
	int ret = 0;

	for (size_t i = 0; i < l->nr && !ret; i++) {
		uint64_t at = l->a[i].start;

		while (j < nr && area[j].end <= at)
			j++;
		for (size_t k = j; !ret && k < nr && area[k].start < l->a[i].end; k++) {
			ret = guards_of(p, at, area[k].start);
			at = area[k].end;
		}
		if (!ret)
			ret = guards_of(p, at, l->a[i].end);
	}
	return ret;
}

static int scan_areas(struct part *p, const struct zns_span *area, size_t nr)
{
	const struct areas *l = &p->t->areas;
	size_t j = 0;
	int ret = 0;

	for (size_t i = 0; i < nr && !ret; i++) {
		uint64_t at = area[i].start;

		while (j < l->nr && l->a[j].end <= at)
			j++;
		for (size_t k = j; !ret && k < l->nr && l->a[k].start < area[i].end; k++) {
			uint64_t start = zns_max(at, l->a[k].start),
				 end = zns_min(area[i].end, l->a[k].end);

			/* nothing is mapped in this gap */
			ret = zns_spans_add(p->stale, at, start);
			if (!ret)
				ret = scan_part(p, &l->a[k], start, end);
			at = end;
		}
		if (!ret)
			ret = zns_spans_add(p->stale, at, area[i].end);
	}
	return ret;
}

int zns_track_final(struct zns_track *t, const struct zns_span *area, size_t nr, bool again,
		    struct zns_spans *stale, struct zns_spans *present, struct zns_spans *guards,
		    struct zns_err *err)
{
	struct part p = { .t = t, .stale = stale, .present = present, .guards = guards };
	int ret = 0;

	zns_spans_clear(stale);
	zns_spans_clear(present);
	zns_spans_clear(guards);
	if (!t->lost && (track_areas(t, NULL) || !is_mapped(&t->areas, area, nr) ||
			 (t->adopted && !is_its_memory(t))))
		t->lost = true;
	p.again = again && !t->lost;
	if (t->lost)
		ret = look_anew(t, err);
	if (!ret) {
		ret = t->k.tracker == ZNS_TRACKER_UFFD ? uffd_look(t) : 0;
		if (!ret)
			ret = scan_areas(&p, area, nr);
		if (!ret)
			ret = scan_others(&p, area, nr);
		if (!ret && p.again && t->k.tracker == ZNS_TRACKER_SOFT_DIRTY)
			ret = soft_clear(t);
		if (ret)
			zns_fail_sys(err, ret, "cannot see which pages of process %d were written",
				     t->pid);
	}
	if (ret)
		t->lost = true;
	t->armed |= p.again;
	return ret;
}

void zns_track_free(struct zns_track *t)
{
	if (!t)
		return;
	if (t->uffd >= 0)
		uffd_end(t);
	drop(t);
}

int zns_track_fds(const struct zns_track *t, int fd[ZNS_TRACK_FDS])
{
	if (t->uffd < 0)
		return -ENOTSUP;
	if (t->lost)
		return -ESRCH;
	fd[ZNS_TRACK_PIDFD] = t->pidfd;
	fd[ZNS_TRACK_MAPS] = t->maps;
	fd[ZNS_TRACK_PAGEMAP] = t->pagemap;
	fd[ZNS_TRACK_UFFD] = t->uffd;
	return 0;
}

void zns_track_leave(struct zns_track *t)
{
	if (t)
		drop(t);
}
