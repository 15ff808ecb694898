/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The ioctls of a userfaultfd with synchronous write protection and all events. */
#include <errno.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "mem.h"

#define GUARD_INSTALL 102 /* MADV_GUARD_INSTALL, since Linux 6.13 */
#define WP_UNPOPULATED (1ULL << 13) /* UFFD_FEATURE_WP_UNPOPULATED, since Linux 6.4 */

/* UFFDIO_POISON, Linux 6.6; the names are our own */
struct poison_arg {
	struct uffdio_range range;
	__u64 mode;
	__s64 updated;
};
#define POISON_IOCTL _IOWR(UFFDIO, 0x08, struct poison_arg)

static int begin(int uffd, uint64_t more)
{
	struct uffdio_api api = { .api = UFFD_API,
				  .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP |
					      UFFD_FEATURE_EVENT_FORK | UFFD_FEATURE_EVENT_REMAP |
					      UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_UNMAP |
					      more };

	return ioctl(uffd, UFFDIO_API, &api) ? -errno : 0;
}

/* Enables the features. Kernels without guard pages need no markers for missing pages. */
int mem_uffd_begin(int uffd)
{
	bool has_guards = !madvise(NULL, 0, GUARD_INSTALL);

	return has_guards && !begin(uffd, WP_UNPOPULATED) ? 0 : begin(uffd, 0);
}

int mem_uffd_register(int uffd, uint64_t start, uint64_t end)
{
	struct uffdio_register r = { .range = { .start = start, .len = end - start },
				     .mode = UFFDIO_REGISTER_MODE_MISSING |
					     UFFDIO_REGISTER_MODE_WP };

	return ioctl(uffd, UFFDIO_REGISTER, &r) ? -errno : 0;
}

int mem_uffd_unregister(int uffd, uint64_t start, uint64_t end)
{
	struct uffdio_range r = { .start = start, .len = end - start };

	return ioctl(uffd, UFFDIO_UNREGISTER, &r) ? -errno : 0;
}

/*
 * Makes an empty request: the kernel checks for a change in progress before it examines the
 * request.
 */
bool mem_uffd_changes(int uffd)
{
	struct uffdio_copy none = { 0 };

	return ioctl(uffd, UFFDIO_COPY, &none) && errno == EAGAIN;
}

/*
 * Handles a call that found no area. It may have come while mremap() moved the area: Linux looks
 * for the area first, and checks for a move afterwards (since 6.9). The caller holds `ev`, so the
 * event of the move cannot be read meanwhile, and the kernel still reports the change.
 */
static int unless_moved(int uffd, int ret)
{
	return ret == -ENOENT && mem_uffd_changes(uffd) ? -EAGAIN : ret;
}

int mem_uffd_protect(int uffd, uint64_t start, uint64_t end, bool on)
{
	struct uffdio_writeprotect w = { .range = { .start = start, .len = end - start },
					 .mode = on ? UFFDIO_WRITEPROTECT_MODE_WP : 0 };

	return ioctl(uffd, UFFDIO_WRITEPROTECT, &w) ? -errno : 0;
}

int mem_uffd_copy(int uffd, uint64_t to, const void *from, uint64_t len, bool protect,
		  uint64_t *done)
{
	struct uffdio_copy c = { .dst = to,
				 .src = (uintptr_t)from,
				 .len = len,
				 .mode = UFFDIO_COPY_MODE_DONTWAKE |
					 (protect ? UFFDIO_COPY_MODE_WP : 0) };
	int ret = ioctl(uffd, UFFDIO_COPY, &c) ? -errno : 0;

	*done = !ret ? len : c.copy > 0 ? (uint64_t)c.copy : 0;
	/* after a partial copy return 0: the next call returns the reason why it stopped */
	return ret && *done ? 0 : unless_moved(uffd, ret);
}

/*
 * A source address that cannot be read. A copy from it fails after the kernel has found the area,
 * and before anything is changed. (Write protection is no alternative: it would put a marker where
 * no page is.)
 */
static void *unreadable;

static void map_unreadable(void)
{
	unreadable = mmap(NULL, MEM_HAS_MAX, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

int mem_uffd_has(int uffd, uint64_t start, uint64_t end)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	uint64_t done;
	int ret;

	pthread_once(&once, map_unreadable);
	if (unreadable == MAP_FAILED)
		return -ENOMEM;
	ret = mem_uffd_copy(uffd, start, unreadable, end - start, true, &done);
	if (ret == -EINVAL) /* the area belongs to a userfaultfd without write protection */
		ret = -ENOENT;
	return ret == -EFAULT || ret == -EEXIST ? 0 : ret;
}

int mem_uffd_zero(int uffd, uint64_t start, uint64_t end, uint64_t *done)
{
	struct uffdio_zeropage z = { .range = { .start = start, .len = end - start } };
	int ret = ioctl(uffd, UFFDIO_ZEROPAGE, &z) ? -errno : 0;

	*done = z.zeropage > 0 ? (uint64_t)z.zeropage : 0;
	return *done ? 0 : unless_moved(uffd, ret);
}

int mem_uffd_poison(int uffd, uint64_t start, uint64_t end)
{
	struct poison_arg a = { .range = { .start = start, .len = end - start } };

	return unless_moved(uffd, ioctl(uffd, POISON_IOCTL, &a) ? -errno : 0);
}

void mem_uffd_wake(int uffd, uint64_t start, uint64_t end)
{
	struct uffdio_range r = { .start = start, .len = end - start };

	ioctl(uffd, UFFDIO_WAKE, &r);
}

/*
 * Halves the range until the kernel accepts it: a process may have an address space of less than 47
 * bits.
 */
void mem_uffd_wake_all(int uffd)
{
	struct uffdio_range r = { .start = MIB(1) };
	int ret = -1;

	for (int bits = 47; ret && bits > 30; bits--) {
		r.len = (1ULL << bits) - MIB(2);
		ret = ioctl(uffd, UFFDIO_WAKE, &r);
	}
}

bool mem_uffd_dead(int uffd)
{
	/* by default nothing can be mapped at page 0, and if something is, it is not ours */
	return mem_uffd_protect(uffd, 0, PAGE, false) == -ESRCH;
}
