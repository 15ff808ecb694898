/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What this kernel lets a pager do. Everything is tried on this process, since distributions move
 * things between versions; only what a setting forbids is read, to name the setting.
 */
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/userfaultfd.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include "../track/abi.h"
#include "memory.h"

#define POISON (1ull << 14) /* UFFD_FEATURE_POISON, Linux 6.6 */

static int setting(const char *path, int otherwise)
{
	cleanup_free uint8_t *text = NULL;
	size_t len;

	return zns_read_file(AT_FDCWD, path, 64, &text, &len) ? otherwise : atoi((char *)text);
}

/* The features that it has; -errno: there is no userfaultfd. */
static int userfaults(uint64_t *features)
{
	struct uffdio_api api = { .api = UFFD_API };
	cleanup_close int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) < 0)
		return -errno;
	*features = api.features;
	return 0;
}

static int rings(void)
{
	struct io_uring_params p = { .flags = IORING_SETUP_SQPOLL, .sq_thread_idle = 1 };
	cleanup_close int fd = (int)syscall(SYS_io_uring_setup, 1, &p);

	return fd < 0 ? -errno : 0;
}

static bool takes_fds(void)
{
	cleanup_close int self = (int)syscall(SYS_pidfd_open, getpid(), 0),
			  fd = (int)syscall(SYS_pidfd_getfd, self, 0, 0);

	return fd >= 0;
}

/* PAGEMAP_SCAN, Linux 6.7. */
static bool scans(void)
{
	cleanup_close int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	struct scan_arg a = { .size = sizeof(a) };

	return fd >= 0 && ioctl(fd, SCAN_IOCTL, &a) >= 0;
}

static void none(struct memory_kernel *k, const char *why)
{
	if (*k->missing)
		return;
	k->mechanism = "none";
	snprintf(k->missing, sizeof(k->missing), "%s", why);
}

/* Without a ring. */
static void stops(struct memory_kernel *k, const char *why)
{
#ifdef __x86_64__
	if (*k->missing)
		return;
	k->mechanism = "ptrace";
	snprintf(k->note, sizeof(k->note),
		 "%s: a thread is stopped for a moment whenever pages are dropped", why);
#else
	none(k, why);
#endif
}

void memory_kernel(struct memory_kernel *k)
{
	const uint64_t needed = UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_EVENT_FORK |
				UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_REMOVE |
				UFFD_FEATURE_EVENT_UNMAP;
	uint64_t features = 0;
	int ret = userfaults(&features), disabled;

	*k = (struct memory_kernel){ .mechanism = "ring", .lost = "kill" };
	if (ret == -ENOSYS)
		none(k, "this kernel has no userfaultfd (CONFIG_USERFAULTFD)");
	else if (ret == -EPERM)
		none(k, "userfaultfd is not allowed here: root and CAP_SYS_PTRACE are needed");
	else if (ret)
		none(k, "userfaultfd does not work here");
	else if ((features & needed) != needed)
		none(k, "this kernel's userfaultfd cannot protect pages from writes, or does not "
			"tell of forks and unmapped areas (Linux 5.7 has it, on x86-64 and arm64)");
	ret = rings();
	disabled = setting("/proc/sys/kernel/io_uring_disabled", 0);
	if (disabled == 2)
		stops(k, "sysctl kernel.io_uring_disabled is 2");
	else if (ret == -ENOSYS)
		stops(k, "this kernel has no io_uring (CONFIG_IO_URING)");
	else if (ret)
		stops(k, "io_uring with a kernel thread (SQPOLL) is refused here");
	if (!takes_fds())
		none(k, "pidfd_getfd is not allowed here (Linux 5.6 has it; CAP_SYS_PTRACE)");
	if (setting("/proc/sys/kernel/yama/ptrace_scope", 0) == 3)
		none(k, "sysctl kernel.yama.ptrace_scope is 3: no process can be attached to");
	if (features & POISON)
		k->lost = "poison";
	if (disabled == 1 && !*k->missing)
		snprintf(k->note, sizeof(k->note),
			 "sysctl kernel.io_uring_disabled is 1: processes without CAP_SYS_ADMIN "
			 "are stopped for a moment whenever pages are dropped");
	else if (!scans() && !*k->note)
		snprintf(k->note, sizeof(k->note),
			 "there is no PAGEMAP_SCAN (Linux 6.7 has it): pages are looked for in "
			 "pagemap, which takes the pager more time");
}
