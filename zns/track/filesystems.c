/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which file systems deliver a page without help of a network or a program? The answer comes from
 * mountinfo, since statfs() would ask the file system itself and could block.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "track_int.h"
#include "zns-memfd.h"
#include "zns/grow.h"
#include "zns/util.h"

struct known {
	uint32_t major, minor;
	bool answers;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct known *known; /* protected by lock; kept until the process exits */
static size_t nr_known, max_known;

static bool is_local(const char *type)
{
	static const char *const local[] = {
		"bcachefs", "btrfs", "devtmpfs", "erofs",   "exfat",     "ext2",   "ext3",
		"ext4",     "f2fs",  "hfsplus",  "iso9660", "hugetlbfs", "jfs",    "msdos",
		"nilfs2",   "ntfs3", "overlay",  "ramfs",   "reiserfs",  "rootfs", "squashfs",
		"tmpfs",    "udf",   "vfat",     "xfs",     "zfs",
	};

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(local); i++)
		if (!strcmp(type, local[i]))
			return true;
	return false;
}

/*
 * Finds the line of a device in mountinfo: "36 35 98:0 /root /at options [tags] - type source
 * options". False: no line has this device.
 */
static bool look(const char *mounts, bool ours, uint32_t major, uint32_t minor, bool *answers)
{
	FILE *f = fopen(mounts, "re");
	char *line = NULL, *rest, type[32];
	uint32_t a, b;
	size_t size = 0;
	bool found = false;

	while (f && !found && getline(&line, &size, f) > 0) {
		rest = strstr(line, " - ");
		found = rest && sscanf(line, "%*s %*s %u:%u", &a, &b) == 2 && a == major &&
			b == minor && sscanf(rest + 3, "%31s", type) == 1;
	}
	/* an overlay that the task's user mounted may have any file system below it, also FUSE */
	if (found)
		*answers = is_local(type) && (ours || strcmp(type, "overlay"));
	free(line);
	if (f)
		fclose(f);
	return found;
}

/* Is this the file system of memfds and shared memory? It appears in nobody's mountinfo. */
static bool is_memory(uint32_t major, uint32_t minor)
{
	cleanup_close int fd = zns_memfd("zns-look");
	struct stat st;

	return fd >= 0 && !fstat(fd, &st) && major(st.st_dev) == major && minor(st.st_dev) == minor;
}

static bool find(pid_t pid, uint32_t major, uint32_t minor)
{
	bool answers = true;
	char path[48];

	snprintf(path, sizeof(path), "/proc/%d/mountinfo", pid);
	if (look("/proc/self/mountinfo", true, major, minor, &answers) ||
	    look(path, false, major, minor, &answers))
		return answers;
	/* a major number: a file system on a block device, mounted in another namespace */
	return major || is_memory(major, minor);
}

bool files_answer(pid_t pid, uint32_t major, uint32_t minor)
{
	struct known *k = NULL;
	bool answers;

	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < nr_known && !k; i++)
		if (known[i].major == major && known[i].minor == minor)
			k = &known[i];
	answers = k ? k->answers : find(pid, major, minor);
	/*
	 * a positive answer is not kept for a file system without a block device: after it is
	 * unmounted, the kernel gives its number to another one
	 */
	if (!k && (major || !answers) && !zns_grow(known, nr_known, max_known))
		known[nr_known++] = (struct known){ major, minor, answers };
	pthread_mutex_unlock(&lock);
	return answers;
}
