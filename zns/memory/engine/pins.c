/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * May pages of this process be pinned in a way that the kernel does not count in VmPin? The frames
 * of AF_XDP, the rings and buffers of io_uring, and vfio are. This is judged by the descriptors of
 * all threads that have a table of descriptors of their own.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "mem.h"
#include "zns/safeopen.h"

#define KCMP_SAME_FILES 2
#define PART 64U /* the checks may take 1/64 of the time */

static const struct {
	const char *link, *what;
} pins[] = {
	{ "anon_inode:[io_uring]", "io_uring" },
	{ "anon_inode:[vfio", "vfio" },
	{ "/dev/vfio/", "vfio" },
	{ "/dev/iommu", "iommufd" },
};

/* Is it an AF_XDP socket, according to the protocol that sockfs reports? */
static bool is_xdp(pid_t tid, const char *fd)
{
	char path[320], name[16];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/fd/%s", tid, fd);
	n = getxattr(path, "system.sockprotoname", name, sizeof(name) - 1);
	name[n > 0 ? n : 0] = '\0';
	return !strcmp(name, "XDP");
}

static const char *look_at(int dir, pid_t tid, const char *fd)
{
	char link[64];

	zns_read_link(dir, fd, link, sizeof(link));
	if (!strncmp(link, "socket:", 7))
		return is_xdp(tid, fd) ? "an AF_XDP socket" : NULL;
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(pins); i++)
		if (!strncmp(link, pins[i].link, strlen(pins[i].link)))
			return pins[i].what;
	return NULL;
}

static const char *of_table(pid_t tid)
{
	const char *found = NULL;
	struct dirent *d;
	char path[40];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", tid);
	dir = opendir(path);
	while (dir && !found && (d = readdir(dir)))
		if (*d->d_name != '.')
			found = look_at(dirfd(dir), tid, d->d_name);
	if (dir)
		closedir(dir);
	return found;
}

static const char *of_threads(pid_t pid)
{
	const char *found = of_table(pid);
	struct dirent *d;
	char path[40];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	dir = opendir(path);
	while (dir && !found && (d = readdir(dir))) {
		pid_t tid = (pid_t)strtol(d->d_name, NULL, 10);

		if (tid > 0 && tid != pid && syscall(SYS_kcmp, pid, tid, KCMP_SAME_FILES, 0, 0))
			found = of_table(tid);
	}
	if (dir)
		closedir(dir);
	return found;
}

const char *pins_of(struct proc *p)
{
	uint64_t begin = zns_mono_ns(), end;

	if (begin < p->pins_until_ns)
		return p->pins;
	p->pins = of_threads(p->pid);
	end = zns_mono_ns();
	p->pins_until_ns = end + PART * (end - begin);
	return p->pins;
}
