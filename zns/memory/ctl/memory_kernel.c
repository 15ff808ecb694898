/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Finds out which features this kernel offers to a pager. Each feature is tried on this process,
 * since distributions backport features, and a version number proves nothing. Settings are read
 * only to name the one that forbids a feature. All missing features are reported at once, so that a
 * user can fix all of them.
 */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include "../../track/abi.h"
#include "memory.h"

#define POISON (1ull << 14) /* UFFD_FEATURE_POISON, Linux 6.6 */
#define MOVE (1ULL << 16) /* UFFD_FEATURE_MOVE, Linux 6.8 */

#ifndef SYS_memfd_secret
#define SYS_memfd_secret 447
#endif

static int setting(const char *path, int otherwise)
{
	cleanup_free uint8_t *text = NULL;
	size_t len;

	return zns_read_file(AT_FDCWD, path, 64, &text, &len) ? otherwise : atoi((char *)text);
}

/* Gets the features of userfaultfd; -errno: this kernel has no userfaultfd. */
static int userfaults(uint64_t *features)
{
	struct uffdio_api api = { .api = UFFD_API };
	cleanup_close int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) < 0)
		return -errno;
	*features = api.features;
	return 0;
}

static bool takes_fds(void)
{
	cleanup_close int self = (int)syscall(SYS_pidfd_open, getpid(), 0),
			  fd = (int)syscall(SYS_pidfd_getfd, self, 0, 0);

	return fd >= 0;
}

/* Does the kernel have PAGEMAP_SCAN (Linux 6.7)? */
static bool scans(void)
{
	cleanup_close int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	struct scan_arg a = { .size = sizeof(a) };

	return fd >= 0 && ioctl(fd, SCAN_IOCTL, &a) >= 0;
}

static bool has_secrets(void)
{
	cleanup_close int fd = (int)syscall(SYS_memfd_secret, O_CLOEXEC);

	return fd >= 0;
}

/* Opens /dev/userfaultfd, for a process that may not call userfaultfd(). Returns -errno if that
 * fails. */
static int device(void)
{
	cleanup_close int fd = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);

	return fd < 0 ? -errno : 0;
}

/*
 * Notes a missing feature. @instead NULL: there is no substitute, and no program can be attached.
 */
static void lack(struct memory_kernel *k, const char *what, const char *why, const char *instead)
{
	k->lacks[k->nr_lacks++] = (struct memory_lack){ what, why, instead };
	if (!instead) {
		k->mechanism = "none";
		if (!*k->missing)
			snprintf(k->missing, sizeof(k->missing), "%s", why);
	} else if (!*k->note) {
		snprintf(k->note, sizeof(k->note), "%s: %s", why, instead);
	}
}

static void userfaultfd(struct memory_kernel *k)
{
	const uint64_t needed = UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_EVENT_FORK |
				UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_REMOVE |
				UFFD_FEATURE_EVENT_UNMAP;
	uint64_t features = 0;
	int ret = userfaults(&features);

	if (ret == -ENOSYS)
		lack(k, "userfaultfd", "this kernel has no userfaultfd (CONFIG_USERFAULTFD)", NULL);
	else if (ret == -EPERM)
		lack(k, "userfaultfd",
		     "userfaultfd is not allowed here: root and CAP_SYS_PTRACE are needed", NULL);
	else if (ret)
		lack(k, "userfaultfd", "userfaultfd does not work here", NULL);
	else if ((features & needed) != needed)
		lack(k, "userfaultfd",
		     "this kernel's userfaultfd cannot protect pages from writes, or does not "
		     "tell of forks and unmapped areas (Linux 5.7 has it, on x86-64 and arm64)",
		     NULL);
	if (features & POISON)
		k->lost = "poison";
	else if (!ret)
		lack(k, "UFFDIO_POISON", "userfaultfd cannot poison a page (Linux 6.6 has it)",
		     "what cannot be read ends its processes");
	if (!ret && !(features & MOVE))
		lack(k, "UFFDIO_MOVE", "userfaultfd cannot move pages (Linux 6.8 has it)",
		     "what another process writes to a page while it is evicted may be lost");
	ret = device();
	if (ret)
		lack(k, "/dev/userfaultfd",
		     ret == -ENOENT ? "there is no /dev/userfaultfd (Linux 6.1 has it)" :
				      "/dev/userfaultfd cannot be opened",
		     "processes that may not call userfaultfd are refused");
}

void memory_kernel(struct memory_kernel *k)
{
	*k = (struct memory_kernel){ .mechanism = "ptrace", .lost = "kill" };
	if (!scans())
		lack(k, "PAGEMAP_SCAN", "there is no PAGEMAP_SCAN (Linux 6.7 has it)",
		     "pages are looked for in pagemap, which takes the pager more time");
	userfaultfd(k);
	if (!takes_fds())
		lack(k, "pidfd_getfd",
		     "pidfd_getfd is not allowed here (Linux 5.6 has it; CAP_SYS_PTRACE)", NULL);
	if (setting("/proc/sys/kernel/yama/ptrace_scope", 0) == 3)
		lack(k, "ptrace",
		     "sysctl kernel.yama.ptrace_scope is 3: no process can be attached to", NULL);
	if (!has_secrets())
		lack(k, "memfd_secret",
		     "there is no memfd_secret (Linux 5.14; before 6.5 secretmem.enable=1)",
		     "keys of encrypted contexts are in locked memory that root could read");
}
