/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Finds out what the kernel can do, by trying it on a mapping of our own. Version numbers say
 * little: some faults were mended in some stable kernels and not in others.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "scan.h"
#include "uffd.h"
#include "zns/track_control.h"
#include "zns/util.h"

#define HUGE (2 * MIB(1))
#define ROOM (4 * HUGE) /* bytes; contains three aligned huge pages at any address */

struct trial {
	int uffd, pagemap;
	/* map: the mapping; at: the first address in it that is a multiple of HUGE */
	char *map, *at;
};

static int sum_found(void *arg, uint64_t start, uint64_t end, uint64_t categories)
{
	*(uint64_t *)arg += end - start;
	return 0;
}

/* Returns how many bytes of the range match; UINT64_MAX: the kernel refuses. */
static uint64_t matching(const struct trial *t, const struct scan_query *q, const char *at,
			 size_t len)
{
	uint64_t sum = 0;

	if (scan_range(t->pagemap, q, (uintptr_t)at, (uintptr_t)at + len, sum_found, &sum))
		return UINT64_MAX;
	return sum;
}

static uint64_t written(const struct trial *t, const char *at, size_t len)
{
	static const struct scan_query q = { .mask = IS_WRITTEN, .returned = IS_WRITTEN };

	return matching(t, &q, at, len);
}

static uint64_t protect(const struct trial *t, const char *at, size_t len)
{
	static const struct scan_query q = { .mask = IS_WRITTEN,
					     .anyof = IS_PRESENT | IS_SWAPPED,
					     .returned = IS_WRITTEN,
					     .protect = true };

	return matching(t, &q, at, len);
}

static uint64_t pagemap_entry(const struct trial *t, const char *at)
{
	uint64_t e = 0;

	return zns_pread_all(t->pagemap, &e, sizeof(e),
			     (off_t)((uintptr_t)at / TRACK_PAGE * sizeof(e))) ?
		       0 :
		       e;
}

/*
 * Checks that a protected page is reported as clean, and a written one as written. Returns what is
 * wrong, or NULL.
 */
static const char *try_small(struct trial *t)
{
	char *page = t->at;

	memset(page, 1, 2 * TRACK_PAGE);
	if (protect(t, page, HUGE) != 2 * TRACK_PAGE || written(t, page, 2 * TRACK_PAGE))
		return "PAGEMAP_SCAN does not protect pages";
	*(volatile char *)page = 2;
	if (written(t, page, TRACK_PAGE) != TRACK_PAGE)
		return "PAGEMAP_SCAN does not report written pages";
	return NULL;
}

/* Does the kernel report memory without page tables, and a discarded huge page, as written? */
static bool try_holes(struct trial *t)
{
	char *map = mmap(NULL, ROOM, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *huge = (char *)zns_align_up((uintptr_t)map, HUGE);
	bool ok;

	if (map == MAP_FAILED)
		return false;
	madvise(map, ROOM, MADV_HUGEPAGE);
	ok = !uffd_register(t->uffd, (uintptr_t)map, (uintptr_t)map + ROOM) &&
	     written(t, huge, HUGE) == HUGE;
	if (ok) {
		*(volatile char *)huge = 1;
		ok = protect(t, huge, HUGE) != UINT64_MAX && !madvise(huge, HUGE, MADV_DONTNEED) &&
		     written(t, huge, HUGE) == HUGE;
	}
	munmap(map, ROOM);
	return ok;
}

static bool try_guards(struct trial *t)
{
	struct scan_query q = {
		.anyof = IS_PRESENT, .inverted = IS_GUARD, .mask = IS_GUARD, .returned = IS_PRESENT
	};

	return matching(t, &q, t->at, TRACK_PAGE) != UINT64_MAX;
}

static const char *try_uffd(struct trial *t, struct zns_track_kernel *k)
{
	const uint64_t want[] = { UFFD_FEATURE_WP_ASYNC | UFFD_FEATURE_WP_HUGETLBFS_SHMEM,
				  UFFD_FEATURE_WP_ASYNC };
	const char *why = NULL;

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(want); i++) {
		t->uffd = (int)syscall(SYS_userfaultfd, UFFD_FLAGS);
		if (t->uffd < 0)
			return "there is no userfaultfd";
		if (!uffd_begin(t->uffd, want[i])) {
			k->features = want[i];
			break;
		}
		close(t->uffd);
		t->uffd = -1;
	}
	if (t->uffd < 0)
		return "userfaultfd has no asynchronous write protection (Linux 6.7)";
	if (uffd_register(t->uffd, (uintptr_t)t->map, (uintptr_t)t->map + ROOM))
		return "memory cannot be registered with a userfaultfd";
	why = try_small(t);
	if (why)
		return why;
	k->holes = try_holes(t) || track_breaks(TRACK_HOLES);
	k->guards = try_guards(t);
	return NULL;
}

/*
 * Does the kernel mark moved memory? If mremap() moves whole page tables, Linux 6.1 marks neither
 * the pages nor the area.
 */
static bool try_moves(struct trial *t)
{
	char *from = t->at, *to = t->at + HUGE;
	cleanup_close int clear = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);

	*(volatile char *)from = 1;
	*(volatile char *)to = 2;
	if (clear < 0 || write(clear, "4", 1) != 1 || pagemap_entry(t, from) & PME_SOFT_DIRTY)
		return false;
	return mremap(from, HUGE, HUGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to &&
	       pagemap_entry(t, to) & PME_SOFT_DIRTY;
}

/*
 * Looks for soft-dirty bits: a new area is soft-dirty at once if the kernel supports them at all.
 * Page frame numbers are visible with CAP_SYS_ADMIN only.
 */
static void try_soft_dirty(struct trial *t, struct zns_track_kernel *k)
{
	char *untouched = t->at + 5 * TRACK_PAGE;
	char value = *(volatile char *)untouched;

	k->zero_pfn = pagemap_entry(t, untouched) & PME_PFN;
	*(volatile char *)t->at = (char)(value + 1);
	if (!(pagemap_entry(t, t->at) & PME_SOFT_DIRTY))
		return;
	if (!k->zero_pfn || access("/proc/kpageflags", R_OK))
		snprintf(k->why, sizeof(k->why), "soft-dirty tracking needs CAP_SYS_ADMIN");
	else if (!try_moves(t))
		snprintf(k->why, sizeof(k->why), "soft-dirty bits miss memory that mremap moves");
	else
		k->tracker = ZNS_TRACKER_SOFT_DIRTY;
}

int zns_track_kernel(struct zns_track_kernel *k, struct zns_err *err)
{
	struct trial t = { .uffd = -1 };
	const char *why = "only on x86_64 can it be given to a process";
	cleanup_close int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

	*k = (struct zns_track_kernel){ .tracker = ZNS_TRACKER_NONE };
	if (pagemap < 0)
		return zns_fail_sys(err, -errno, "cannot open /proc/self/pagemap");
	t.pagemap = pagemap;
	t.map = mmap(NULL, ROOM, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (t.map == MAP_FAILED)
		return zns_fail_sys(err, -errno, "cannot map memory");
	t.at = (char *)zns_align_up((uintptr_t)t.map, HUGE);
	madvise(t.map, ROOM, MADV_NOHUGEPAGE);
#ifdef __x86_64__
	why = try_uffd(&t, k);
#endif
	if (!why)
		k->tracker = ZNS_TRACKER_UFFD;
	snprintf(k->why, sizeof(k->why), "%s", why ? why : "");
	if (why)
		try_soft_dirty(&t, k);
	munmap(t.map, ROOM);
	if (t.uffd >= 0)
		close(t.uffd);
	return 0;
}

const char *zns_tracker_name(enum zns_tracker tracker)
{
	static const char *const name[] = { "none", "soft-dirty", "uffd" };

	return name[tracker];
}
