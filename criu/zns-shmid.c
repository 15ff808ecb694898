/* SPDX-License-Identifier: GPL-2.0-only */
/* See zns-shmid.h. */
#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cr_options.h"
#include "crtools.h"
#include "ipc_ns.h"
#include "log.h"
#include "namespaces.h"
#include "pstree.h"
#include "util.h"
#include "xmalloc.h"
#include "zns-shmid.h"

#undef LOG_PREFIX
#define LOG_PREFIX "zns: "

#define NR_CHAINS 256
/* Ids of System V segments are not negative, so with this bit a number is free of them. */
#define NOT_SYSV  0x80000000u

struct shm_object {
	struct shm_object *next;
	uint32_t id;
	bool sysv;
	dev_t dev;
	ino_t ino;
};

static struct shm_object *chains[NR_CHAINS];

static struct shm_object *find(uint32_t id)
{
	struct shm_object *o = chains[id % NR_CHAINS];

	while (o && o->id != id)
		o = o->next;
	return o;
}

static int add(struct shm_object o)
{
	struct shm_object *new = xmalloc(sizeof(*new));

	if (!new)
		return -1;
	o.next = chains[o.id % NR_CHAINS];
	*new = o;
	chains[o.id % NR_CHAINS] = new;
	return 0;
}

/* Every segment of the ipc namespace we are in. */
static int add_segments(void)
{
	struct shm_info info;
	struct shmid_ds ds;
	int last = shmctl(0, SHM_INFO, (void *)&info);

	if (last < 0) {
		pr_perror("System V shared memory cannot be listed");
		return -1;
	}
	for (int i = 0; i <= last; i++) {
		int id = shmctl(i, SHM_STAT, &ds);

		if (id < 0 && errno == EINVAL)
			continue;
		if (id < 0) {
			pr_perror("System V segment %d cannot be looked at", i);
			return -1;
		}
		if (add((struct shm_object){ .id = id, .sysv = true }))
			return -1;
	}
	return 0;
}

/* The tasks' segments, once; none if they have our namespace, of which criu dumps nothing. */
static int collect_segments(void)
{
	static bool done;
	struct stat theirs, ours;
	int back, ret;
	char path[64];

	if (done)
		return 0;
	snprintf(path, sizeof(path), "/proc/%d/ns/ipc", root_item->pid->real);
	if (stat("/proc/self/ns/ipc", &ours)) {
		if (errno != ENOENT) {
			pr_perror("/proc/self/ns/ipc");
			return -1;
		}
		done = true;	/* a kernel without these namespaces */
		return 0;
	}
	if (stat(path, &theirs)) {
		pr_perror("%s", path);
		return -1;
	}
	if (theirs.st_ino != ours.st_ino) {
		if (switch_ns(root_item->pid->real, &ipc_ns_desc, &back))
			return -1;
		ret = add_segments();
		if (restore_ns(back, &ipc_ns_desc) || ret)
			return -1;
	}
	done = true;
	return 0;
}

int zns_shm_id(dev_t dev, ino_t ino, uint64_t *id)
{
	struct shm_object *o;
	uint32_t n = ino;

	*id = ino;
	if (opts.mode != CR_DUMP && opts.mode != CR_PRE_DUMP)
		return 0;
	if (collect_segments())
		return -1;
	while ((o = find(n)) && (o->sysv || o->dev != dev || o->ino != ino))
		n = (n & NOT_SYSV ? n + 1 : n) | NOT_SYSV;
	*id = n;
	if (o)
		return 0;
	if (n != (uint32_t)ino)
		pr_info("shared memory of inode %lu is image %u: another object has that number\n", (unsigned long)ino, n);
	return add((struct shm_object){ .id = n, .dev = dev, .ino = ino });
}
