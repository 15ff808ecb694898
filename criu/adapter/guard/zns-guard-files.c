/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Finds open files that CRIU cannot dump. CRIU itself would report such a file only when it dumps
 * that process, after the memory of other processes was copied. The checks are those of CRIU's
 * files.c and files-reg.c.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <linux/major.h>

#include "autofs.h"
#include "bpfmap.h"
#include "cr_options.h"
#include "eventfd.h"
#include "eventpoll.h"
#include "fsnotify.h"
#include "hugetlb.h"
#include "kerndat.h"
#include "log.h"
#include "memfd.h"
#include "pidfd.h"
#include "plugin.h"
#include "signalfd.h"
#include "timerfd.h"
#include "tty.h"
#include "tun.h"
#include "util.h"
#include "zns-guard.h"
#include "zns-guards.h"

#undef LOG_PREFIX
#define LOG_PREFIX "zns: "

#define ANON "anon_inode:"
#define DELETED " (deleted)"
#define SECRETMEM "/secretmem" DELETED
#define MQUEUE_MAGIC 0x19800202
#define BLOCK 512 /* bytes in one unit of st_blocks */

/* The anonymous files that CRIU can dump: the same list as in files.c. */
static bool is_known_anon(char *link)
{
#ifdef CONFIG_HAS_LIBBPF
	if (is_bpfmap_link(link))
		return true;
#endif
	return is_eventfd_link(link) || is_eventpoll_link(link) || is_inotify_link(link) ||
	       is_fanotify_link(link) || is_signalfd_link(link) || is_timerfd_link(link) ||
	       is_pidfd_link(link);
}

/*
 * Is there a plugin that may dump files that CRIU cannot? Only the dump itself can ask it, for each
 * file.
 */
static bool plugin_dumps(void)
{
	return !list_empty(&cr_plugin_ctl.hook_chain[CR_PLUGIN_HOOK__DUMP_EXT_FILE]);
}

int zns_guard_refuse_fd(pid_t pid, int fd, const char *what)
{
	pr_err("Process %d (%s) has %s open (descriptor %d), which CRIU cannot dump: the program has to close it first\n",
	       pid, zns_guard_name(pid), what, fd);
	return -1;
}

static bool is_known_device(const struct stat *st)
{
	unsigned int nr = minor(st->st_rdev);

	if (!S_ISCHR(st->st_mode) || major(st->st_rdev) == MEM_MAJOR)
		return !S_ISBLK(st->st_mode);
	if (major(st->st_rdev) == MISC_MAJOR && (nr == TUN_MINOR || nr == AUTOFS_MINOR))
		return true;
	return is_tty(st->st_rdev, st->st_dev);
}

/* Is it a device that most programs have open? Such a device needs no check. */
static bool is_plain_device(const char *link)
{
	static const char *const name[] = { "null", "zero", "urandom", "random", "tty", "ptmx" };
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(name); i++)
		if (!strcmp(link + strlen("/dev/"), name[i]))
			return true;
	return !strncmp(link, "/dev/pts/", 9) || !strncmp(link, "/dev/shm/", 9);
}

static int guard_device(pid_t pid, int dir, const char *fd, const char *link)
{
	struct stat st;
	char what[128];

	if (fstatat(dir, fd, &st, 0) || is_known_device(&st) || plugin_dumps())
		return 0;
	snprintf(what, sizeof(what), "device %.80s (%u:%u)", link, major(st.st_rdev),
		 minor(st.st_rdev));
	return zns_guard_refuse_fd(pid, atoi(fd), what);
}

/*
 * Checks a POSIX message queue. mq_open() opens it in a mount of the kernel, which is in no mount
 * namespace.
 */
static int guard_queue(pid_t pid, const char *fd, const char *link)
{
	char path[64], what[128];
	struct statfs fs;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, atoi(fd));
	if (statfs(path, &fs) || fs.f_type != MQUEUE_MAGIC)
		return 0;
	snprintf(what, sizeof(what), "POSIX message queue %.80s", link);
	return zns_guard_refuse_fd(pid, atoi(fd), what);
}

static int guard_deleted(pid_t pid, int dir, const char *fd, const char *link)
{
	unsigned long long size;
	struct stat st;

	if (fstatat(dir, fd, &st, 0) || st.st_nlink || is_memfd(st.st_dev) ||
	    (kdat.has_memfd_hugetlb && is_hugetlb_dev(st.st_dev, NULL)))
		return 0;
	size = st.st_blocks * (unsigned long long)BLOCK;
	if (size <= opts.ghost_limit)
		return 0;
	pr_err("Process %d (%s) has a deleted file of %llu KiB open (descriptor %d, %.200s), and a dump takes at most %zu "
	       "KiB along: allow more by --ghost-limit %lluM (label zns.ghost-limit=%lluM of a container), or the program "
	       "has to close it first\n",
	       pid, zns_guard_name(pid), size >> 10, atoi(fd), link, opts.ghost_limit >> 10,
	       (size >> 20) + 1, (size >> 20) + 1);
	return -1;
}

static int guard_file(pid_t pid, int dir, const char *fd, char *link, struct zns_guard_seen *seen)
{
	size_t len = strlen(link), cut = strlen(DELETED);
	bool deleted = len > cut && !strcmp(link + len - cut, DELETED);

	if (!strncmp(link, ANON, strlen(ANON))) {
		if (!strcmp(link, ANON "[userfaultfd]"))
			seen->uffd_pid = pid, seen->uffd = atoi(fd);
		else if (!is_known_anon(link) && !plugin_dumps())
			return zns_guard_refuse_fd(pid, atoi(fd), zns_guard_plain(link));
		return 0;
	}
	if (*link != '/')
		return 0;
	zns_guard_plain(link);
	if (!strcmp(link, SECRETMEM))
		return zns_guard_refuse_fd(pid, atoi(fd), "secret memory (memfd_secret)");
	if (!strncmp(link, "/dev/", 5) && !is_plain_device(link) &&
	    guard_device(pid, dir, fd, link))
		return -1;
	if (!strchr(link + 1, '/') && guard_queue(pid, fd, link))
		return -1;
	/* a pre-dump copies no files, so deleted files do not matter */
	return deleted && !seen->pre_dump ? guard_deleted(pid, dir, fd, link) : 0;
}

int zns_guard_files(pid_t pid, struct zns_guard_seen *seen)
{
	DIR *dir = zns_guard_dir(pid, "fd");
	char link[PATH_MAX];
	struct dirent *e;
	ssize_t len;
	int ret = 0;

	while (dir && !ret && (e = readdir(dir))) {
		len = readlinkat(dirfd(dir), e->d_name, link, sizeof(link) - 1);
		if (len <= 0)
			continue;
		link[len] = '\0';
		ret = guard_file(pid, dirfd(dir), e->d_name, link, seen);
	}
	if (dir)
		closedir(dir);
	return ret;
}
