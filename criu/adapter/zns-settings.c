/* SPDX-License-Identifier: GPL-2.0-only */
/* Restores settings of tasks that CRIU loses. See include/zns-settings.h. */
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/compiler.h"
#include "log.h"
#include "xmalloc.h"
#include "restorer.h"
#include "zns-settings.h"

#undef LOG_PREFIX
#define LOG_PREFIX "zns: "

#define BITS (8 * sizeof(long))
#define NR_CPUS_MAX (ZNS_CPUS_LONGS * BITS)

/* the mask of a task that was never restricted to some CPUs */
static unsigned long all_cpus[ZNS_CPUS_LONGS];

static bool read_list(const char *path)
{
	char text[4096], *s = text, *end;
	unsigned long first, last;
	ssize_t len;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	len = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	if (len <= 0)
		return false;
	text[len] = '\0';
	memset(all_cpus, 0, sizeof(all_cpus));
	for (;; s = end + 1) {
		first = last = strtoul(s, &end, 10);
		if (end == s)
			return false;
		if (*end == '-')
			last = strtoul(end + 1, &end, 10);
		for (; first <= last && first < NR_CPUS_MAX; first++)
			all_cpus[first / BITS] |= 1ul << first % BITS;
		if (*end != ',')
			return true;
	}
}

void zns_affinity_begin(pid_t root)
{
	static const char *const file[] = { "/sys/fs/cgroup/cpuset%s/cpuset.effective_cpus",
					    "/sys/fs/cgroup%s/cpuset.cpus.effective" };
	char cpuset[PATH_MAX], path[PATH_MAX + 64], *cut;
	unsigned int i;
	ssize_t len;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/cpuset", root);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	len = fd < 0 ? 0 : read(fd, cpuset, sizeof(cpuset) - 1);
	if (fd >= 0)
		close(fd);
	cpuset[len < 0 ? 0 : len] = '\0';
	cpuset[strcspn(cpuset, "\n")] = '\0';
	/* A cgroup without the cpuset controller uses the CPUs of the cgroup above it. */
	while ((cut = strrchr(cpuset, '/'))) {
		for (i = 0; i < ARRAY_SIZE(file); i++) {
			snprintf(path, sizeof(path), file[i], cpuset);
			if (read_list(path))
				return;
		}
		*cut = '\0';
	}
	if (!read_list("/sys/devices/system/cpu/online"))
		memset(all_cpus, 0, sizeof(all_cpus));
}

int zns_dump_affinity(pid_t tid, ThreadCoreEntry *tc)
{
	unsigned long cpus[ZNS_CPUS_LONGS] = {};
	bool restricted = false;
	unsigned int i;
	long len = syscall(__NR_sched_getaffinity, tid, sizeof(cpus), cpus);

	for (i = 0; i < ZNS_CPUS_LONGS; i++)
		restricted |= all_cpus[i] & ~cpus[i];
	if (len <= 0 || !restricted)
		return 0;
	tc->zns_cpus.data = xmalloc(len);
	if (!tc->zns_cpus.data)
		return -1;
	memcpy(tc->zns_cpus.data, cpus, len);
	tc->zns_cpus.len = len;
	tc->has_zns_cpus = true;
	return 0;
}

void zns_prepare_affinity(struct rst_sched_param *sp, const ThreadCoreEntry *tc)
{
	sp->zns_cpus_len = tc->has_zns_cpus && tc->zns_cpus.len <= sizeof(sp->zns_cpus) ?
				   tc->zns_cpus.len :
				   0;
	if (sp->zns_cpus_len)
		memcpy(sp->zns_cpus, tc->zns_cpus.data, sp->zns_cpus_len);
}

static char *find_flag(char *flags, const char *name)
{
	char *s = flags;

	while ((s = strstr(s, name)) && s != flags && s[-1] != ' ')
		s++;
	return s;
}

void zns_area_flags(char *flags, VmaEntry *e)
{
	char *locked = find_flag(flags, "lo");

	if (!locked || !find_flag(flags, "lf"))
		return;
	memset(locked, ' ', 2);
	e->has_zns_onfault = e->zns_onfault = true;
}
